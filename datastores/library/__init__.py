"""The library: the texts a person imported. SQLite is the source of truth."""

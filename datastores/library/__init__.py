"""The library: the texts a person imported. SQLite is its only truth."""

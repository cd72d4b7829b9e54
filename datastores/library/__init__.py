"""The library: the texts a person imported. SQLite is the import of truth."""

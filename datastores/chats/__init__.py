"""The history: every chat as a tree of messages, and presets. SQLite is the source of truth."""

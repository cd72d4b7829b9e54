"""The history: every chat as a tree of messages, and presets, in SQLite."""

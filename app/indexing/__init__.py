"""Keeps token ids, the CREST store and the passages up to date with chats and imported texts."""

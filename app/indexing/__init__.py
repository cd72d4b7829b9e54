"""Keeps token ids and the CREST store up to date with the chats and the imported texts."""

"""Chats to prompts: a model file's own template, run in a sandbox. Both engines use it."""

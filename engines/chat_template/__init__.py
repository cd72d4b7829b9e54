"""Turns chats into prompts by a model file's own template, run in a sandbox, for both engines."""

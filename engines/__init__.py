"""Tokens in, tokens out. Knows targets, drafts and the decode loop; not files' places or screens."""

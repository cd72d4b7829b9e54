"""Tokens in, tokens out. Knows targets, drafts and the loop; not files' places or screens."""

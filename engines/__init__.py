"""Tokens in, tokens out. Knows targets, drafts and the loop; not where files are, nor screens."""

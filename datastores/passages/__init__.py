"""Passages: the imported texts in chunks that can be retrieved, and what ranks them."""

"""Passages: the imported texts in chunks, with the words and vectors that they are found by."""

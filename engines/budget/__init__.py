"""Decides how many draft tokens are worth verifying, which may be none."""

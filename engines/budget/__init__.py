"""Decides how many draft tokens are worth verifying, zero included."""

"""Importing texts and deleting imported ones, on the screen."""

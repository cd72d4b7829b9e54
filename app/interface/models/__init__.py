"""Choosing, switching and downloading models, on the screen."""

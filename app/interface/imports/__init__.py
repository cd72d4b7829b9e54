"""Screens and tasks that import, list, watch and delete texts."""

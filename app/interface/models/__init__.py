"""The model picker, downloads, and switching between models."""

"""The library: the texts that a person imported."""

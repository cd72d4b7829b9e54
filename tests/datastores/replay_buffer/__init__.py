"""The replay buffer: what is stored is sound, bounded, and gone when it is forgotten."""

"""Sizes, counts and times of models, for people. Pure functions."""

from __future__ import annotations


def size(count: float) -> str:
    """Bytes: `4.9 GB`, `14 MB`, `3 KB`."""
    if count >= 1e9:
        return f"{count / 1e9:.1f} GB"
    return f"{count / 1e6:.0f} MB" if count >= 1e6 else f"{count / 1e3:.0f} KB"


def weights(count: int) -> str:
    """Weights of a model: `8.0 B`, `7 M`, `4 K`."""
    if count >= 1e9:
        return f"{count / 1e9:.1f} B"
    return f"{count / 1e6:.0f} M" if count >= 1e6 else f"{count / 1e3:.0f} K"


def time_left(seconds: float) -> str:
    """What a download still takes: `40 s left`, `3 min left`, `1 h 20 min left`."""
    if seconds < 60:
        return f"{seconds:.0f} s left"
    minutes = round(seconds / 60)
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest} min left" if hours else f"{minutes} min left"

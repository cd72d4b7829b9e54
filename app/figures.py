"""Numbers as people read them: counts, shares, sizes, speeds, times."""

from __future__ import annotations


def amount(number: int, thing: str) -> str:
    """`1 file`, `2,000 files`."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def format_size(count: float) -> str:
    """Bytes: `4.9 GB`, `14 MB`, `3 KB`."""
    if count >= 1e9:
        return f"{count / 1e9:.1f} GB"
    return f"{count / 1e6:.0f} MB" if count >= 1e6 else f"{count / 1e3:.0f} KB"


def format_parameters(count: int) -> str:
    """Number of parameters: `8.0 B`, `7 M`, `4 K`."""
    if count >= 1e9:
        return f"{count / 1e9:.1f} B"
    return f"{count / 1e6:.0f} M" if count >= 1e6 else f"{count / 1e3:.0f} K"


def percent(share: float) -> str:
    """`41%`; a positive share is never shown as 0."""
    return "<1%" if 0 < share < 0.005 else f"{share:.0%}"


def format_speed(tokens_per_second: float) -> str:
    """`41 tok/s`, `2.5 tok/s`."""
    if tokens_per_second >= 10:
        return f"{tokens_per_second:,.0f} tok/s"
    return f"{tokens_per_second:.1f} tok/s"


def format_time_left(seconds: float) -> str:
    """The remaining time: `40 s left`, `3 min left`, `1 h 20 min left`."""
    if seconds < 60:
        return f"{seconds:.0f} s left"
    minutes = round(seconds / 60)
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest} min left" if hours else f"{minutes} min left"

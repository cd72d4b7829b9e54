"""Truncates one-line texts to a number of terminal cells; a character can take two or none."""

from __future__ import annotations

from rich.cells import cell_len, set_cell_size


def keep_start(text: str, columns: int) -> str:
    """As much of the start of `text` as fits."""
    return text if cell_len(text) <= columns else set_cell_size(text, columns).rstrip()


def keep_end(text: str, columns: int) -> str:
    """As much of the end of `text` as fits, after an ellipsis; for paths, whose end says most."""
    if cell_len(text) <= columns:
        return text
    start = 1
    while start < len(text) and cell_len(text[start:]) >= max(columns, 1):
        start += 1
    return f"…{text[start:]}"

"""The picture of `bench growth`: tokens for each call, and speed, over the chats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from app.bench.plot import Chart, Points, svg

LINES = {
    "tokens_per_call": "{}",
    "tokens_per_call_empty": "{}, empty stores",
    "tokens_per_call_new": "{}, new questions",
}
SPEEDS = {"speedup": "{}", "speedup_empty": "{}, empty stores"}
"""What is drawn, and how it is called for a set of drafters; the same has the same place, and so
the same colour, in both charts."""


def as_svg(rows: Sequence[Mapping[str, Any]]) -> str:
    """Two charts of the rows that `app.bench.growth.summarise` gives."""
    return svg(
        [
            Chart("Growth", "chats so far", "tokens per call", _lines(rows, LINES)),
            Chart("", "chats so far", "times as fast as plain decoding", _lines(rows, SPEEDS)),
        ]
    )


def _lines(rows: Sequence[Mapping[str, Any]], what: Mapping[str, str]) -> dict[str, Points]:
    """A line for each set of drafters and figure; each window stands where it ends."""
    return {
        name.format(row["drafters"]): _points(row["windows"], key)
        for key, name in what.items()
        for row in rows
    }


def _points(windows: Sequence[Mapping[str, Any]], key: str) -> Points:
    ends = accumulate(window["chats"] for window in windows)
    values = [window[key] for window in windows]
    return [(end, value) for end, value in zip(ends, values, strict=True) if value is not None]

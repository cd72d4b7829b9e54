"""Tables of a benchmark, for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Row = Mapping[str, object]


def table(rows: Sequence[Row], columns: Mapping[str, str]) -> str:
    """Rows as aligned text. `columns` maps a key to its format: a `format` spec such as `.2f`.

    What is None is shown as a dash.
    """
    heads = [key.replace("_", " ") for key in columns]
    cells = [[_cell(row[key], spec) for key, spec in columns.items()] for row in rows]
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    lines = [heads, *cells]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if index == 0 else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def _cell(value: object, spec: str) -> str:
    return "–" if value is None else format(value, spec)

"""Markdown on a terminal: every line is printed exactly once, however the text is split."""

from __future__ import annotations

import re
from io import StringIO

import pytest
from rich.console import Console

from app.cli import markdown
from app.cli.markdown import MarkdownPrinter

WIDTH, HEIGHT = 40, 8
TEXT = """\
# Archives

Use **tar**. <b>List</b> the contents of [an archive](http://x.y/z):

```sh
tar tvf archive.tar
```

1. one
2. two

   more of two
3. three

| a | b |
|---|---|
| 1 | 2 |

> quoted

The end"""


def shown(output: str) -> list[str]:
    """The screen after `output`; interprets line feeds, returns, cursor up and line erasure."""
    lines, row, column = [""], 0, 0
    for part in re.findall(r"\x1b\[[?0-9;]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", output):
        if part == "\n":
            row, column = row + 1, 0
            lines += [""] * (row + 1 - len(lines))
        elif part == "\r":
            column = 0
        elif part.startswith("\x1b["):
            if part.endswith("A"):
                row -= int(part[2:-1] or 1)
            elif part == "\x1b[2K":
                lines[row] = ""
        else:
            kept = lines[row].ljust(column)
            lines[row] = kept[:column] + part + kept[column + len(part) :]
            column += len(part)
    return [line.rstrip() for line in lines]


def printed(monkeypatch: pytest.MonkeyPatch, text: str, size: int) -> list[str]:
    """The terminal after `text` was written in fragments of `size`, each of which was drawn."""
    monkeypatch.setattr(markdown, "REDRAW_INTERVAL_S", 0.0)
    monkeypatch.setattr(markdown, "REDRAW_SHARE", 1e9)
    file = StringIO()
    console = Console(file=file, force_terminal=True, width=WIDTH, height=HEIGHT, _environ={})
    printer = MarkdownPrinter(console)
    for start in range(0, len(text), size):
        printer.write(text[start : start + size])
    printer.close()
    return shown(file.getvalue())


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_every_line_is_printed_once(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    lines = printed(monkeypatch, TEXT, size)
    text = "\n".join(lines)
    for once in ("Archives", "tar tvf archive.tar", "one", "more of two", "three", "quoted", "end"):
        assert text.count(once) == 1, once
    assert "tar tvf archive.tar" in lines  # code is copied without margins
    assert "<b>List</b>" in text
    assert "http://x.y/z" in text
    assert "```" not in text
    assert "**" not in text


def test_a_block_longer_than_the_screen_is_printed_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    code = [f"line {number}" for number in range(5 * HEIGHT)]
    lines = printed(monkeypatch, "\n".join(["```", *code, "```"]), 5)
    assert [line for line in lines if line] == code


def test_escape_sequences_do_not_reach_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "␛[2J" in "".join(printed(monkeypatch, "a \x1b[2J b", 1))


def test_pieces_make_the_same_screen_as_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    screens = [
        [line for line in printed(monkeypatch, TEXT, size) if line] for size in (1, 3, 10_000)
    ]
    assert screens[0] == screens[1] == screens[2]

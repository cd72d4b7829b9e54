"""Files open in the person's editor, at the passage, and a path is never anything but a path."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.interface.editor import editor_command, line_in_file
from datastores.errors import InputError
from datastores.passages.chunks import Chunk

NOTES = Path("/notes/{line} -c :q.md")


@pytest.mark.parametrize(
    ("environment", "command"),
    [
        ({"EDITOR": "nano"}, ["nano", "+7", str(NOTES)]),
        ({"EDITOR": "nano", "VISUAL": "/usr/bin/vim -R"}, ["/usr/bin/vim", "-R", "+7", str(NOTES)]),
        ({"EDITOR": "code --wait"}, ["code", "--wait", "--goto", f"{NOTES}:7"]),
        ({"EDITOR": "hx"}, ["hx", f"{NOTES}:7"]),
        ({"EDITOR": "gedit"}, ["gedit", str(NOTES)]),
    ],
)
def test_editors_are_told_the_line(environment: dict[str, str], command: list[str]) -> None:
    assert editor_command(environment, NOTES, 7) == command


@pytest.mark.parametrize("editor", ["", "  ", "vim 'unclosed"])
def test_without_an_editor_the_way_out_is_named(editor: str) -> None:
    with pytest.raises(InputError, match="EDITOR"):
        editor_command({"EDITOR": editor}, NOTES, 7)


def test_the_passage_is_found_where_it_is_now(tmp_path: Path) -> None:
    path = tmp_path / "notes.md"
    path.write_text("same\nnew\nnew\nsame\nlast\n")
    assert line_in_file(path, Chunk("", 3, 4, "same\nlast")) == 4
    assert line_in_file(path, Chunk("", 2, 4, "same\nlast")) == 1
    assert line_in_file(path, Chunk("", 3, 4, "gone")) == 1
    assert line_in_file(path, Chunk("", 3, 4, "")) == 1


def test_what_is_no_text_or_gone_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.pdf"
    path.write_bytes(b"%PDF\0")
    with pytest.raises(InputError, match="not a text file"):
        line_in_file(path, Chunk("", 1, 1, "a"))
    with pytest.raises(InputError, match="cannot open"):
        line_in_file(tmp_path / "missing", Chunk("", 1, 1, "a"))

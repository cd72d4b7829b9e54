"""Files open in the person's editor, at the passage, and a path is never anything but a path."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from app.interface.editor import edit_text, editor_command, line_in_file, view_text
from datastores.errors import InputError
from datastores.passages.chunks import Chunk
from tests.app.interface.conftest import Stage, ask, notices, type_in

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


@pytest.fixture
def editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Sets an editor that runs a line of shell with the file as `$2`; returns where it noted it."""
    monkeypatch.delenv("VISUAL", raising=False)

    def make(line: str) -> Path:
        script, note = tmp_path / "editor", tmp_path / "note"
        script.write_text(f'#!/bin/sh\nprintf %s "$2" > "{note}"\n{line}\n')
        script.chmod(0o700)
        monkeypatch.setenv("EDITOR", str(script))
        return note

    return make


class Suspendable:
    """An application that leaves the terminal at once."""

    @contextmanager
    def suspend(self) -> Iterator[None]:
        """The terminal is the test's anyway."""
        yield


@pytest.mark.parametrize(("text", "saved"), [("a", "ab"), ("a\n", "a\nb\n"), ("", "b")])
def test_a_text_comes_back_as_it_was_saved(
    editor: Callable[[str], Path], text: str, saved: str
) -> None:
    note = editor('echo b >> "$2"')
    assert edit_text(Suspendable(), text) == saved  # type: ignore[arg-type]
    path = Path(note.read_text())
    assert path.suffix == ".md"
    assert not path.parent.exists(), "nothing is left of it"


def test_only_its_owner_can_read_the_file_and_an_answer_is_read_only(
    editor: Callable[[str], Path], tmp_path: Path
) -> None:
    mode = tmp_path / "mode"
    editor(f'stat -c "%a" "$(dirname "$2")" "$2" > "{mode}"')
    edit_text(Suspendable(), "a")  # type: ignore[arg-type]
    assert mode.read_text().split() == ["700", "600"]
    view_text(Suspendable(), "a")  # type: ignore[arg-type]
    assert mode.read_text().split() == ["700", "400"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [("echo b >> $2; exit 3", "exit code 3"), ("rm $2", "cannot be read"),
     (r"printf '\377' > $2", "cannot be read")],
)  # fmt: skip
def test_an_editor_that_fails_changes_nothing(
    editor: Callable[[str], Path], line: str, reason: str
) -> None:
    editor(line)
    with pytest.raises(InputError, match=reason):
        edit_text(Suspendable(), "a")  # type: ignore[arg-type]


async def test_the_prompt_is_written_and_an_answer_read_in_the_editor(
    stage: Callable[..., Stage], editor: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = stage()
    monkeypatch.setattr(made.app, "suspend", Suspendable().suspend)
    async with made.app.run_test(size=(80, 24)) as pilot:
        await ask(pilot, made, "How do I copy a directory?")
        editor('printf " second line" >> "$2"')
        await type_in(pilot, made, "first")
        await pilot.press("alt+o")
        assert made.conversation.prompt.text == "first second line"
        kept = Path(os.environ["EDITOR"]).with_name("kept")
        editor(f'cp "$2" "{kept}"')
        await pilot.press("alt+m", "o")
        await pilot.pause()
        assert kept.read_text().startswith("You can **copy a directory**")
        assert stat.S_IMODE(kept.stat().st_mode) == 0o400
        monkeypatch.setenv("EDITOR", "")
        await pilot.press("escape", "alt+o")
        assert made.conversation.prompt.text == "first second line"
        assert notices(made)[-1].startswith("No editor is set")

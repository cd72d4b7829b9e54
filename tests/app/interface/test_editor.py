"""Files open in the user's editor at the passage, and paths are never interpreted."""

from __future__ import annotations

import os
import signal
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from app.interface.editor import edit_text, editor_command, line_in_file, view_text
from app.interface.terminal import run_in_terminal
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
        ({"EDITOR": "'/my tools/ed' -a ''"}, ["/my tools/ed", "-a", "", "+7", str(NOTES)]),
        ({"EDITOR": "nano", "VISUAL": " "}, ["nano", "+7", str(NOTES)]),
    ],
)
def test_editors_are_told_the_line(environment: dict[str, str], command: list[str]) -> None:
    assert editor_command(environment, NOTES, 7) == command


def test_an_editor_in_the_home_folder_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert editor_command({"EDITOR": "~/ed -w"}, NOTES, 7)[:2] == ["/home/me/ed", "-w"]


def test_a_path_with_blanks_needs_no_quotes(tmp_path: Path) -> None:
    program = tmp_path / "my tools" / "ed's"
    program.parent.mkdir()
    program.touch(0o700)
    assert editor_command({"EDITOR": f"{program}"}, NOTES, 7)[0] == str(program)


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


def test_binary_and_missing_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.pdf"
    path.write_bytes(b"%PDF\0")
    with pytest.raises(InputError, match="not a text file"):
        line_in_file(path, Chunk("", 1, 1, "a"))
    with pytest.raises(InputError, match="cannot open"):
        line_in_file(tmp_path / "missing", Chunk("", 1, 1, "a"))


@pytest.fixture
def editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Sets an editor that runs a line of shell with the file as `$2`, and returns its log."""
    monkeypatch.delenv("VISUAL", raising=False)

    def make(line: str) -> Path:
        script, note = tmp_path / "editor", tmp_path / "note"
        script.write_text(f'#!/bin/sh\nprintf %s "$2" > "{note}"\n{line}\n')
        script.chmod(0o700)
        monkeypatch.setenv("EDITOR", str(script))
        return note

    return make


class Suspendable:
    """An application that suspends at once.

    Attributes:
        resumed: whether it resumed, which Textual does not after an error.
    """

    resumed = False

    @contextmanager
    def suspend(self) -> Iterator[None]:
        """Leave the terminal as it is."""
        yield
        self.resumed = True


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
     ("mkdir $2.d; mv $2.d $2 || rm $2; mkdir $2", "cannot be read"),
     (r"printf '\0\1\2\377\0\3' > $2", "is not text"), ("kill -9 $$", "ended by SIGKILL"),
     ("sh -c 'kill $$'; exit $?", "ended by SIGTERM")],
)  # fmt: skip
def test_an_editor_that_fails_changes_nothing(
    editor: Callable[[str], Path], line: str, reason: str
) -> None:
    editor(line)
    with pytest.raises(InputError, match=reason):
        edit_text(Suspendable(), "a")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("line", "saved"),
    [("echo saved > $2; kill -9 $$", "saved"),
     (r"printf 'caf\351 cr\350me' > $2", "café crème"),
     (r"printf '\377\376h\0i\0' > $2", "hi"), (r"printf 'a\r\nb\r\n' > $2", "a\nb")],
)  # fmt: skip
def test_what_was_saved_is_read_whatever_the_editor_did(
    editor: Callable[[str], Path], line: str, saved: str
) -> None:
    editor(line)
    assert edit_text(Suspendable(), "a") == saved  # type: ignore[arg-type]


def test_without_room_for_a_file_the_way_out_is_named(
    editor: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    editor("true")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    with pytest.raises(InputError, match="set TMPDIR"):
        edit_text(Suspendable(), "a")  # type: ignore[arg-type]


@pytest.mark.parametrize("command", [["{tmp}/missing"], ["{tmp}/not-a-program"]])
def test_the_interface_comes_back_when_a_program_cannot_be_started(
    command: list[str], tmp_path: Path
) -> None:
    (tmp_path / "not-a-program").write_text("")
    app, before = Suspendable(), signal.getsignal(signal.SIGINT)
    with pytest.raises(InputError, match="cannot start"):
        run_in_terminal(app, [part.format(tmp=tmp_path) for part in command])  # type: ignore[arg-type]
    assert app.resumed
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_is_for_the_program_that_has_the_terminal() -> None:
    app = Suspendable()
    code = run_in_terminal(app, ["sh", "-c", "kill -INT $PPID; kill -INT $$"])  # type: ignore[arg-type]
    assert (code, app.resumed) == (-signal.SIGINT, True)


@pytest.mark.parametrize("set_to", ["nano-is-not-here", "/nowhere/ed --wait", "''"])
async def test_a_missing_editor_is_reported_and_the_prompt_stays(
    stage: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch, set_to: str
) -> None:
    made = stage()
    monkeypatch.setattr(made.app, "suspend", Suspendable().suspend)
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", set_to)
    async with made.app.run_test(size=(80, 24)) as pilot:
        await type_in(pilot, made, "first")
        await pilot.press("alt+o", *" more")
        assert made.conversation.prompt.text == "first more"
        assert "set EDITOR" in notices(made)[-1]


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
        await pilot.press("alt+m", "alt+o")
        await pilot.pause()
        assert kept.read_text().startswith("You can **copy a directory**")
        assert stat.S_IMODE(kept.stat().st_mode) == 0o400
        monkeypatch.setenv("EDITOR", "")
        await pilot.press("escape", "alt+o")
        assert made.conversation.prompt.text == "first second line"
        assert notices(made)[-1].startswith("No editor is set")

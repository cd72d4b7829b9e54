"""The commands that list, search, export, restore and delete chats."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from pathlib import Path

import pytest

from app.cli.main import run
from app.locations import locate
from datastores.chats.history import History
from datastores.chats.records import ASSISTANT, USER
from tests.datastores.chats.test_deletion import holding

SENTENCE = "the walrus keeps seventeen brass telescopes"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data directory with two chats."""
    data = tmp_path / "data"
    monkeypatch.setenv("SPECCHAT_DATA_DIR", str(data))
    locate(data).create()
    with closing(History.open(data / "history.db")) as history:
        for title, text in (("sea \x1b[31m", SENTENCE), ("land", "an ox")):
            chat = history.create_chat(title).id
            question = history.add_message(chat, None, USER, "who?")
            history.add_message(chat, question.id, ASSISTANT, text)
    return data


def _said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(arguments) == 0
    return capsys.readouterr().out


def test_chats_are_listed_newest_first(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with closing(History.open(folder / "history.db")) as history:
        history.set_private(1, True)
        history.set_sampling(1, {"temperature": 0.7})
    lines = _said(capsys, "chats").splitlines()
    assert [line.split()[0] for line in lines] == ["2", "1"]
    assert lines[1].endswith("sea ␛[31m  (private)  (own settings)")
    listed = json.loads(_said(capsys, "chats", "--json"))["chats"]
    assert [chat["title"] for chat in listed] == ["land", "sea \x1b[31m"]


@pytest.mark.usefixtures("folder")
def test_words_find_a_chat(capsys: pytest.CaptureFixture[str]) -> None:
    assert _said(capsys, "search", "walrus", "bra").splitlines() == [
        "    1  sea ␛[31m",
        f"       {SENTENCE}",
    ]
    [hit] = json.loads(_said(capsys, "search", "walrus", "--json"))["hits"]
    assert (hit["chat"], hit["message"], hit["excerpt"]["spans"]) == (1, 2, [[4, 10]])
    assert run(["search", "nothing"]) == 0
    assert capsys.readouterr().err == "No match.\n"


def test_a_deleted_chat_is_in_no_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert holding(folder, SENTENCE)
    assert run(["delete", "1", "--yes"]) == 0
    assert capsys.readouterr().err == "deleted 1 chat\n"
    assert holding(folder, SENTENCE, "walrus", "telescopes") == []
    assert _said(capsys, "chats").count("\n") == 1


def test_deleting_a_chat_reports_a_damaged_library(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "library.db").write_bytes(b"no database" * 1000)
    assert run(["delete", "1", "--yes"]) == 0
    aside, done = capsys.readouterr().err.splitlines()
    assert aside.startswith(
        f"your imports were damaged and set aside as {folder / 'library.db.corrupt-'}"
    )
    assert "import your files again with `specchat import PATH…`" in aside
    assert done == "deleted 1 chat"


@pytest.mark.usefixtures("folder")
def test_nothing_is_deleted_without_confirmation_or_partly(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["delete", "1"]) == 1
    assert "use --yes" in capsys.readouterr().err
    assert run(["delete", "1", "99", "--yes"]) == 1
    assert "no chat 99" in capsys.readouterr().err
    assert _said(capsys, "chats").count("\n") == 2


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("answer", "left"), [("y\n", 1), ("n\n", 2), ("", 2)])
def test_deletion_asks_for_confirmation(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    answer: str,
    left: int,
) -> None:
    replies = iter([answer])

    def reply(prompt: str) -> str:
        text = next(replies)
        if not text:
            raise EOFError
        return text.strip()

    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr("click.termui.visible_prompt_func", reply)
    assert run(["delete", "1"]) == (0 if left == 1 else 130)
    capsys.readouterr()
    assert _said(capsys, "chats").count("\n") == left


def test_an_export_is_restored(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "all.json"
    assert _said(capsys, "export", "-o", str(file)) == ""
    assert file.stat().st_mode & 0o077 == 0
    assert _said(capsys, "export", "--format", "json") == file.read_text()
    assert run(["delete", "1", "--yes"]) == 0
    assert run(["restore", str(file)]) == 0
    assert capsys.readouterr().err.splitlines()[-1] == "1 restored, 1 already there"
    assert "walrus" in _said(capsys, "search", "walrus")


def test_one_chat_is_exported_to_read(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = _said(capsys, "export", "1")
    assert text.startswith("# sea")
    assert f"## Assistant\n\n{SENTENCE}\n" in text
    assert "an ox" not in text
    _said(capsys, "export", "1", "-o", str(tmp_path / "one.md"))
    assert (tmp_path / "one.md").read_text() == text


@pytest.mark.usefixtures("folder")
def test_an_export_overwrites_nothing_unless_forced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.md"
    file.write_text("mine")
    assert run(["export", "-o", str(file)]) == 1
    refused = capsys.readouterr().err
    assert refused == f"specchat: {file} already exists: use --force to overwrite it\n"
    assert file.read_text() == "mine"
    assert _said(capsys, "export", "--force", "-o", str(file)) == ""
    assert "walrus" in file.read_text()


@pytest.mark.usefixtures("folder")
def test_what_cannot_be_written_or_read_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["export", "-o", str(tmp_path / "no" / "where.json")]) == 1
    assert "cannot write" in capsys.readouterr().err
    assert run(["export", "99"]) == 1
    assert "no chat 99" in capsys.readouterr().err
    assert run(["restore", str(tmp_path / "nothing.json")]) == 1
    assert "cannot read" in capsys.readouterr().err
    broken = tmp_path / "broken.json"
    broken.write_text('{"specchat": 1, "chats": [{}]}')
    assert run(["restore", str(broken)]) == 1
    assert "skipped: chat 1: " in capsys.readouterr().err


def test_without_chats_there_is_nothing_to_export(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["--data-dir", str(tmp_path / "new"), "export"]) == 1
    assert "no chats to export" in capsys.readouterr().err

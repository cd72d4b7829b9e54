"""Killed at any moment and gone on with, an import ends in the state of an undisturbed one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.app.importing.killer import whole
from tests.app.importing.texts import chatgpt
from tests.datastores.dump import rows_of

KILLS = 20
PAGES = 60
CHATS = 60
MADE = ("library", "tokens", "crest")
"""What an import makes; the history beside it has a name drawn by chance."""


def _corpus(folder: Path) -> None:
    """Pages in folders, some of them twice, then an export, some of whose chats are alike."""
    for number in range(PAGES):
        path = folder / f"folder{number % 7}" / f"{number}.md"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"# Page {number % 100}\n" + "words and words\n" * (number % 13))
    chats = [
        chatgpt(f"chat {n}", f"question {n % 30}", "answer " * (n % 100)) for n in range(CHATS)
    ]
    (folder / "folder9").mkdir()
    (folder / "folder9" / "conversations.json").write_text(json.dumps(chats))


def _rows(data: Path) -> dict[str, dict[str, list[tuple[object, ...]]]]:
    """Everything in the library, in the tokenised texts and in CREST."""
    return {path.name: rows_of(path) for path in sorted(data.rglob("*.db")) if path.stem in MADE}


@pytest.mark.skipif(sys.platform == "win32", reason="forks")
def test_twenty_kills_change_nothing(folder: Path, tmp_path: Path) -> None:
    _corpus(folder)
    undisturbed, killed = tmp_path / "undisturbed", tmp_path / "killed"
    list(whole(folder, undisturbed))
    rows = _rows(undisturbed)
    assert len(rows) == len(MADE)
    killer = [sys.executable, "-m", "tests.app.importing.killer"]
    subprocess.run([*killer, str(folder), str(killed), str(KILLS)], check=True, timeout=300)
    places = sorted(killed.iterdir())
    assert len(places) > 2
    for place in places:
        list(whole(folder, place))
        assert _rows(place) == rows

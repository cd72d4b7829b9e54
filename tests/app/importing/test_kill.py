"""Killed at any moment and gone on with, an import ends in the state of an undisturbed one."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from app.importing.run import import_paths
from datastores.library import Library
from tests.app.importing.texts import chatgpt
from tests.datastores.dump import rows_of

KILLS = 20
PAGES = 120
CHATS = 150


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


@pytest.mark.skipif(sys.platform == "win32", reason="forks")
def test_twenty_kills_change_nothing(folder: Path, tmp_path: Path, library: Library) -> None:
    _corpus(folder)
    list(import_paths([folder], library))
    killed = tmp_path / "killed.db"
    # An event for each page that is stored already and for each chat of the unfinished export.
    arguments = [str(folder), str(killed), str(KILLS), str(PAGES + CHATS - 10)]
    killer = [sys.executable, "-m", "tests.app.importing.killer", *arguments]
    subprocess.run(killer, check=True, timeout=120)
    with closing(Library.open(killed)) as resumed:
        list(import_paths([folder], resumed))
    assert rows_of(killed) == rows_of(library.store.path)

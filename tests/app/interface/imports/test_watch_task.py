"""Watched folders: new words are found, and changed and deleted ones no longer."""

from __future__ import annotations

import asyncio
import threading
from contextlib import closing
from pathlib import Path

import pytest
from textual.widgets import OptionList

from app.importing.session import import_into, watch, watched_imports
from app.importing.watch import FolderState, look
from app.indexing.passage_index import find, open_passages, update
from app.interface.imports import tasks, watch_task
from app.interface.imports.imports_screen import ImportsScreen
from datastores.library.library import Library
from tests.app.interface.conftest import Make, Stage, notices, ready, until
from tests.datastores.chats.test_deletion import holding

SECRET_WORD = "seventeen brass telescopes"


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_task, "MIN_INTERVAL_S", 0.02)
    monkeypatch.setattr(watch_task, "interval", lambda cost_s: 0.02)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "watched"
    path.mkdir()
    (path / "walrus.md").write_text(f"The walrus keeps {SECRET_WORD}.")
    (path / "giraffe.md").write_text("A giraffe sells umbrellas.")
    return path


def watched(made: Stage, folder: Path) -> None:
    """Import the folder and watch it."""
    with closing(Library.open(made.locations.library)) as library:
        list(import_into(library, made.locations, [folder]))
    watch(made.locations.imported, str(folder), True)


def found(made: Stage, words: str) -> list[str]:
    """The files in which words are found after an update of the passages."""
    with (
        closing(Library.open(made.locations.library)) as library,
        closing(open_passages(made.locations)) as passages,
    ):
        list(update(library, passages))
        return [one.file for one in find(library, passages, words, 5)]


async def test_changes_are_followed(stage: Make, folder: Path) -> None:
    made = stage()
    watched(made, folder)
    async with made.app.run_test(size=(80, 24)) as pilot:
        await ready(pilot, made)
        (folder / "new.md").write_text("An okapi paints lighthouses.")
        await until(pilot, lambda: found(made, "okapi") == ["new.md"])
        (folder / "giraffe.md").write_text("A giraffe sells raincoats now.")
        await until(pilot, lambda: found(made, "raincoats") == ["giraffe.md"])
        assert found(made, "umbrellas") == []
        (folder / "walrus.md").unlink()
        await until(pilot, lambda: found(made, "telescopes") == [])
        task = made.app.chat_screen.watch_task
        await task.shutdown()
        assert holding(made.locations.data, SECRET_WORD) == []
        assert notices(made) == []


async def test_shutdown_waits_for_a_deletion_that_has_begun(
    stage: Make, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, release = threading.Event(), threading.Event()

    def forget(*_: object) -> None:
        begun.set()
        release.wait()

    monkeypatch.setattr(watch_task, "_forget_files", forget)
    made = stage()
    watched(made, folder)
    async with made.app.run_test(size=(80, 24)) as pilot:
        await ready(pilot, made)
        (folder / "walrus.md").unlink()
        await until(pilot, begun.is_set)
        shutdown = asyncio.ensure_future(made.app.chat_screen.watch_task.shutdown())
        try:
            for _ in range(5):
                await pilot.pause()
            assert not shutdown.done()
        finally:
            release.set()
        await shutdown


async def test_a_missing_folder_is_reported_once_and_deletes_nothing(
    stage: Make, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []

    def noted(import_path: str, own: frozenset[Path]) -> FolderState:
        looks.append(import_path)
        return look(import_path, own)

    monkeypatch.setattr(watch_task, "look", noted)
    made = stage()
    watched(made, folder)
    away = folder.rename(folder.with_name("away"))
    async with made.app.run_test(size=(80, 24)) as pilot:
        await ready(pilot, made)
        await until(pilot, lambda: notices(made))
        before = len(looks)
        await until(pilot, lambda: len(looks) > before + 1)
        assert notices(made) == [f"{folder} is gone; its imported texts are kept"]
        assert found(made, "telescopes") == ["walrus.md"]
        away.rename(folder)
        (folder / "walrus.md").unlink()
        await until(pilot, lambda: found(made, "telescopes") == [])


def is_listed_as_watched(made: Stage) -> bool:
    (option,) = made.app.screen.query_one(OptionList).options
    return "watched" in str(option.prompt).split(" · ")


async def test_a_listed_import_is_watched_by_a_key(stage: Make, folder: Path) -> None:
    made = stage()
    watched(made, folder)
    async with made.app.run_test(size=(100, 24)) as pilot:
        await ready(pilot, made)
        await pilot.press("f9", "f9")
        await until(pilot, lambda: isinstance(made.app.screen, ImportsScreen))
        await until(pilot, lambda: made.app.screen.query_one(OptionList).option_count)
        assert is_listed_as_watched(made)
        await pilot.press("w")
        await until(pilot, lambda: not is_listed_as_watched(made))
        assert watched_imports(made.locations.imported) == []
        await pilot.press("w")
        await until(pilot, lambda: watched_imports(made.locations.imported) == [str(folder)])


async def test_two_quick_presses_change_back_what_the_first_has_changed(
    stage: Make, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, asked, pressed = stage(), list[bool](), threading.Event()
    watched(made, folder)

    def record(path: Path, import_path: str, follow: bool) -> None:
        pressed.wait(10)
        watch(path, import_path, follow)
        asked.append(follow)

    monkeypatch.setattr(tasks, "watch", record)
    async with made.app.run_test(size=(100, 24)) as pilot:
        await ready(pilot, made)
        await pilot.press("f9", "f9")
        await until(pilot, lambda: isinstance(made.app.screen, ImportsScreen))
        await until(pilot, lambda: made.app.screen.query_one(OptionList).option_count)
        await pilot.press("w", "w")
        pressed.set()
        await until(pilot, lambda: len(asked) == 2)
        assert asked == [False, True]
        await until(pilot, lambda: is_listed_as_watched(made))

"""Snapshots of importing in each of its states. Look at each one before updating it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Static

from app.importing.events import Event, FindingFiles, ImportFinished, ImportReport
from app.importing.session import record_imports
from app.indexing.corpus_index import IndexingProgress
from app.interface.imports import imports_screen
from datastores.errors import InputError, SpecchatError
from datastores.library.documents import CODE, NOTES, Document, FinishFile, Part, StoreDocument
from datastores.library.library import Library
from tests.app.interface.conftest import Compare, Make, Stage, ready, until
from tests.app.interface.imports.scripted import DONE, READ, SKIPPED, ScriptedImport

Scripting = Callable[..., ScriptedImport]
Size = tuple[int, int]

sizes = pytest.mark.parametrize("size", [(80, 24), (160, 50)])
NOTHING = ImportReport(0, 0, 0, {}, DONE.skipped)
FAILURE = InputError("nothing imported: binary (60), ignored by .gitignore (1)")
STATES: dict[str, tuple[Sequence[Event], SpecchatError | None, Sequence[str]]] = {
    "searching": ([FindingFiles(1500)], None, ()),
    "running": ([*SKIPPED, READ], None, ()),
    "stopped": ([*SKIPPED, READ], None, ("s",)),
    "done": ([READ, ImportFinished(DONE)], None, ()),
    "nothing": ([READ, ImportFinished(NOTHING)], FAILURE, ()),
}


@pytest.fixture(autouse=True)
def still(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fixed time: it is shown on the screen."""
    monkeypatch.setattr(imports_screen, "age", lambda then, now: "09:41")
    monkeypatch.setenv("HOME", "/home/ada")


@sizes
def test_before_the_first_import(stage: Make, snap_compare: Compare, size: Size) -> None:
    made = stage()

    async def act(pilot: Pilot[None]) -> None:
        await ready(pilot, made)
        await pilot.press("f9")
        await pilot.pause()

    assert snap_compare(made.app, terminal_size=size, run_before=act)


@sizes
def test_a_choice_of_paths(
    stage: Make,
    snap_compare: Compare,
    size: Size,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for number in range(60):
        (tmp_path / "here" / f"recipe {number:02}").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    made = stage()

    async def act(pilot: Pilot[None]) -> None:
        await ready(pilot, made)
        await pilot.press("f9", *"rec", "tab")
        await until(pilot, lambda: made.app.screen.query_one(".-names").display)

    assert snap_compare(made.app, terminal_size=size, run_before=act)


@sizes
@pytest.mark.parametrize("state", STATES)
def test_an_import(
    stage: Make, scripted: Scripting, snap_compare: Compare, size: Size, state: str
) -> None:
    events, failure, keys = STATES[state]
    script = scripted(
        list(events), fails=failure, holds=state in ("searching", "running", "stopped")
    )
    made = stage()

    async def act(pilot: Pilot[None]) -> None:
        await ready(pilot, made)
        await pilot.press("f9", *"~/notes", "enter")
        task = made.app.chat_screen.import_task
        await until(pilot, lambda: task.state.found or task.state.progress)
        await pilot.press(*keys)
        await until(pilot, lambda: task.state.running == (script.holds and not keys))
        if state == "done":
            made.app.indexer_changed(IndexingProgress(2100, 5210, 1_200_000, imports=True), None)
            await until(pilot, lambda: task.state.indexing)
        await pilot.pause()

    assert snap_compare(made.app, terminal_size=size, run_before=act)


def test_what_goes_on_besides(stage: Make, snap_compare: Compare) -> None:
    made = stage()

    async def act(pilot: Pilot[None]) -> None:
        await ready(pilot, made)
        made.app.indexer_changed(IndexingProgress(42, 100, 1_200_000, imports=True), None)
        await until(pilot, lambda: made.conversation.topbar.background)

    assert snap_compare(made.app, terminal_size=(80, 24), run_before=act)


def _fill(made: Stage) -> None:
    """Three imports: a large one, one with a long and hostile name, one incomplete."""
    texts = {
        "/home/ada/notes": [Part(NOTES, "x" * 400), Part(CODE, "y" * 40)],
        "/srv/a very long folder name that goes on and on/\x1b[31mred/" + "deep/" * 20: [
            Part(NOTES, "z" * 8000)
        ],
        "/home/ada/half": [Part(CODE, "half")],
    }
    with closing(Library.open(made.locations.library)) as library:
        for path, parts in texts.items():
            document = Document("t", tuple(parts))
            library.write([StoreDocument(path, "f", 0, document), FinishFile(path, "f", "d", 1)])
    record_imports(made.locations.imported, texts, whole=True)
    record_imports(made.locations.imported, ["/home/ada/half"], whole=False)


@sizes
@pytest.mark.parametrize("keys", [(), ("delete",)], ids=["list", "confirm"])
def test_imports(stage: Make, snap_compare: Compare, size: Size, keys: Sequence[str]) -> None:
    made = stage()
    _fill(made)

    async def act(pilot: Pilot[None]) -> None:
        await ready(pilot, made)
        await pilot.press("f9", "f9")
        listed = made.app.screen.query_one("OptionList")
        await until(pilot, lambda: listed.option_count == 3)  # type: ignore[attr-defined]
        await pilot.press("down", *keys)
        await pilot.pause()

    assert snap_compare(made.app, terminal_size=size, run_before=act)


def test_no_imports(stage: Make, snap_compare: Compare) -> None:
    made = stage()

    async def act(pilot: Pilot[None]) -> None:
        await ready(pilot, made)
        await made.app.chat_screen.run_action("command('texts.list')")
        await until(
            pilot,
            lambda: (
                made.app.screen.query(Static)
                and "No imports" in str(made.app.screen.query(Static).first().content)
            ),
        )
        await pilot.pause()

    assert snap_compare(made.app, terminal_size=(80, 24), run_before=act)

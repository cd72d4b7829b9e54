"""Texts are imported from the interface without blocking it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Log, Static

from app.importing.events import FindingFiles, ImportFinished
from app.indexing.corpus_index import IndexingProgress
from app.interface.imports.import_screen import ImportScreen
from app.interface.imports.status import ImportState
from app.interface.screen import ChatScreen
from datastores.errors import InputError, SpecchatError, StoreError
from datastores.library.library import Library
from tests.app.interface.conftest import (
    SCRIPT,
    Make,
    Stage,
    answered,
    burst,
    notices,
    ready,
    send,
    type_in,
    until,
)
from tests.app.interface.imports.scripted import DONE, READ, SKIPPED, ScriptedImport
from tests.app.interface.scripted import Script

Scripting = Callable[..., ScriptedImport]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two notes, and a file that cannot be imported."""
    path = tmp_path / "my notes"
    path.mkdir()
    (path / "a.md").write_text("The walrus keeps seventeen brass telescopes.")
    (path / "b.md").write_text("password=hunter2\n")
    (path / "bad.bin").write_bytes(b"\0\1\2")
    return path


def state_of(made: Stage) -> ImportState:
    return made.app.chat_screen.import_task.state


def status_text(made: Stage) -> str:
    """The text of the import screen."""
    screen = made.app.screen
    log = "\n".join(screen.query_one(Log).lines)
    return f"{screen.query_one('.-state', Static).content}\n{log}"


async def start(pilot: Pilot[None], line: str) -> None:
    await pilot.press("f9", *line, "enter")
    await pilot.pause()


async def test_a_folder_is_imported_and_summarised(stage: Make, folder: Path) -> None:
    made = stage()
    async with made.app.run_test(size=(80, 24)) as pilot:
        await start(pilot, str(folder))
        await until(pilot, lambda: state_of(made).completed and not state_of(made).running)
        text = status_text(made)
        assert "Imported 2 documents · 1 password removed · 1 skipped" in text
        assert "skipped 1: binary\n    bad.bin" in text
        await pilot.press("escape")
        assert isinstance(made.app.screen, ChatScreen)
    with closing(Library.open(made.locations.library)) as library:
        assert [stored.path for stored in library.imports()] == [str(folder)]


@pytest.mark.parametrize("line", ["build\\", "!", "[z-a].md", "draft\\ "])
async def test_a_line_that_git_ignores_costs_no_neighbour(
    stage: Make, tmp_path: Path, line: str
) -> None:
    both = tmp_path / "both"
    folder, neighbour = both / "notes", both / "neighbour"
    for path in (folder, neighbour):
        path.mkdir(parents=True)
        (path / f"{path.name}.md").write_text(f"The walrus of {path.name}.")
    (folder / ".gitignore").write_text(f"{line}\n*.tmp\n")
    (folder / "scratch.tmp").write_text("scratch")
    made = stage()
    async with made.app.run_test(size=(80, 24)) as pilot:
        await start(pilot, str(both))
        await until(pilot, lambda: state_of(made).completed and not state_of(made).running)
        assert "scratch.tmp" in status_text(made)
    with closing(Library.open(made.locations.library)) as library:
        files = library.files(str(both))
    assert {"notes/notes.md", "neighbour/neighbour.md"} <= files
    assert "notes/scratch.tmp" not in files


async def test_a_damaged_library_is_reported_at_startup(stage: Make) -> None:
    made = stage()
    made.locations.library.write_bytes(b"no database" * 1000)
    async with made.app.run_test() as pilot:
        await until(pilot, lambda: notices(made))
        assert "Your imports were damaged and set aside as " in notices(made)[0]


async def test_nothing_imported_is_an_error_with_its_reasons(stage: Make, folder: Path) -> None:
    made = stage()
    async with made.app.run_test(size=(80, 24)) as pilot:
        await start(pilot, str(folder / "bad.bin"))
        await until(pilot, lambda: state_of(made).error)
        await until(pilot, lambda: "bad.bin" in status_text(made))
        assert "Nothing imported: binary (1)" in status_text(made)
        assert made.app.screen.query(".-failed")


async def test_tab_completes_a_path_and_lists_several_completions(
    stage: Make, folder: Path
) -> None:
    (folder.parent / "my drafts").mkdir()
    made = stage()
    async with made.app.run_test(size=(160, 50)) as pilot:
        await pilot.press("f9", *f"{folder.parent}/m", "tab")
        screen = made.app.screen
        assert isinstance(screen, ImportScreen)
        await until(pilot, lambda: screen.box.value.endswith("/my\\ "))
        offered = screen.query_one(".-names", Static)
        await until(pilot, lambda: str(offered.content) == "my drafts/  my notes/")
        assert offered.display
        await pilot.press("n", "tab")
        await until(pilot, lambda: screen.box.value.endswith("/my\\ notes/"))
        await pilot.press("enter")
        await until(pilot, lambda: state_of(made).completed)


async def test_keys_typed_at_once_keep_their_order_around_tab(stage: Make, folder: Path) -> None:
    made = stage()
    async with made.app.run_test() as pilot:
        await pilot.press("f9")
        screen = made.app.screen
        assert isinstance(screen, ImportScreen)
        await burst(pilot, *f"{folder.parent}/mx", "backspace", "tab", *"a.", "tab", "x")
        await until(pilot, lambda: screen.box.value.endswith("/my\\ notes/a.mdx"))


async def test_a_stopped_import_shows_what_is_stored_and_can_be_resumed(
    stage: Make, scripted: Scripting
) -> None:
    script = scripted([FindingFiles(500), READ], holds=True)
    made = stage()
    async with made.app.run_test(size=(80, 24)) as pilot:
        await start(pilot, "/notes")
        await until(pilot, lambda: "1,234 of 5,210 files" in status_text(made))
        assert "about 1,203,055 tokens" in status_text(made)
        await pilot.press("s")
        await until(pilot, lambda: not state_of(made).running)
        assert script.closed == 1
        assert "Enter resumes. 1,201 new documents so far." in status_text(made)
        script.go_on.set()
        script.batches = ([ImportFinished(DONE)],)
        await pilot.press("enter")
        await until(pilot, lambda: state_of(made).completed)
        assert script.asked == [[Path("/notes")]] * 2


async def test_an_import_continues_when_closed_and_announces_its_end(
    stage: Make, scripted: Scripting
) -> None:
    script = scripted([READ], [ImportFinished(DONE)], holds=True)
    made = stage()
    async with made.app.run_test(size=(120, 36)) as pilot:
        await ready(pilot, made)
        script.batches = ([READ],)
        await start(pilot, "/notes")
        await pilot.press("escape")
        assert made.conversation.topbar.background == "importing 38%"
        await type_in(pilot, made, "still here")
        script.go_on.set()
        await until(pilot, lambda: notices(made))
        assert made.conversation.topbar.background == ""
        assert made.conversation.prompt.text == "still here"


async def test_an_answer_is_generated_during_an_import(stage: Make, scripted: Scripting) -> None:
    scripted([READ], holds=True)
    made = stage(SCRIPT, Script(SCRIPT.passes, holds=True))
    async with made.app.run_test(size=(120, 36)) as pilot:
        await ready(pilot, made)
        await start(pilot, "/notes")
        await pilot.press("escape")
        await send(pilot, made, "copy?")
        await until(pilot, lambda: made.assistant.asked)
        await answered(pilot, made)
        assert state_of(made).running


@pytest.mark.parametrize(
    "error", [InputError("Nothing imported: x (1)"), StoreError("library.db: disk full")]
)
async def test_a_failure_is_announced_when_the_screen_is_closed(
    stage: Make, scripted: Scripting, error: SpecchatError
) -> None:
    script = scripted([READ], fails=error, holds=True)
    made = stage()
    async with made.app.run_test() as pilot:
        await ready(pilot, made)
        await start(pilot, "/notes")
        await pilot.press("escape")
        script.go_on.set()
        await until(pilot, lambda: notices(made) == [str(error)])


async def test_the_indexer_is_shown_in_the_top_bar(stage: Make, folder: Path) -> None:
    made = stage()
    async with made.app.run_test(size=(120, 36)) as pilot:
        await ready(pilot, made)
        made.app.indexer_changed(IndexingProgress(42, 100, 1000, imports=True), None)
        await until(pilot, lambda: made.conversation.topbar.background == "indexing imports 42%")
        made.app.indexer_changed(
            IndexingProgress(100, 100, 5000, imports=True, building=True), None
        )
        await until(pilot, lambda: made.conversation.topbar.background == "indexing imports")
        made.app.indexer_changed(None, None)
        await until(pilot, lambda: made.conversation.topbar.background == "")
        assert state_of(made).indexed_tokens == 5000
        made.app.indexer_changed(IndexingProgress(1, 2, 40, imports=False), None)
        await until(pilot, lambda: made.conversation.topbar.background == "indexing chats 50%")
        made.app.indexer_changed(None, None)
        await until(pilot, lambda: made.conversation.topbar.background == "")
        assert state_of(made).indexed_tokens == 5000, "chats are no new tokens of an import"
        for _ in range(2):
            made.app.indexer_changed(None, StoreError("crest.db: disk\nfull"))
        await until(pilot, lambda: made.conversation.topbar.background == "indexing failed")
        assert notices(made) == ["crest.db: disk full"]


async def test_quitting_ends_the_import(stage: Make, scripted: Scripting) -> None:
    script = scripted([READ], holds=True)
    made = stage()
    async with made.app.run_test() as pilot:
        await ready(pilot, made)
        await start(pilot, "/notes")
    assert script.closed == 1


async def test_file_names_are_sanitised(stage: Make, scripted: Scripting) -> None:
    script = scripted([*SKIPPED, READ], holds=True)
    made = stage()
    async with made.app.run_test() as pilot:
        await start(pilot, "/notes")
        await until(pilot, lambda: "garden ␛[31mplan.md" in status_text(made))
        assert "skipped 60: binary" in status_text(made)
        script.batches = ([ImportFinished(DONE)],)
        script.holds = False
        await pilot.press("s")
        await until(pilot, lambda: not state_of(made).running)
        await pilot.press("enter")
        await until(pilot, lambda: "pictures/59␛[2J.jpg" in status_text(made))
        assert "\x1b" not in status_text(made)


async def test_an_import_may_end_while_the_screen_is_removed(
    stage: Make,
) -> None:
    made = stage()
    async with made.app.run_test(size=(80, 24)) as pilot:
        await pilot.press("f9")
        screen = made.app.screen
        assert isinstance(screen, ImportScreen)
        await screen.remove_children()
        screen.redraw()

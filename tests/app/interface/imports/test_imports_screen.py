"""Imports are listed, and a deleted import leaves no trace in any file."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pytest
from textual.containers import Vertical
from textual.pilot import Pilot
from textual.widgets import Input, OptionList, Static

from app.importing.session import read_imports, record_imports
from app.indexing.corpus_index import forget_removed_texts, open_index
from app.interface.dialogs.basic import Confirm, InputDialog
from app.interface.imports.import_screen import ImportScreen
from app.interface.imports.imports_screen import AT_ONCE, BUSY, ImportsScreen
from datastores.chats.history import History
from datastores.chats.records import ASSISTANT, PROGRAMS
from datastores.errors import StoreError
from datastores.library.documents import NOTES, Document, FinishFile, Part, StoreDocument
from datastores.library.library import Library
from tests.app.characters import BUDGET, SENTENCE, Characters
from tests.app.interface.conftest import Make, Stage, notices, ready, until
from tests.app.interface.imports.scripted import READ, ScriptedImport
from tests.datastores.chats.test_deletion import holding

Scripting = Callable[..., ScriptedImport]


def _import(made: Stage, path: str, *texts: str) -> None:
    with closing(Library.open(made.locations.library)) as library:
        for number, text in enumerate(texts):
            document = Document("t", (Part(NOTES, text),))
            library.write(
                [
                    StoreDocument(path, str(number), 0, document),
                    FinishFile(path, str(number), "d", 1),
                ]
            )
    record_imports(made.locations.imported, [path], whole=True)


def _lines(made: Stage) -> list[str]:
    list_imports = made.app.screen.query_one(OptionList)
    return [str(option.prompt) for option in list_imports.options]


async def _list(pilot: Pilot[None], made: Stage, count: int) -> None:
    await ready(pilot, made)
    await pilot.press("f9", "f9")
    await until(pilot, lambda: isinstance(made.app.screen, ImportsScreen))
    await until(pilot, lambda: made.app.screen.query_one(OptionList).option_count == count)


async def test_answers_to_programs_are_counted(stage: Make) -> None:
    made = stage()
    _import(made, "/a", "x" * 400)
    with closing(History.open(made.locations.history)) as history:
        chat = history.create_chat(origin=PROGRAMS).id
        history.add_message(chat, None, ASSISTANT, "an answer")
    async with made.app.run_test(size=(80, 24)) as pilot:
        await _list(pilot, made, 1)
        title = made.app.screen.query_one(Vertical).border_title
        assert title == "Imported files, and 1 answer to programs (specchat forget --programs)"


async def test_imports_are_listed_with_what_is_in_them(stage: Make) -> None:
    made = stage()
    _import(made, "/a", "x" * 400, "y" * 40)
    with open_index(made.locations, Characters(), BUDGET) as projection:
        list(projection.run())
    _import(made, "/b\x1b[2J", "z" * 80)
    async with made.app.run_test(size=(80, 24)) as pilot:
        await _list(pilot, made, 2)
        first, second = _lines(made)
        assert first.startswith("a  /a ")
        assert "2 documents · about 110 tokens · notes" in first
        assert "/b␛[2J" in second


async def test_an_import_is_renamed_to_a_name_of_its_own(stage: Make) -> None:
    made = stage()
    _import(made, "/home/notes", "abc")
    _import(made, "/work/notes", "def")
    async with made.app.run_test(size=(80, 24)) as pilot:
        await _list(pilot, made, 2)
        await pilot.press("down", "n")
        await until(pilot, lambda: isinstance(made.app.screen, InputDialog))
        await pilot.press(*"2", "enter")
        await until(pilot, lambda: _lines(made)[1].startswith("work/notes2  /work/notes "))
        await pilot.press("n")
        await until(pilot, lambda: isinstance(made.app.screen, InputDialog))
        made.app.screen.query_one(Input).value = "Notes"
        await pilot.press("enter")
        await until(pilot, lambda: notices(made) != [])
        assert notices(made) == ["'Notes' is the name of /home/notes: choose another one"]
        assert _lines(made)[1].startswith("work/notes2 ")


def test_tokens_are_exact_where_the_text_is_tokenized(stage: Make) -> None:
    from app.importing.session import list_imports
    from app.indexing.corpus_index import token_counts

    made = stage()
    _import(made, "/a", "x" * 400, "y" * 40)
    with open_index(made.locations, Characters(), BUDGET) as projection:
        list(projection.run())
    _import(made, "/b", "y" * 40)
    _import(made, "/c", "new")
    imports = list_imports(made.locations, token_counts(made.locations, "characters"))
    found = {one.stored.path: one for one in imports}
    assert [(one.tokens, one.counted) for one in found.values()] == [
        (440, True),
        (40, True),
        (0, False),
    ]
    assert all(one.whole and one.record for one in found.values())


async def test_an_import_is_deleted_everywhere_and_the_others_stay(stage: Make) -> None:
    made = stage()
    _import(made, "/gone/notes", *(f"{SENTENCE} {number}" for number in range(30)))
    _import(made, "/kept", "abc" * 20)
    with open_index(made.locations, Characters(), BUDGET) as projection:
        list(projection.run())
    async with made.app.run_test(size=(80, 24)) as pilot:
        await _list(pilot, made, 2)
        await pilot.press("delete")
        await until(pilot, lambda: isinstance(made.app.screen, Confirm))
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(made.app.screen, ImportsScreen))
        assert not notices(made)
        await pilot.press("delete", "y")
        await until(pilot, lambda: notices(made) == ["Removed /gone/notes"])
        await until(pilot, lambda: len(_lines(made)) == 1)
        assert holding(made.locations.data, "/gone/notes", SENTENCE) == []
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(made.app.screen, ImportScreen))
        status = str(made.app.screen.query_one(".-state", Static).content)
        assert status == "Removed /gone/notes. It is no longer used for drafts or answers."
    assert list(read_imports(made.locations.imported)) == ["/kept"]


async def test_a_store_error_is_shown_and_the_list_is_refreshed(
    stage: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise StoreError("crest.db: another window is reading it")

    monkeypatch.setattr("app.interface.imports.tasks._delete_import", fail)
    made = stage()
    _import(made, "/a", "abc")
    async with made.app.run_test(size=(80, 24)) as pilot:
        await _list(pilot, made, 1)
        await pilot.press("delete", "y")
        await until(pilot, lambda: notices(made) == ["crest.db: another window is reading it"])
        await until(pilot, lambda: "removing" not in _lines(made)[0])


async def test_one_import_or_deletion_at_a_time(stage: Make, scripted: Scripting) -> None:
    scripted([READ], holds=True)
    made = stage()
    _import(made, "/a", "abc")
    async with made.app.run_test(size=(80, 24)) as pilot:
        await _list(pilot, made, 1)
        made.app.chat_screen.deletion_task.path = "/b"
        await pilot.press("delete")
        assert notices(made) == [AT_ONCE]
        made.app.chat_screen.deletion_task.path = ""
        made.app.chat_screen.import_task.begin("/notes")
        await pilot.press("delete")
        assert notices(made) == [AT_ONCE, BUSY]


async def test_enter_puts_the_path_into_the_import_screen(stage: Make) -> None:
    made = stage()
    _import(made, "/some notes", "abc")
    async with made.app.run_test(size=(80, 24)) as pilot:
        await _list(pilot, made, 1)
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(made.app.screen, ImportScreen))
        assert made.app.screen.query_one(Input).value == "/some notes"
        await pilot.press("escape")
        await made.app.chat_screen.run_action("command('texts.list')")
        await until(pilot, lambda: isinstance(made.app.screen, ImportsScreen))
        await until(pilot, lambda: made.app.screen.query_one(OptionList).option_count == 1)
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(made.app.screen, ImportScreen))
        assert made.app.screen.query_one(Input).value == "/some notes"


async def test_an_empty_list_leads_to_the_import_screen(stage: Make) -> None:
    made = stage()
    async with made.app.run_test(size=(80, 24)) as pilot:
        await ready(pilot, made)
        await made.app.chat_screen.run_action("command('texts.list')")
        await until(pilot, lambda: isinstance(made.app.screen, ImportsScreen))
        await pilot.press("f9")
        await until(pilot, lambda: isinstance(made.app.screen, ImportScreen))


def test_deleting_waits_for_a_running_indexer(stage: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    made = stage()
    _import(made, "/a", "abc" * 20)
    monkeypatch.setattr("app.indexing.corpus_index.LOCK_TIMEOUT_S", 0.0)
    with open_index(made.locations, Characters(), BUDGET) as projection:
        list(projection.run())
        assert projection.lock.acquire()
        with pytest.raises(StoreError, match="in use by another specchat"):
            forget_removed_texts(made.locations, BUDGET)
        projection.lock.release()
    forget_removed_texts(made.locations, BUDGET)

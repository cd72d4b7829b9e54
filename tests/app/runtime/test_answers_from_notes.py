"""Answers from notes teach like any others, and go with their chat and with every document."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from app.conversation.assistant import Assistant
from app.conversation.events import Event, Retrieved, Wrote
from app.conversation.imported_texts import ImportedTexts
from app.conversation.privacy import CHAT_PREFIX, owner_of_answer
from app.engine.answerability import Answerability
from app.engine.draft_model_versions import replay_path
from app.engine.draft_resources import make_observers, open_dense, open_replay
from app.engine.drafters import make_drafters
from app.engine.engine import Engine
from app.indexing.passage_index import update
from app.locations import Locations
from app.runtime import deletion
from app.runtime.deletion import (
    delete_chat,
    erase_deleted,
    forget_files,
    forget_import,
    make_private,
)
from app.runtime.idle_encoding import encode_when_idle
from datastores.chats.history import History
from datastores.dense.index import DenseIndex
from datastores.dense.store import DenseStore
from datastores.library.documents import NOTES, Document, FinishFile, Part, StoreDocument
from datastores.library.library import Library
from datastores.replay_buffer.record import ReplayRecord
from datastores.replay_buffer.store import ReplayBuffer
from engines.answerability import write_classifier
from tests.app.scripted import ScriptedVocabulary, drafted, scripted_engine
from tests.app.scripted_states import ScriptedModel, classifier
from tests.engines.scripted import VOCABULARY, WIDTH

WALRUS = "The walrus keeps seventeen brass telescopes in the attic."
GIRAFFE = "A giraffe sells purple umbrellas at the harbour."
ABOUT_WALRUS = "How many telescopes does the walrus keep?"
ABOUT_GIRAFFE = "Where does the giraffe sell umbrellas?"


def put(library: Library, import_path: str, name: str, text: str) -> None:
    document = Document(name, (Part(NOTES, text),))
    library.write([StoreDocument(import_path, name, 0, document)])


@pytest.fixture
def imports(locations: Locations) -> Iterator[ImportedTexts]:
    with closing(ImportedTexts.open(locations)) as opened:
        put(opened._library, "/notes", "walrus.md", WALRUS)
        put(opened._library, "/notes", "giraffe.md", GIRAFFE)
        list(update(opened._library, opened._passages))
        yield opened


@pytest.fixture
def engine(locations: Locations, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """An engine that drafts from the dense index alone, and records into both stores."""
    monkeypatch.setattr("datastores.dense.index.SAMPLE", 16)
    made = scripted_engine(locations.data, draft_tokens=8, context_length=1024)
    open_dense(made.resources, locations, made.target)
    made.resources.replay = open_replay(locations, made.target)
    made.learns = True
    made.drafters = make_drafters(["dense"], made.resources)
    made.observers.extend(make_observers(made.resources))
    yield made
    made.resources.close()
    assert made.errors == []


def ask(
    engine: Engine, history: History, imports: ImportedTexts, question: str, private: bool = False
) -> tuple[int, list[Event]]:
    """The chat that was asked, and the events of its answer, which is recorded by now."""
    chat = history.create_chat(private=private, docs="once").id
    events = list(Assistant(engine, history, imports).answer(chat, None, question))
    assert any(isinstance(event, Retrieved) for event in events)
    flush(engine)
    return chat, events


def flush(engine: Engine) -> None:
    assert engine.resources.dense is not None
    assert engine.resources.replay is not None
    engine.resources.dense.ask(DenseIndex.flush)
    engine.resources.replay.flush()


def tokens(events: list[Event]) -> list[int]:
    return [token for event in events if isinstance(event, Wrote) for token in event.step.tokens]


def steps(events: list[Event]) -> int:
    return sum(isinstance(event, Wrote) for event in events)


def records(locations: Locations, engine: Engine) -> list[ReplayRecord]:
    path = replay_path(locations, engine.target.fingerprint)
    with closing(ReplayBuffer.open(path, engine.target.fingerprint, VOCABULARY)) as buffer:
        return list(buffer.records())


def dense_owners(locations: Locations, engine: Engine) -> set[str]:
    path = locations.states / f"{engine.target.fingerprint}.db"
    with closing(DenseStore.open(path, engine.target.fingerprint, WIDTH)) as store:
        return store.owners("")


def holding(locations: Locations, text: str) -> set[str]:
    """The folders with files that hold the tokens of `text`."""
    return holding_tokens(locations, ScriptedVocabulary().encode(text))


def holding_tokens(locations: Locations, wanted: Sequence[int]) -> set[str]:
    """The folders with files that hold the tokens `wanted`."""
    ids = np.array(wanted, "<i4").tobytes()
    return {
        folder.name
        for folder in (locations.states, locations.replay)
        for file in folder.rglob("*")
        if file.is_file() and ids in file.read_bytes()
    }


def test_the_same_question_in_other_words_accepts_more(
    history: History, locations: Locations, engine: Engine, imports: ImportedTexts
) -> None:
    chat, first = ask(engine, history, imports, ABOUT_WALRUS)
    assert engine.resources.dense is not None
    status = engine.resources.dense.ask(DenseIndex.status)
    assert status.positions == len(tokens(first)), "its answer has keys, its prompt has none"
    assert status.keys == status.positions
    (record,) = records(locations, engine)
    assert record.chat == chat
    assert record.tokens[record.prompt_length :].tolist() == tokens(first)
    _, again = ask(engine, history, imports, "Telescopes of the walrus: what is their number?")
    assert len(tokens(again)) / steps(again) > 1.5 * len(tokens(first)) / steps(first)


def test_an_answer_whose_passages_were_rejected_is_its_chats_alone(
    history: History,
    locations: Locations,
    engine: Engine,
    imports: ImportedTexts,
) -> None:
    model = checking(engine, locations)
    model.tells = lambda text: False
    chat, events = ask(engine, history, imports, ABOUT_WALRUS)
    assert model.texts
    owner = owner_of_answer(history.name, chat, ())
    assert dense_owners(locations, engine) == {owner}
    forget_import(imports._library, history, locations, "/notes", engine)
    (record,) = records(locations, engine)
    assert record.tokens[record.prompt_length :].tolist() == tokens(events)


def checking(engine: Engine, locations: Locations) -> ScriptedModel:
    """The model by whose states `engine` checks passages; they all state the answer at first."""
    model = ScriptedModel()
    engine.answerability = Answerability(
        model, locations.answerability, engine.resources.errors.append
    )
    locations.answerability.mkdir()
    write_classifier(engine.answerability.path, classifier())
    return model


def stopped(engine: Engine, assistant: Assistant, events: Iterator[Event]) -> list[int]:
    """The tokens of an answer that is stopped after two passes, and recorded."""
    seen = list[Event]()
    for event in events:
        seen.append(event)
        if steps(seen) == 2:
            assistant.stop()
    flush(engine)
    return tokens(seen)


@pytest.mark.parametrize("later", ["rejected", "off"])
def test_a_resumed_answer_still_belongs_to_the_documents_that_it_began_with(
    history: History,
    locations: Locations,
    engine: Engine,
    imports: ImportedTexts,
    later: str,
) -> None:
    model, chat = checking(engine, locations), history.create_chat(docs="once").id
    assistant = Assistant(engine, history, imports)
    written = [stopped(engine, assistant, assistant.answer(chat, None, ABOUT_WALRUS))]
    if later == "off":
        history.set_docs(chat, "off")
    else:
        model.tells = lambda text: False
    for _ in range(2):
        _, answer = history.thread(chat)
        written.append(stopped(engine, assistant, assistant.resume(answer.id)))
    for part in written:
        assert len(part) > 1
        assert holding_tokens(locations, part) == {"states", "replay"}
    forget_import(imports._library, history, locations, "/notes", engine)
    flush(engine)
    for part in written:
        assert holding_tokens(locations, part) == set()
    assert records(locations, engine) == []
    assert dense_owners(locations, engine) == set()
    assert drafted(engine) == 0


@pytest.mark.parametrize("private", [False, True])
def test_private_chats_leave_no_record(
    history: History, locations: Locations, engine: Engine, imports: ImportedTexts, private: bool
) -> None:
    ask(engine, history, imports, ABOUT_WALRUS, private)
    assert bool(holding(locations, WALRUS)) is not private
    assert len(records(locations, engine)) == (not private)


def test_idle_work_encodes_neither_again(
    history: History, locations: Locations, engine: Engine, imports: ImportedTexts
) -> None:
    ask(engine, history, imports, ABOUT_WALRUS)
    before = dense_owners(locations, engine)
    for _ in range(2):
        list(encode_when_idle(engine, locations, history, texts=True))
    assert dense_owners(locations, engine) == before
    put(imports._library, "/notes", "walrus.md", "The walrus moved.")
    (locations.projections / engine.vocabulary.fingerprint).mkdir(parents=True)
    (locations.projections / engine.vocabulary.fingerprint / "tokens.db").touch()
    list(encode_when_idle(engine, locations, history, texts=True))
    assert dense_owners(locations, engine) == set(), "the document it shared was changed"


Erase = Callable[[Library, History, Locations, int, Engine], object]


def _delete_chat(_: Library, history: History, place: Locations, chat: int, loaded: Engine) -> None:
    delete_chat(history, place, chat, loaded)


def _hide_chat(_: Library, history: History, place: Locations, chat: int, loaded: Engine) -> None:
    make_private(history, place, chat, loaded)


def _forget_import(
    library: Library, history: History, place: Locations, _: int, loaded: Engine
) -> None:
    forget_import(library, history, place, "/walrus", loaded)


def _forget_file(
    library: Library, history: History, place: Locations, _: int, loaded: Engine
) -> None:
    forget_files(library, history, place, "/walrus", ["walrus.md"], loaded)


def _change_file(library: Library, history: History, place: Locations, *_: object) -> None:
    document = Document("walrus.md", (Part(NOTES, "The walrus moved."),))
    library.write(
        [
            StoreDocument("/walrus", "walrus.md", 0, document),
            FinishFile("/walrus", "walrus.md", "digest", 1),
        ]
    )
    erase_deleted(history, place)


@pytest.mark.parametrize(
    "erase", [_delete_chat, _hide_chat, _forget_import, _forget_file, _change_file]
)
def test_an_answer_is_erased_with_each_of_its_owners(
    history: History,
    locations: Locations,
    engine: Engine,
    imports: ImportedTexts,
    erase: Erase,
) -> None:
    library = imports._library
    library.forget("/notes")
    put(library, "/walrus", "walrus.md", WALRUS)
    put(library, "/giraffe", "giraffe.md", GIRAFFE)
    chat, _ = ask(engine, history, imports, ABOUT_WALRUS)
    ask(engine, history, imports, ABOUT_GIRAFFE)
    assert holding(locations, WALRUS) == {"states", "replay"}
    erase(library, history, locations, chat, engine)
    flush(engine)
    assert holding(locations, WALRUS) == set()
    assert holding(locations, GIRAFFE) == {"states", "replay"}
    assert len(records(locations, engine)) == len(dense_owners(locations, engine)) == 1


def test_an_answer_stays_while_another_import_holds_its_document(
    history: History, locations: Locations, engine: Engine, imports: ImportedTexts
) -> None:
    put(imports._library, "/copies", "walrus.md", WALRUS)
    ask(engine, history, imports, ABOUT_WALRUS)
    forget_import(imports._library, history, locations, "/notes", engine)
    assert holding(locations, WALRUS) == {"states", "replay"}
    forget_import(imports._library, history, locations, "/copies", engine)
    assert holding(locations, WALRUS) == set()


def test_an_import_forgotten_while_its_passage_is_read_leaves_no_record(
    history: History, locations: Locations, engine: Engine, imports: ImportedTexts
) -> None:
    chat = history.create_chat().id
    events = Assistant(engine, history, imports).answer(chat, None, ABOUT_WALRUS)
    assert isinstance(next(events), Retrieved)
    forget_import(imports._library, history, locations, "/notes", engine)
    list(events)
    flush(engine)
    assert holding(locations, WALRUS) == set()
    assert records(locations, engine) == []


CHILD = """
import os, sys
from contextlib import closing
from pathlib import Path
from app.locations import locate
from app.runtime import deletion
from datastores.chats.history import History
from datastores.library.library import Library

locations, at = locate(Path(sys.argv[1])), int(sys.argv[2])
deletion.ERASERS[at] = lambda *_: os._exit(9)
with (
    closing(Library.open(locations.library)) as library,
    closing(History.open(locations.history)) as history,
):
    deletion.forget_import(library, history, locations, "/notes")
"""


@pytest.mark.parametrize("at", range(len(deletion.ERASERS)))
def test_the_next_start_erases_what_a_killed_process_left(
    history: History, locations: Locations, engine: Engine, imports: ImportedTexts, at: int
) -> None:
    chat, _ = ask(engine, history, imports, ABOUT_WALRUS)
    [text] = [key for key in imports.texts() if imports._library.read(key)[0].text == WALRUS]
    owner = owner_of_answer(history.name, chat, [text])
    assert dense_owners(locations, engine) == {owner}
    assert owner.startswith(CHAT_PREFIX)
    engine.resources.close()
    root = Path(__file__).parents[3]
    command = [sys.executable, "-c", CHILD, str(locations.data), str(at)]
    assert subprocess.run(command, cwd=root, env={**os.environ}).returncode == 9
    erase_deleted(history, locations)
    imports._library.erase()
    assert holding(locations, WALRUS) == set()
    assert WALRUS.encode() not in locations.library.read_bytes()

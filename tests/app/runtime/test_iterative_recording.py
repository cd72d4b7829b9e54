"""Iterative answers are recorded for drafting: confirmed steps alone, erased with every owner."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from zlib import crc32

import pytest

from app.conversation.assistant import Assistant
from app.conversation.events import Retrieved, Speculated, Wrote
from app.conversation.imported_texts import ImportedTexts
from app.conversation.privacy import owner_of_chat, owner_of_text
from app.engine.engine import Engine, PassageForm
from app.indexing.passage_index import update
from app.locations import Locations
from app.runtime.deletion import delete_chat, erase_deleted, forget_files, forget_import
from app.runtime.idle_encoding import encode_when_idle
from datastores.chats.history import History
from datastores.dense.store import DenseStore
from datastores.library.documents import NOTES, Document, FinishFile, Part, StoreDocument
from datastores.library.library import Library
from datastores.owners import each
from datastores.passages.chunks import Passage
from engines.ralm.knowledge_base import Query
from engines.ralm.scheduler import FixedStride
from engines.retrieval.protocol import ScoredPassage
from tests.app.runtime.test_answers_from_notes import (
    dense_owners,
    engine,
    flush,
    holding,
    put,
    tokens,
)
from tests.engines.scripted import WIDTH

__all__ = ["engine"]
QUESTION = "How many telescopes does the walrus keep?"
PAGES = {
    "walrus.md": "The walrus keeps seventeen brass telescopes in the attic.",
    "giraffe.md": "A giraffe sells umbrellas to a walrus.",
    "letters.md": " ".join("abcdefghijklmnopqrstuvwxyz"),
}


@pytest.fixture
def imports(locations: Locations) -> Iterator[ImportedTexts]:
    (locations.settings).write_text('embedding = "off"')
    with closing(ImportedTexts.open(locations)) as opened:
        for name, text in PAGES.items():
            put(opened._library, f"/{name}", name, text)
        list(update(opened._library, opened._passages))
        yield opened


class ChangingBase:
    """A `KnowledgeBase` whose best passage is another one for every other query."""

    def __init__(self, passages: Sequence[Passage]) -> None:
        self._passages = sorted(passages, key=lambda one: one.id)

    def encode(self, text: str, current: Passage | None) -> Query:
        return Query(text)

    def search(self, queries: Sequence[Query], limit: int) -> list[list[ScoredPassage]]:
        found = list[list[ScoredPassage]]()
        for query in queries:
            scored = map(ScoredPassage, self._passages, self.score(query, self._passages))
            found.append(sorted(scored, key=lambda one: -one.score)[:limit])
        return found

    def score(self, query: Query, passages: Sequence[Passage]) -> list[float]:
        best = self._passages[crc32(query.text.encode()) % len(self._passages)]
        return [1.0 + (one == best) + one.id / 2**64 for one in passages]


@pytest.fixture(autouse=True)
def guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passages are guessed three times ahead, often wrongly, and change often."""
    monkeypatch.setattr("app.conversation.iterative.PREFETCH", 1)
    monkeypatch.setattr(ImportedTexts, "stride_scheduler", lambda self, paths: FixedStride(3))
    monkeypatch.setattr(
        ImportedTexts,
        "knowledge_base",
        lambda self, paths: ChangingBase(self._passages.of_texts(self.texts())),
    )


class Answered:
    """An iterative answer.

    Attributes:
        chat: its chat.
        read: names of the files whose passages it was given, in order.
        written: its tokens.
        steps: number of steps that wrote them.
        rollbacks: mispredictions while it was written.
    """

    def __init__(
        self, engine: Engine, history: History, imports: ImportedTexts, question: str = QUESTION
    ) -> None:
        engine = replace(engine, passage_form=PassageForm(instructed=False))
        self.chat = history.create_chat(docs="iterative").id
        assistant = Assistant(engine, history, imports)
        events = list(assistant.answer(self.chat, None, question))
        flush(engine)
        *_, found = (event.passages for event in events if isinstance(event, Retrieved))
        *_, figures = (event.figures for event in events if isinstance(event, Speculated))
        self.steps = sum(isinstance(event, Wrote) for event in events)
        self.read = [one.file for one in found]
        self.written, self.rollbacks = tokens(events), figures.rollbacks


def texts(locations: Locations, engine: Engine) -> list[tuple[str, list[int]]]:
    """The owner of each recorded text, and its tokens that have keys."""
    path = locations.states / f"{engine.target.fingerprint}.db"
    with closing(DenseStore.open(path, engine.target.fingerprint, WIDTH)) as store:
        rows = store.store.rows("SELECT id, source, first, length, keys FROM documents ORDER BY id")
        assert all(row["keys"] == row["length"] - row["first"] for row in rows)
        return [(row["source"], list(store.tokens(row["id"])[row["first"] :])) for row in rows]


def test_what_was_confirmed_is_recorded_with_the_documents_that_it_was_given(
    history: History, locations: Locations, engine: Engine, imports: ImportedTexts
) -> None:
    answered = Answered(engine, history, imports)
    assert answered.rollbacks, "steps that must not be recorded"
    recorded = texts(locations, engine)
    assert [token for _, text in recorded for token in text] == answered.written
    digests = {imports._library.texts_in(f"/{name}", name)[0]: name for name in PAGES}
    names = {owner_of_text(key): name for key, name in digests.items()}
    owners = [each(owner) for owner, _ in recorded]
    assert {owner[0] for owner in owners} == {owner_of_chat(history.name, answered.chat)}
    given = [{names[one] for one in owner[1:]} for owner in owners]
    assert all(before <= after for before, after in pairwise(given))
    assert given[0] == {answered.read[0]}
    assert given[-1] == set(answered.read) > given[0]


def test_a_resumed_answer_belongs_to_the_documents_that_it_began_with(
    history: History, locations: Locations, engine: Engine, imports: ImportedTexts
) -> None:
    form, chat = PassageForm(instructed=False), history.create_chat(docs="iterative").id
    assistant = Assistant(replace(engine, passage_form=form), history, imports)
    for event in assistant.answer(chat, None, QUESTION):
        if isinstance(event, Wrote):
            assistant.stop()
    flush(engine)
    (begun,) = (set(each(owner)) for owner in dense_owners(locations, engine))
    names = [name for name in PAGES if text_owner(imports, name) in begun]
    assert len(names) == 1
    _, answer = history.thread(chat)
    list(assistant.resume(answer.id))
    flush(engine)
    owners = dense_owners(locations, engine)
    assert len(owners) > 1, "it went on with other passages"
    assert all(begun < set(each(owner)) for owner in owners if set(each(owner)) != begun)
    forget_import(imports._library, history, locations, f"/{names[0]}", engine)
    assert dense_owners(locations, engine) == set()


def text_owner(imports: ImportedTexts, name: str) -> str:
    (key,) = imports._library.texts_in(f"/{name}", name)
    return owner_of_text(key)


def test_the_same_question_in_other_words_accepts_more(
    history: History, engine: Engine, imports: ImportedTexts
) -> None:
    first = Answered(engine, history, imports)
    again = Answered(engine, history, imports, "Telescopes of the walrus: what is their number?")
    speeds = [len(one.written) / one.steps for one in (first, again)]
    assert speeds[1] > 1.3 * speeds[0], speeds


def test_idle_work_does_not_encode_it_again(
    history: History, locations: Locations, engine: Engine, imports: ImportedTexts
) -> None:
    Answered(engine, history, imports)
    before = texts(locations, engine)
    list(encode_when_idle(engine, locations, history, texts=True))
    assert texts(locations, engine) == before


@pytest.mark.parametrize("name", ["chat", "import", "file", "change"])
def test_it_is_erased_with_each_of_its_owners(
    history: History, locations: Locations, engine: Engine, imports: ImportedTexts, name: str
) -> None:
    answered, library = Answered(engine, history, imports), imports._library
    first, last = answered.read[0], answered.read[-1]
    assert holding(locations, PAGES[first]) == holding(locations, PAGES[last]) == {"states"}
    before = texts(locations, engine)
    if name == "chat":
        delete_chat(history, locations, answered.chat, engine)
    elif name == "import":
        forget_import(library, history, locations, f"/{last}", engine)
    elif name == "file":
        forget_files(library, history, locations, f"/{last}", [last], engine)
    else:
        change(library, last)
        erase_deleted(history, locations)
    flush(engine)
    left = texts(locations, engine)
    assert holding(locations, PAGES[last]) == set()
    if name == "chat":
        assert left == []
    else:
        assert left == [one for one in before if one in left] != []
        assert bool(holding(locations, PAGES[first]))


def change(library: Library, name: str) -> None:
    document = Document(name, (Part(NOTES, "It moved."),))
    finished = FinishFile(f"/{name}", name, "digest", 1)
    library.write([StoreDocument(f"/{name}", name, 0, document), finished])


def test_a_document_forgotten_meanwhile_leaves_nothing_of_the_answer(
    history: History, locations: Locations, engine: Engine, imports: ImportedTexts
) -> None:
    chat = history.create_chat(docs="iterative").id
    events = Assistant(engine, history, imports).answer(chat, None, QUESTION)
    read = list[str]()
    for event in events:
        if isinstance(event, Retrieved):
            read = [one.file for one in event.passages]
        elif isinstance(event, Wrote) and len(read) > 1:
            break
    forget_import(imports._library, history, locations, f"/{read[0]}", engine)
    list(events)
    flush(engine)
    assert holding(locations, PAGES[read[0]]) == set()
    assert dense_owners(locations, engine) == set()


def test_a_private_chat_and_a_secret_leave_nothing(
    history: History, locations: Locations, engine: Engine, imports: ImportedTexts
) -> None:
    private = history.create_chat(docs="iterative", private=True).id
    list(Assistant(engine, history, imports).answer(private, None, QUESTION))
    secret = history.create_chat(docs="iterative").id
    question = f"{QUESTION} My key is sk-{'a1B2' * 12}."
    list(Assistant(engine, history, imports).answer(secret, None, question))
    flush(engine)
    assert dense_owners(locations, engine) == set()

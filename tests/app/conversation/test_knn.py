"""Answers in the words of the imports: labelled, undone at once by forgetting, never by drafts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

import app.conversation.knn
from app.conversation.assistant import Assistant
from app.conversation.citations import (
    DELETED_CHAT,
    CitedText,
    own_titles,
    read_cited,
    stored_citations,
    titled,
)
from app.conversation.events import Event, Finished, Interpolated, Retrieved, Wrote
from app.conversation.imported_texts import ImportedTexts
from app.conversation.privacy import owner_of_chat, owner_of_text
from app.conversation.statistics import STATES_KEY
from app.engine.draft_resources import open_dense
from app.engine.engine import Engine
from app.indexing.passage_index import update
from app.locations import Locations
from app.runtime.deletion import delete_chat
from datastores.chats.history import History
from datastores.dense.index import DenseIndex
from datastores.library.documents import NOTES, Document, Part, StoreDocument
from engines.ralm.knn_lm import Interpolation
from engines.sampler import Sampling
from engines.state_encoding import encode_backlog
from tests.app.conversation.test_iterative import tokens
from tests.app.scripted import ScriptedVocabulary, scripted_engine

pytestmark = pytest.mark.usefixtures("small_sample", "heavy_neighbours")
QUESTION = "How many telescopes does the walrus keep?"
NOTE = "The walrus keeps seventeen brass telescopes in the attic. " * 8
OWN = "The seal collects forty horns of brass under the pier. " * 8
GREEDY = Sampling(0.0)


@pytest.fixture
def heavy_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neighbours weigh enough to change the peaked distribution of the scripted model."""
    monkeypatch.setattr(app.conversation.knn, "INTERPOLATION", Interpolation(0.99, 0.5, 64))


@pytest.fixture
def imports(tmp_path: Path) -> Iterator[ImportedTexts]:
    locations = Locations(data=tmp_path, cache=tmp_path / "cache", config=tmp_path)
    with closing(ImportedTexts.open(locations)) as opened:
        for folder in ("/notes", "/letters"):
            document = Document("walrus.md", (Part(NOTES, f"{folder} {NOTE}"),))
            opened._library.write([StoreDocument(folder, "walrus.md", 0, document)])
        yield opened


def read_imports(engine: Engine, imports: ImportedTexts) -> None:
    """Encode the imported texts, as idle work does."""
    open_dense(engine.resources, imports.locations, engine.target)
    worker = engine.resources.dense
    assert worker is not None
    for key in imports.texts():
        read = engine.vocabulary.encode(NOTE)
        owner = owner_of_text(key)
        worker.ask(partial(DenseIndex.add_text, owner=owner, tokens=read))
    list(encode_backlog(engine.target, worker))


@pytest.fixture
def engine(tmp_path: Path, imports: ImportedTexts) -> Iterator[Engine]:
    made = scripted_engine(tmp_path, sampling=GREEDY)
    read_imports(made, imports)
    yield made
    made.resources.close()


def answer(
    engine: Engine, history: History, imports: ImportedTexts, docs: str, import_path: str = ""
) -> list[Event]:
    chat = history.create_chat()
    assistant = Assistant(engine, history, imports, docs=f"{docs} {import_path}")
    return list(assistant.answer(chat.id, None, QUESTION))


def test_neighbours_word_the_answer_which_says_so(
    engine: Engine, history: History, imports: ImportedTexts
) -> None:
    plain = answer(engine, history, imports, "off")
    worded = answer(engine, history, imports, "knn")
    assert tokens(worded) != tokens(plain)
    assert not any(isinstance(event, Retrieved) for event in worded)
    first, *_, figures, end = worded
    states = 2 * (len(engine.vocabulary.encode(NOTE)) - 1)
    assert first == Interpolated(states)
    assert isinstance(figures, Interpolated)
    assert figures.figures is not None
    assert figures.figures.strides == len(tokens(worded)) > 0
    assert isinstance(end, Finished)
    assert end.statistics.tokens == len(tokens(worded))
    assert history.thread(history.last_chat().id)[-1].statistics[STATES_KEY] == states


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_putting_searches_off_and_drafting_change_nothing(
    tmp_path: Path,
    history: History,
    imports: ImportedTexts,
    monkeypatch: pytest.MonkeyPatch,
    temperature: float,
) -> None:
    texts: list[list[int]] = []
    for threshold, drafters in ((0, ("prompt", "recycle")), (0, ()), (10**9, ("prompt",))):
        monkeypatch.setattr(app.conversation.knn, "MIN_SPECULATED", threshold)
        sampling = Sampling(temperature, seed=4)
        engine = scripted_engine(tmp_path, sampling=sampling, drafters=drafters)
        if not texts:
            read_imports(engine, imports)
        events = answer(engine, history, imports, "knn")
        texts.append(
            [token for event in events if isinstance(event, Wrote) for token in event.step.tokens]
        )
        engine.resources.close()
    assert texts[0] == texts[1] == texts[2]
    assert texts[0]


def test_only_the_chosen_import_counts_and_what_is_forgotten_does_not(
    engine: Engine, history: History, imports: ImportedTexts
) -> None:
    both = answer(engine, history, imports, "knn")[0]
    assert isinstance(both, Interpolated)
    one = answer(engine, history, imports, "knn", "/notes")[0]
    assert one == Interpolated(both.states // 2)
    imports._library.forget("/notes")
    assert answer(engine, history, imports, "knn")[0] == one
    assert answer(engine, history, imports, "knn", "/notes")[0] == Interpolated(0)


def own_chat(engine: Engine, history: History, title: str, *, private: bool = False) -> int:
    """A chat of the person's own that says `OWN`, and is encoded unless it is private."""
    chat = history.create_chat(title, private=private)
    history.add_message(chat.id, None, "user", "Hello")
    last = history.thread(chat.id)[-1].id
    history.add_message(chat.id, last, "assistant", shown(OWN))
    worker = engine.resources.dense
    assert worker is not None
    owner = owner_of_chat(history.name, chat.id)
    read = engine.vocabulary.encode(OWN)
    worker.ask(partial(DenseIndex.add_text, owner=owner, tokens=read))
    list(encode_backlog(engine.target, worker))
    return chat.id


def shown(words: str) -> str:
    """`words` as the scripted vocabulary shows their tokens."""
    vocabulary = ScriptedVocabulary()
    return "".join(map(vocabulary.text, vocabulary.encode(words)))


def states(engine: Engine, history: History, imports: ImportedTexts, docs: str = "knn") -> int:
    begun = answer(engine, history, imports, docs)[0]
    assert isinstance(begun, Interpolated)
    return begun.states


def test_own_chats_are_searched_unless_imports_are_chosen_or_they_are_private(
    engine: Engine, history: History, imports: ImportedTexts
) -> None:
    before, count = states(engine, history, imports), len(engine.vocabulary.encode(OWN)) - 1
    chat = own_chat(engine, history, "Seals")
    assert states(engine, history, imports) == before + count
    assert states(engine, history, imports, "knn /notes") == before // 2
    own_chat(engine, history, "Secret", private=True)
    history.set_private(chat, True)
    assert states(engine, history, imports) == before


def test_the_chat_itself_is_not_searched_or_its_answers_would_repeat(
    engine: Engine, history: History, imports: ImportedTexts
) -> None:
    before, chat = states(engine, history, imports), own_chat(engine, history, "Seals")
    assistant = Assistant(engine, history, imports, docs="knn")
    last = history.thread(chat)[-1].id
    assert next(assistant.answer(chat, last, QUESTION)) == Interpolated(before)
    assert next(assistant.regenerate(last)) == Interpolated(before)
    unsaved = Assistant(engine, history, imports, docs="knn")
    assert next(unsaved.answer_unsaved(last, QUESTION)) == Interpolated(before)


def test_an_answer_names_the_texts_that_its_words_came_from(
    engine: Engine, history: History, imports: ImportedTexts
) -> None:
    library = imports._library
    library.forget("/letters")
    content = f"# Other\n\n{'x' * 900}\n\n# Walrus\n\n{shown(NOTE)}"
    document = Document("sea.md", (Part(NOTES, "Nothing."), Part(NOTES, content)))
    library.write([StoreDocument("/sea", "sea.md", 0, document)])
    library.forget("/notes")
    list(update(library, imports._passages))
    read_imports(engine, imports)
    chat = own_chat(engine, history, "Seals")
    *_, figures, end = answer(engine, history, imports, "knn")
    assert isinstance(figures, Interpolated)
    assert isinstance(end, Finished)
    shares = [one.share for one in figures.sources]
    assert shares == sorted(shares, reverse=True)
    assert 0 < sum(shares) <= 1
    [imported] = [one for one in figures.sources if not one.owner]
    assert (imported.import_path, imported.file, imported.part) == ("/sea", "sea.md", 1)
    assert imported.first_line > 3, "the passage with the words, not the first"
    [own] = [one for one in figures.sources if one.owner]
    assert (own.owner, own.chat) == (owner_of_chat(history.name, chat), "Seals")
    assert own.message == history.thread(chat)[-1].id, "the answer, not the question"
    message = history.thread(history.last_chat().id)[-1]
    assert "Seals" not in str(message.statistics), "a title may be deleted"
    assert titled(stored_citations(message.statistics), own_titles(history, [message])) == [
        *figures.sources
    ]


def test_deleting_a_source_leaves_nothing_of_it(
    engine: Engine, history: History, imports: ImportedTexts, locations: Locations
) -> None:
    chat = own_chat(engine, history, "Seals")
    for path in ("/notes", "/letters"):
        imports._library.forget(path)
    *_, figures, _ = answer(engine, history, imports, "knn")
    assert isinstance(figures, Interpolated)
    assert [one.chat for one in figures.sources] == ["Seals"]
    [read] = read_cited(locations, figures.sources)
    assert read.own_chat == chat
    assert read.chunk is not None
    assert read.chunk.content == shown(OWN)
    message = history.thread(history.last_chat().id)[-1]
    delete_chat(history, locations, chat, engine)
    [left] = titled(stored_citations(message.statistics), own_titles(history, [message]))
    assert left.place.startswith(DELETED_CHAT)
    assert read_cited(locations, [left]) == [CitedText(None)]


def test_what_is_forgotten_during_an_answer_counts_no_more(
    engine: Engine, history: History, imports: ImportedTexts
) -> None:
    plain = answer(engine, history, imports, "off")
    chat = history.create_chat()
    events = Assistant(engine, history, imports, docs="knn").answer(chat.id, None, QUESTION)
    assert isinstance(next(events), Interpolated)
    for key in imports.texts():
        engine.resources.forget(owner_of_text(key))
    assert tokens(list(events)) == tokens(plain)


def test_without_encoded_imports_the_model_answers_and_says_so(
    tmp_path: Path, history: History, imports: ImportedTexts
) -> None:
    engine = scripted_engine(tmp_path, sampling=GREEDY)
    plain = answer(engine, history, imports, "off")
    worded = answer(engine, history, imports, "knn")
    assert worded[0] == Interpolated(0)
    assert tokens(worded) == tokens(plain)
    engine.resources.close()


def test_nothing_learns_from_borrowed_words(
    engine: Engine, history: History, imports: ImportedTexts
) -> None:
    costs = engine.costs.table(64)
    seen = list[object]()

    class Observer:
        def begin(self, context: object) -> None:
            seen.append(context)

        def observe(self, step: object) -> None:
            seen.append(step)

    engine.observers = [Observer()]
    answer(engine, history, imports, "knn")
    assert not seen
    assert engine.costs.table(64) == costs

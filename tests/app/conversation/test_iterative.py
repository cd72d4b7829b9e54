"""Iterative retrieval in a chat: the text of RaLMSeq, with events, citations and figures."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from threading import Event as Flag

import pytest

from app.chat_settings import AnswerEnd
from app.conversation import answer_request
from app.conversation.assistant import Assistant
from app.conversation.citations import CITATIONS_KEY, SearchOutcome
from app.conversation.events import Cited, Event, Finished, Retrieved, Speculated, Wrote
from app.conversation.generation import GenerationRequest
from app.conversation.imported_texts import ImportedTexts
from app.conversation.iterative import generate_iteratively, make_request
from app.conversation.statistics import Statistics
from app.engine.engine import Engine, PassageForm
from app.indexing.passage_index import Gate, find, update
from app.locations import Locations
from app.runtime.idle_encoding import embed_when_idle
from datastores.chats.history import History
from datastores.library.documents import NOTES, Document, Part, StoreDocument
from engines.chat_template.prompt_builder import Message
from engines.decode import StopCriteria
from engines.llama.embedding import EmbeddingModel
from engines.ralm.events import RalmStatistics
from engines.ralm.sequential import write_iteratively
from engines.ralm.stride_writer import StrideWriter
from engines.sampler import Sampling
from tests.app.scripted import scripted_engine
from tests.engines.tiny import TinyVocabulary, write_bert

QUESTION = "How many telescopes does the walrus keep?"
PAGES = {
    "walrus.md": "The walrus keeps seventeen brass telescopes in the attic.",
    "giraffe.md": "A giraffe sells umbrellas to a walrus.",
    "letters.md": " ".join("abcdefghijklmnopqrstuvwxyz"),
}
ANSWER = 60


def plain_engine(folder: Path) -> Engine:
    """Without the instruction, whose length would change what a scripted model writes."""
    return replace(scripted_engine(folder), passage_form=PassageForm(instructed=False))


@pytest.fixture(scope="module")
def embedder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An embedding model, with the list of probed files beside it."""
    path = write_bert(tmp_path_factory.mktemp("models") / "bert.gguf", TinyVocabulary())
    EmbeddingModel(path, probe_cache=path.with_name("models.json"), threads=1)
    return path


@pytest.fixture(params=["words", "vectors"])
def imports(
    tmp_path: Path, embedder: Path, request: pytest.FixtureRequest
) -> Iterator[ImportedTexts]:
    chosen = embedder if request.param == "vectors" else "off"
    (tmp_path / "cache").mkdir()
    shutil.copy(embedder.with_name("models.json"), tmp_path / "cache")
    (tmp_path / "config.toml").write_text(f'embedding = "{chosen}"')
    locations = Locations(data=tmp_path, cache=tmp_path / "cache", config=tmp_path)
    with closing(ImportedTexts.open(locations)) as opened:
        for name, text in PAGES.items():
            document = Document(name, (Part(NOTES, text),))
            opened._library.write([StoreDocument("/notes", name, 0, document)])
        index(opened)
        assert (opened._dense() is not None) == (request.param == "vectors")
        yield opened


def index(imports: ImportedTexts) -> None:
    list(update(imports._library, imports._passages))
    list(embed_when_idle(imports))


def generate(
    engine: Engine, imports: ImportedTexts, sampling: Sampling, stop: Flag | None = None
) -> Iterator[Event]:
    request = GenerationRequest([Message("user", QUESTION)], sampling, AnswerEnd(ANSWER))
    return generate_iteratively(engine, imports, request, Statistics(), stop or Flag())


def tokens(events: list[Event]) -> list[int]:
    return [token for event in events if isinstance(event, Wrote) for token in event.step.tokens]


def test_the_figures_count_the_time_since_the_question_was_asked(
    tmp_path: Path, imports: ImportedTexts
) -> None:
    request = GenerationRequest(
        [Message("user", QUESTION)], Sampling(0.0), AnswerEnd(ANSWER), waited_seconds=1e6
    )
    statistics = Statistics()
    list(generate_iteratively(plain_engine(tmp_path), imports, request, statistics, Flag()))
    assert 1e6 < statistics.first_token_seconds <= statistics.seconds


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_the_text_is_that_of_one_search_for_each_stride(
    tmp_path: Path, imports: ImportedTexts, temperature: float
) -> None:
    sampling = Sampling(temperature, seed=4)
    engine = plain_engine(tmp_path)
    events = list(generate(engine, imports, sampling))
    stop = StopCriteria(engine.vocabulary.stops, ANSWER)
    request = make_request(engine, [Message("user", QUESTION)], sampling, stop)
    writer = StrideWriter(engine.target, [], engine.budget, request)
    base, expected = imports.knowledge_base(), RalmStatistics()
    strides = list(write_iteratively(writer, base, request, expected))
    assert tokens(events) == [
        token for one in strides for step in one.steps for token in step.tokens
    ]
    figures = [event.figures for event in events if isinstance(event, Speculated)]
    assert [one.strides for one in figures] == [*range(1, expected.strides + 1)], "as they come"
    assert figures[-1].changes == expected.changes
    end = events[-1]
    assert isinstance(end, Finished)
    assert end.statistics.tokens == len(tokens(events))
    assert end.finish == strides[-1].finish


def test_the_current_passage_is_replaced_only_by_one_that_leads(
    imports: ImportedTexts, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = imports.knowledge_base()
    best, second, *_ = base.search([base.encode(QUESTION, None)], 2)[0]
    behind = best.score - second.score
    for lead, first in ((behind + 0.1, second), (behind - 0.1, best)):
        monkeypatch.setattr("engines.ralm.knowledge_base.LEAD", lead)
        query = base.encode(QUESTION, second.passage)
        (found,) = base.search([query], 1)[0]
        assert found.passage == first.passage
        scores = base.score(query, [best.passage, second.passage])
        assert found.score == max(scores) == pytest.approx(max(best.score, second.score + lead))


def test_passages_are_named_as_they_come_and_kept_with_the_answer(
    tmp_path: Path, history: History, imports: ImportedTexts, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A scripted answer is letters, so it would use no passage.
    monkeypatch.setattr(answer_request, "used_passages", lambda *given: tuple(given[-1]))
    engine = plain_engine(tmp_path)
    chat = history.create_chat()
    assistant = Assistant(engine, history, imports, docs="iterative")
    events = list(assistant.answer(chat.id, None, QUESTION))
    found = [event.passages for event in events if isinstance(event, Retrieved)]
    assert found[0][0].file == "walrus.md", "relevant to the question"
    assert [len(passages) for passages in found[1:]] == [*range(1, len(found) - 1), len(found) - 2]
    stored = history.thread(chat.id)[-1].statistics[CITATIONS_KEY]
    assert isinstance(stored, list)
    assert [one["file"] for one in stored] == [one.file for one in found[-1]]
    assert [event.outcome.read for event in events if isinstance(event, Cited)] == [len(stored)]
    assert engine.target.tokens


def test_a_question_that_nothing_covers_is_answered_without(
    tmp_path: Path, history: History, imports: ImportedTexts
) -> None:
    chat = history.create_chat()
    engine = plain_engine(tmp_path)
    assistant = Assistant(engine, history, imports, docs="iterative")
    events = list(assistant.answer(chat.id, None, "sing sea shanties"))
    assert [event for event in events if isinstance(event, Retrieved)] == [
        Retrieved((), SearchOutcome(texts=3))
    ]


def test_only_the_chosen_import_is_searched(
    tmp_path: Path, history: History, imports: ImportedTexts
) -> None:
    document = Document("seal.md", (Part(NOTES, "The seal keeps telescopes for the walrus."),))
    imports._library.write([StoreDocument("/seals", "seal.md", 0, document)])
    index(imports)
    chat = history.create_chat()
    engine = plain_engine(tmp_path)
    assistant = Assistant(engine, history, imports, docs="iterative /seals")
    events = list(assistant.answer(chat.id, None, "Which telescopes does the walrus keep?"))
    found = {one.file for event in events if isinstance(event, Retrieved) for one in event.passages}
    assert found == {"seal.md"}


def test_passages_are_ranked_as_for_a_question(imports: ImportedTexts) -> None:
    asked = ["Which telescopes does the walrus keep?", "umbrellas", "a b c d e f"]
    base = imports.knowledge_base()
    queries = [base.encode(question, None) for question in asked]
    for question, query, found in zip(asked, queries, base.search(queries, 2), strict=True):
        expected = find(
            imports._library,
            imports._passages,
            question,
            2,
            gate=Gate.ALL,
            dense=imports._dense(),
        )
        assert [one.passage.text for one in found] == [one.text for one in expected]
        assert [one.score for one in found] == [one.score for one in expected]
        assert base.search([query], 2) == [found], "alone as in a batch"
        passages = [one.passage for one in found]
        assert base.score(query, passages) == [one.score for one in found], "among few as among all"


@pytest.mark.parametrize("imports", ["vectors"], indirect=True)
def test_answers_from_the_same_passages_share_what_they_learn_of_strides(
    tmp_path: Path, imports: ImportedTexts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engines.ralm.scheduler.MIN_GAIN", 0.0)  # guess, however fast the search

    def learned(*import_paths: str) -> float:
        return imports.stride_scheduler(frozenset(import_paths)).accuracy

    before = learned()
    list(generate(plain_engine(tmp_path), imports, Sampling(0.0)))
    assert learned() != before
    assert learned("/notes") == before, "another base is searched in another time"


def test_stopping_keeps_what_was_confirmed(tmp_path: Path, imports: ImportedTexts) -> None:
    stop = Flag()
    events: list[Event] = []
    engine = plain_engine(tmp_path)
    for event in generate(engine, imports, Sampling(0.0), stop):
        events.append(event)
        if len(tokens(events)) >= 8:
            stop.set()
    end = events[-1]
    assert isinstance(end, Finished)
    assert end.finish == "interrupted"
    assert 8 <= len(tokens(events)) < ANSWER


def test_a_text_that_is_forgotten_meanwhile_ends_nothing(
    tmp_path: Path, imports: ImportedTexts
) -> None:
    events: list[Event] = []
    for event in generate(plain_engine(tmp_path), imports, Sampling(0.0)):
        events.append(event)
        if isinstance(event, Wrote):
            imports._passages.remove(imports._passages.keys())
    assert len(tokens(events)) == ANSWER
    assert isinstance(events[-1], Finished)


def test_a_chunk_that_is_longer_than_the_context_ends_nothing(
    tmp_path: Path, imports: ImportedTexts
) -> None:
    document = Document("long.md", (Part(NOTES, "telescopes walrus keep " * 40),))
    imports._library.write([StoreDocument("/notes", "long.md", 0, document)])
    index(imports)
    engine = scripted_engine(tmp_path, context_length=256)
    events = list(generate(engine, imports, Sampling(0.0)))
    assert isinstance(events[-1], Finished)
    assert 0 < len(tokens(events)) <= ANSWER

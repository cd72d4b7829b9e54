"""A history fills every store with the same texts, and rows draft from them without adding any."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

from app.bench.baselines import DraftShape
from app.bench.decode import DecodeRow, run, summarise
from app.bench.environment import (
    GIVEN,
    GREEDY,
    KNOWN,
    MAX_ROWS,
    SAMPLED,
    SAMPLES,
    Bench,
    BenchStores,
    PriorChats,
    bench_stores,
    loaded_with_model,
    make_texts,
    recorded,
    uses_history,
    widest,
)
from app.bench.workloads import RecordedChat, Workload
from app.config import DRAFTERS
from app.engine.engine import Engine
from app.engine.loading import with_drafters
from datastores.dense.index import DenseIndex
from datastores.errors import InputError, StoreError
from engines.chat_template.prompt_builder import Message
from engines.drafters.head import NETWORK, RECENT, Head
from engines.sampler import Sampling
from tests.app.scripted import STOP, drafted, scripted_engine
from tests.engines.tiny import TinyVocabulary, write_llama

QUESTIONS = ("one", "two", "three", "four", "five", "six")
CHATS = tuple(
    RecordedChat(str(number), number, (Message("user", text),))
    for number, text in enumerate(QUESTIONS)
)
GREEDILY = Sampling(0.0)


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return scripted_engine(tmp_path, drafters=(), draft_tokens=0, sampling=GREEDILY)


@pytest.fixture
def stores(engine: Engine, small_sample: None) -> Iterator[BenchStores]:
    """Stores of every kind, filled."""
    with bench_stores(engine, KNOWN) as opened:
        for _ in PriorChats("past", opened, CHATS, GREEDY).fill(engine):
            pass
        yield opened


def test_open_questions_are_answered_by_the_model(engine: Engine) -> None:
    question = engine.vocabulary.encode("one")
    (greedy,) = make_texts(engine, GIVEN)(CHATS[0])
    assert list(make_texts(engine, GREEDY)(CHATS[0])) == [greedy]
    sampled = list(make_texts(engine, SAMPLED)(CHATS[0]))
    assert len({tuple(text) for text in sampled}) == SAMPLES
    for text in (greedy, *sampled):
        assert text[1 : 1 + len(question)] == question
        assert len(text) > len(question) + 2


def test_given_answers_are_taken_as_they_stand_or_left(engine: Engine) -> None:
    chat = RecordedChat("0", 0, (Message("user", "one"), Message("assistant", "Yes.")))
    (given,) = make_texts(engine, GIVEN)(chat)
    answer = engine.vocabulary.encode("Yes.")
    assert given[5 : 5 + len(answer)] == answer
    assert list(make_texts(engine, GREEDY)(chat)) == list(make_texts(engine, GREEDY)(CHATS[0]))
    assert not list(make_texts(engine, GREEDY)(RecordedChat("0", 0, chat.messages[1:])))


def test_a_given_answer_ends_with_the_token_that_ends_it(engine: Engine) -> None:
    def render(messages: object) -> list[int]:
        return [7, 8, STOP, 9, 9, STOP, 5, 6]

    engine.render = render
    assert recorded(engine, CHATS[0]) == [7, 8, STOP, 9, 9, STOP]


def test_every_store_has_every_text(engine: Engine, stores: BenchStores) -> None:
    texts = [text for chat in CHATS for text in make_texts(engine, GREEDY)(chat)]
    tokens = sum(map(len, texts))
    assert [list(text.tokens) for text in stores.texts] == texts
    assert stores.rest is not None
    assert len(stores.rest) == tokens + len(texts)
    assert stores.resources.dense is not None
    status = stores.resources.dense.ask(DenseIndex.status)
    assert status.keys == status.positions == tokens - len(texts) > 256


def test_what_was_said_before_is_drafted_by_whoever_looks_back(
    engine: Engine, stores: BenchStores
) -> None:
    """Each by itself finds the answers to the same questions, and nothing is learnt on the way."""
    bench = Bench(engine, 8, None)
    rows = [DecodeRow("none", with_drafters(engine, (), 0))]
    names = ("suffix", "crest", "dense", "rest")
    rows += [DecodeRow(name, bench.equipped([name], stores)) for name in names]
    rows.append(DecodeRow("3x5", bench.equipped(["dense"], stores, DraftShape(3, 5)), shape="3x5"))
    workload = [Workload(text, (text,)) for text in QUESTIONS]
    assert list(run(rows, workload, GREEDILY))[-1] == len(QUESTIONS)
    summaries: list[dict[str, Any]] = [
        summarise(row, rows[0], GREEDILY, {"1": 1.0}) for row in rows
    ]
    for row, summary in zip(rows[1:], summaries[1:], strict=True):
        assert summary["identical"] == 1.0
        assert summary["tokens_per_step"] > 2.0, row.drafters
        assert summary["shape"] == row.shape
    assert 2.0 < summaries[-1]["draft_length"] <= 5.0
    assert stores.resources.dense is not None
    assert len(stores.texts) == len(stores.resources.dense.ask(DenseIndex.backlog)) + len(CHATS)


def test_a_draft_model_must_share_the_tokenizer(engine: Engine, tmp_path: Path) -> None:
    path = write_llama(tmp_path / "other.gguf", TinyVocabulary())
    with (
        bench_stores(engine, ()) as stores,
        pytest.raises(InputError, match="cannot draft for this model"),
    ):
        Bench(engine, None, path).equipped(["draft-model"], stores)


@pytest.mark.parametrize("name", ["draft-model", "head", "mtp"])
def test_a_drafter_that_the_model_does_not_have_is_refused_where_it_is_named(
    engine: Engine, name: str
) -> None:
    with bench_stores(engine, ()) as stores:
        bench = Bench(engine, None, None)
        with pytest.raises(InputError, match=f"has no {name}: leave it out"):
            bench.equipped(["prompt", name], stores)
        drafters = bench.equipped(DRAFTERS, stores).drafters
    assert [drafter.name for drafter in drafters] == ["prompt", "recycle"]


def test_the_draft_head_is_loaded_with_the_model_and_drafts(engine: Engine) -> None:
    assert loaded_with_model([["prompt", "head"]]) == ("head",)
    width, size = engine.target.width, engine.target.vocabulary_size
    shapes = [(1, width), (1, RECENT - 1), (2, 2), (2, 2), (1, 2), (1, 1)]
    network = dict(zip(NETWORK, (np.ones(shape, np.float32) for shape in shapes), strict=True))
    rows = np.arange(size, dtype=np.float32)[:, None]
    embeddings = np.ones((size + 1, 1), np.float32)
    engine.resources.head = Head("scripted", size, np.arange(size), network, rows, embeddings)
    with bench_stores(engine, ["head"]) as stores:
        assert drafted(Bench(engine, None, None).equipped(["head"], stores)) > 0


def test_rest_without_a_history_is_refused(engine: Engine) -> None:
    with (
        bench_stores(engine, ()) as stores,
        pytest.raises(InputError, match="rest drafts only from a history"),
    ):
        Bench(engine, None, None).equipped(["rest"], stores)


def test_a_store_that_cannot_be_made_ends_the_benchmark(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> NoReturn:
        raise StoreError("no room")

    monkeypatch.setattr("app.engine.draft_resources.make_folder", full)
    with pytest.raises(StoreError, match="no room"), bench_stores(engine, ["dense"]):
        pytest.fail("it went on without that store")


def test_only_some_drafters_look_back() -> None:
    assert [name for name in KNOWN if uses_history([name])] == ["suffix", "crest", "dense", "rest"]


@pytest.mark.parametrize(
    ("tokens", "shapes", "rows"),
    [(None, (), 1), (8, (), 9), (500, (), MAX_ROWS), (None, (DraftShape(2, 2),), MAX_ROWS)],
)
def test_the_model_takes_trees_as_wide_as_the_drafts(
    tokens: int | None, shapes: tuple[DraftShape, ...], rows: int
) -> None:
    assert widest(tokens, shapes) == rows

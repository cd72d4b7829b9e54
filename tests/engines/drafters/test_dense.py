"""The dense drafter, its recorder and the backlog, on a scripted target whose states depend on the
last token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datastores.dense.index import DenseIndex
from datastores.dense.memory import DenseMemory
from datastores.dense.projection import Codes
from datastores.dense.store import DenseStore
from datastores.dense.worker import DenseWorker
from engines.budget.acceptance_model import AcceptanceModel
from engines.budget.cost_model import CostModel
from engines.budget.fixed import FixedBudget
from engines.chat_template.prompt_builder import Message
from engines.decode import StopCriteria, decode
from engines.draft_tree import DENSE
from engines.drafters.dense import NONE_DECAY, NONE_WEIGHT, DenseDrafter, grow
from engines.drafters.prompt_lookup import PromptLookup
from engines.drafters.protocol import Drafter
from engines.llama.model import LlamaModel
from engines.sampler import Sampling, make_sampler
from engines.state_encoding import encode_backlog
from engines.state_recorder import StateRecorder
from engines.step import Context, Step, StepObserver
from tests.engines.scripted import VOCABULARY, WIDTH, ScriptedTarget, logits_after


def table(continuations: list[list[int]]) -> list[list[int]]:
    """The same, all equally long."""
    length = max(map(len, continuations), default=0)
    return [[*continuation, *[-1] * (length - len(continuation))] for continuation in continuations]


LONG = 400
"""Tokens of an answer that can be drafted from."""
pytestmark = pytest.mark.usefixtures("small_sample")
words = st.lists(st.integers(0, 3), max_size=6)


@given(st.lists(st.tuples(words, st.floats(0.01, 2.0)), max_size=8), st.integers(1, 30))
def test_a_grown_tree_is_a_trie_with_honest_shares_best_first(
    occasions: list[tuple[list[int], float]], limit: int
) -> None:
    occasions = sorted(occasions, key=lambda occasion: -occasion[1])
    continuations = [continuation for continuation, _ in occasions]
    weights = [weight for _, weight in occasions]
    tree = grow(9, table(continuations), weights, weights, DENSE, limit)
    assert tree.drafted <= limit
    paths: list[tuple[int, ...]] = [()]
    chances = [1.0]
    for row in range(1, len(tree)):
        parent = tree.parents[row]
        paths.append((*paths[parent], tree.tokens[row]))
        chances.append(chances[parent] * tree.probabilities[row])
        through = [
            i for i, c in enumerate(continuations) if tuple(c[: len(paths[row])]) == paths[row]
        ]
        arrived = [
            i
            for i, c in enumerate(continuations)
            if tuple(c[: len(paths[parent])]) == paths[parent]
        ]
        none = NONE_WEIGHT * NONE_DECAY ** len(paths[parent])
        share = sum(weights[i] for i in through) / (sum(weights[i] for i in arrived) + none)
        assert tree.probabilities[row] == pytest.approx(share)
        assert tree.supports[row] == max(weights[i] for i in through)
    assert len(set(paths)) == len(paths)
    assert chances[1:] == sorted(chances[1:], reverse=True)
    whole = {tuple(c[:n]) for c in continuations for n in range(1, len(c) + 1)}
    if limit >= len(whole):
        assert all(chances[paths.index(path)] < 1 for path in whole if path in paths)


def test_a_negative_number_ends_a_continuation() -> None:
    tree = grow(9, table([[1, -1, 2], [1, 3]]), [1.0, 1.0], [0.0, 0.0], DENSE, 10)
    assert (tree.tokens, tree.parents) == ([9, 1, 3], [-1, 0, 1])


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[DenseWorker]:
    opened = DenseWorker(DenseStore.open(tmp_path / "dense.db", "scripted", WIDTH), VOCABULARY)
    yield opened
    opened.close()
    assert opened.error is None


def answer(
    drafters: list[Drafter],
    prompt: list[int],
    *,
    observers: Sequence[StepObserver] = (),
    limit: int = 120,
    temperature: float = 0.0,
) -> list[Step]:
    target = ScriptedTarget(context_length=1024)
    list(target.prefill(prompt))
    budget = FixedBudget(8, CostModel(), AcceptanceModel())
    draw = make_sampler(Sampling(temperature=temperature, seed=5))
    ending = StopCriteria(frozenset(), limit)
    steps = decode(
        target, drafters, budget, draw, ending, temperature=temperature, observers=observers
    )
    return list(steps)


def tokens_of(steps: list[Step]) -> list[int]:
    return [token for step in steps for token in step.tokens]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_what_was_said_once_is_drafted_and_changes_nothing(
    worker: DenseWorker, temperature: float
) -> None:
    plain = tokens_of(answer([], [1, 2, 3], limit=LONG, temperature=temperature))
    drafter, recorder = DenseDrafter(worker.memory), StateRecorder(worker)
    first = answer([drafter], [1, 2, 3], observers=[recorder], limit=LONG, temperature=temperature)
    worker.ask(DenseIndex.flush)
    second = answer([drafter], [1, 2, 3], limit=LONG, temperature=temperature)
    assert tokens_of(first) == tokens_of(second) == plain
    assert worker.ask(DenseIndex.status).keys == LONG
    assert sum(step.accepted for step in second) > 200
    assert {origin for step in second for origin in step.origins} == {0, DENSE}
    assert all(step.tree.drafted <= 8 for step in second)


def test_an_index_that_is_not_ready_says_nothing() -> None:
    drafter = DenseDrafter(DenseMemory(VOCABULARY))
    context = Context([1, 2, 3], np.zeros(WIDTH, np.float32), 0.0)
    drafter.begin(context)
    assert len(drafter.propose(context, 8)) == 1


def test_an_answer_without_an_owner_is_not_recorded(worker: DenseWorker) -> None:
    recorder = StateRecorder(worker)
    answer([], [1, 2, 3], observers=[recorder])
    recorded = worker.ask(DenseIndex.status)
    assert recorded.held == 120
    recorder.owner = None
    answer([], [1, 2, 3], observers=[recorder])
    assert worker.ask(DenseIndex.status) == recorded


def states_after(tokens: list[int]) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    """The scripted target's states after each of `tokens`."""
    rows = [logits_after((token,), 8.0)[:WIDTH] for token in tokens]
    return np.array(rows, np.float32)


def texts() -> list[list[int]]:
    generator = np.random.default_rng(3)
    return [generator.integers(0, VOCABULARY, size).tolist() for size in (700, 2, 90, 1, 64)]


def keys_of(folder: Path) -> list[tuple[int, int, bytes]]:
    store = DenseStore.open(folder / "dense.db", "scripted", WIDTH)
    projection = store.projection()
    assert projection is not None
    assert store.incomplete() == []
    rows = sorted(
        (int(text), int(position), code.tobytes())
        for batch in store.keys(projection.dimensions)
        for text, position, code in zip(*batch, strict=True)
    )
    store.close()
    return rows


@pytest.mark.parametrize("stops", [[], [1], [3, 1, 4, 1, 5]])
def test_a_backlog_left_at_any_time_goes_on_where_it_was(tmp_path: Path, stops: list[int]) -> None:
    target = ScriptedTarget(context_length=256)
    for attempt, patience in enumerate([*stops, 10_000]):
        store = DenseStore.open(tmp_path / "dense.db", "scripted", WIDTH)
        worker = DenseWorker(store, VOCABULARY)
        if not attempt:
            for text in texts():
                worker.ask(partial(DenseIndex.add_text, owner="import", tokens=text))
        work = encode_backlog(target, worker)
        for _ in zip(range(patience), work, strict=False):
            pass
        work.close()
        worker.close()
        assert worker.error is None
    found = keys_of(tmp_path)
    assert [row[:2] for row in found] == [
        (number, position)
        for number, text in enumerate(texts(), start=1)
        for position in range(1, len(text))
    ]


def test_encoded_states_are_those_of_the_tokens_before(tmp_path: Path, worker: DenseWorker) -> None:
    for text in texts():
        worker.ask(partial(DenseIndex.add_text, owner="import", tokens=text))
    progress = list(encode_backlog(ScriptedTarget(context_length=256), worker))
    assert progress[-1] == sum(len(text) - 1 for text in texts())
    assert worker.ask(DenseIndex.status).keys >= 256
    worker.close()
    store = DenseStore.open(tmp_path / "dense.db", "scripted", WIDTH)
    projection = store.projection()
    assert projection is not None
    store.close()
    for number, position, code in keys_of(tmp_path):
        state = states_after([texts()[number - 1][position - 1]])
        assert projection.encode(state).tobytes() == code


def codes_in(index: DenseIndex) -> dict[int, Codes]:
    """Position → code."""
    projection = index._store.projection()
    assert projection is not None
    batches = index._store.keys(projection.dimensions)
    return {
        int(position): code
        for batch in batches
        for position, code in zip(batch.positions, batch.codes, strict=True)
    }


def test_states_of_an_answer_are_those_of_the_same_text_read(
    tmp_path: Path, model: LlamaModel
) -> None:
    target = model.target
    store = DenseStore.open(tmp_path / "real.db", target.fingerprint, target.width)
    worker = DenseWorker(store, target.vocabulary_size)
    drafters: list[Drafter] = [DenseDrafter(worker.memory), PromptLookup()]
    prompt = model.render([Message("user", "Give me examples of git log.")])
    list(target.prefill(prompt))
    budget = FixedBudget(3, CostModel(), AcceptanceModel())
    draw = make_sampler(Sampling(temperature=0.9, seed=3))
    ending = StopCriteria(frozenset(), 276)
    recorder = StateRecorder(worker)
    steps = decode(target, drafters, budget, draw, ending, observers=[recorder])
    said = tokens_of(list(steps))
    worker.ask(DenseIndex.flush)
    live = worker.ask(codes_in)
    with store.store.writing() as db:
        db.conn.execute("DELETE FROM keys")
        db.conn.execute("UPDATE documents SET keys = 0")
    list(encode_backlog(target, worker))
    worker.ask(DenseIndex.flush)
    read = worker.ask(codes_in)
    worker.close()
    assert sorted(live) == list(range(len(prompt), len(prompt) + len(said)))
    assert sorted(read) == list(range(1, len(prompt) + len(said)))
    for position, code in live.items():
        # Widths of passes differ, and with them the last bits of states; a step of rounding may.
        assert np.abs(code.astype(int) - read[position].astype(int)).max() <= 1

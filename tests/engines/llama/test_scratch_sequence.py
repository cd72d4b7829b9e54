"""The scratch sequence gives the same states and leaves the chat unchanged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from datastores.dense.index import DenseIndex
from datastores.dense.store import DenseStore
from datastores.dense.worker import DenseWorker
from engines.draft_tree import chain
from engines.llama.kv_sequences import ScratchSequence
from engines.llama.model import LlamaModel, load
from engines.llama.target import LlamaTarget
from engines.state_encoding import InPlace, StateEncoder, encode_backlog, encoder_of
from engines.target import Floats
from tests.engines.conftest import EMBEDDED, THREADS

CHAT = [1, *range(300, 360), 2]
OTHER = [1, *range(700, 790)]
NEXT = chain(5, [6, 7], 1)
pytestmark = pytest.mark.usefixtures("small_sample")


@pytest.fixture(scope="module", params=["measured", "exact"])
def target(request: pytest.FixtureRequest, model: LlamaModel) -> LlamaTarget:
    """The embedded model, normal and in exact mode."""
    if request.param == "measured":
        return model.target
    return load(EMBEDDED, threads=THREADS, exact=True, context_length=1024).target


def scratch_of(target: LlamaTarget) -> ScratchSequence:
    assert target.scratch is not None
    return target.scratch


def states_of(reader: StateEncoder, text: Sequence[int], width: int) -> Floats:
    """States of `text`, read in passes of `width` tokens at most."""
    width = min(width, reader.max_rows)
    parts = [
        reader.read(text[start : start + width], start).copy()
        for start in range(0, len(text), width)
    ]
    return np.concatenate(parts)


def after_chat(target: LlamaTarget) -> Floats:
    """Logits of the chat's next token, after which the cache holds only the chat."""
    logits: Floats = target.verify(NEXT).logits.copy()
    target.commit([0])
    target.rewind(len(CHAT))
    return logits


@pytest.mark.parametrize("width", [1, 7, 32])
def test_states_read_on_the_scratch_sequence_are_those_read_in_place(
    target: LlamaTarget, width: int
) -> None:
    alone = states_of(InPlace(target), OTHER, width)
    list(target.prefill(CHAT))
    beside = states_of(scratch_of(target), OTHER, width)
    # Rounding grows with the values.
    np.testing.assert_allclose(beside, alone, atol=0.01 * float(np.ptp(alone)))


def test_the_chat_continues_bitwise_after_a_scratch_text(
    target: LlamaTarget,
) -> None:
    target.rewind(0)
    list(target.prefill(CHAT))
    before = after_chat(target)
    states_of(scratch_of(target), OTHER, 30)
    assert list(target.tokens) == CHAT
    evaluated = list(target.prefill([*CHAT, 9]))
    assert evaluated == [len(CHAT) + 1], "nothing of the chat was read again"
    target.rewind(len(CHAT))
    assert np.array_equal(after_chat(target), before)


def test_the_last_row_of_the_chat_is_refused_after_a_scratch_text(
    target: LlamaTarget,
) -> None:
    list(target.prefill(CHAT))
    assert target.last_row.logits.shape == (1, target.vocabulary_size)
    states_of(scratch_of(target), OTHER, 30)
    with pytest.raises(RuntimeError, match="right after a finished prefill"):
        _ = target.last_row


def test_a_new_text_is_independent_of_the_one_before(target: LlamaTarget) -> None:
    reader = scratch_of(target)
    first = states_of(reader, OTHER, 30)
    states_of(reader, CHAT, 30)
    again = states_of(reader, OTHER, 30)
    np.testing.assert_allclose(again, first, atol=0.05)


def test_a_chat_that_needs_the_cells_gets_them(target: LlamaTarget) -> None:
    target.rewind(0)
    assert isinstance(encoder_of(target), ScratchSequence)
    list(target.prefill([5] * (target.context_length - 4)))
    assert scratch_of(target).room == 4
    states_of(encoder_of(target), OTHER, 30)
    assert list(target.tokens) == OTHER


def encoded(folder: Path, target: LlamaTarget, between: Callable[[], object]) -> Floats:
    """The states of a text, with `between` run between two of its passes."""
    store = DenseStore.open(folder / "dense.db", target.fingerprint, target.width)
    worker = DenseWorker(store, target.vocabulary_size)
    text = np.random.default_rng(1).integers(300, 4000, 320).tolist()
    worker.ask(lambda index: index.add_text("text", text))
    found: dict[int, Floats] = {}
    keep = worker.add_states

    def note(text: int, positions: NDArray[np.int64], states: Floats) -> None:
        assert found.keys().isdisjoint(positions.tolist()), "no state is given twice"
        found.update(zip(positions.tolist(), states, strict=True))
        keep(text, positions, states)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(worker, "add_states", note)
        for number, _ in enumerate(encode_backlog(target, worker)):
            if number == 12:
                between()
    assert worker.ask(DenseIndex.status).keys == len(text) - 1
    worker.close()
    return np.array([found[position] for position in range(1, len(text))])


@pytest.mark.parametrize("chat", [CHAT, CHAT * 12], ids=["beside", "in place"])
def test_an_answer_between_two_passes_changes_no_state(
    tmp_path: Path, model: LlamaModel, monkeypatch: pytest.MonkeyPatch, chat: Sequence[int]
) -> None:
    monkeypatch.setattr("engines.state_encoding.WINDOW", 400)
    target = model.target
    target.rewind(0)
    alone = encoded(tmp_path / "alone", target, lambda: None)
    list(target.prefill(chat))
    disturbed = encoded(tmp_path / "disturbed", target, lambda: list(target.prefill(chat)))
    np.testing.assert_allclose(disturbed, alone, atol=0.05)

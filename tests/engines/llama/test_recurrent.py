"""Recurrent and hybrid models: drafts of any length give the same text as plain decoding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from llama_cpp import llama_cpp as lib

from datastores.errors import ContextOverflowError, ModelError
from engines.budget.acceptance_model import AcceptanceModel
from engines.budget.cost_model import CostModel
from engines.budget.fixed import FixedBudget
from engines.decode import StopCriteria, decode
from engines.draft_tree import PROMPT, DraftTree, chain, root_only
from engines.llama import native
from engines.llama.gguf import read_metadata
from engines.llama.model import load
from engines.llama.recurrent_state import MAX_SNAPSHOTS, snapshot_count, state_bytes
from engines.llama.target import LlamaTarget
from engines.sampler import greedy
from engines.step import Context, Step
from tests.engines.tiny_recurrent import FAMILIES, KINDS, write_recurrent

PROMPT_TOKENS = [5 + 7 * index % 240 for index in range(40)]
LENGTH = 256
ANSWER = 200
SMALL_GAP = 0.01
"""Between the logits of the two likeliest tokens where plain and drafted answers may fork; the
logits span about 5."""
Open = Callable[..., LlamaTarget]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("recurrent")


@pytest.fixture(scope="module")
def open_target(folder: Path) -> Open:
    @cache
    def opened(kind: str, *, exact: bool = False) -> LlamaTarget:
        path = write_recurrent(folder, kind)
        return load(path, threads=1, context_length=LENGTH, exact=exact).target

    return opened


@cache
def plain(target: LlamaTarget, length: int = ANSWER) -> tuple[list[int], np.ndarray]:
    """The greedy answer and its logits, a token at a time."""
    target.rewind(0)
    list(target.prefill(PROMPT_TOKENS))
    rows = [target.last_row.logits[0].copy()]
    while len(rows) < length:
        rows.append(target.verify(root_only(int(rows[-1].argmax()))).logits[0].copy())
        target.commit([0])
    logits = np.stack(rows)
    return logits.argmax(1).tolist(), logits


class Copier:
    """Drafts the plain answer, with one wrong token in every `period`."""

    name = "prompt"
    top_tokens_needed = 0

    def __init__(self, answer: Sequence[int], period: int) -> None:
        self._answer = answer
        self._period = period

    def begin(self, context: Context) -> None:
        """See `Drafter.begin`."""

    def propose(self, context: Context, limit: int) -> DraftTree:
        """See `Drafter.propose`."""
        start = len(context.tokens) - len(PROMPT_TOKENS)
        draft = [
            (token + (index % self._period == 0)) % 250
            for index, token in enumerate(self._answer[start : start + limit], start)
        ]
        return chain(context.root, draft, PROMPT)

    def observe(self, step: Step) -> None:
        """See `Drafter.observe`."""


def answer(
    target: LlamaTarget, count: int, period: int, length: int = ANSWER
) -> tuple[list[int], int]:
    """The answer with drafts of `count` tokens, and how many passes it took."""
    expected, _ = plain(target, length)
    list(target.prefill(PROMPT_TOKENS))
    budget = FixedBudget(count, CostModel(), AcceptanceModel())
    stop = StopCriteria(frozenset(), length)
    steps = list(decode(target, [Copier(expected, period)], budget, greedy, stop))
    return [token for step in steps for token in step.tokens], len(steps) - 1


def require_same(target: LlamaTarget, tokens: Sequence[int]) -> None:
    """Check that it equals plain decoding, up to a fork at a near-tie."""
    expected, logits = plain(target)
    for index, (token, other) in enumerate(zip(tokens, expected, strict=True)):
        if token != other:
            first, second = np.sort(logits[index])[[-1, -2]]
            assert first - second < SMALL_GAP, index
            return


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [3, 31])
def test_drafted_answers_equal_plain_ones(open_target: Open, kind: str, count: int) -> None:
    target = open_target(kind)
    assert (target.chains_only, target.max_rows) == (True, 32)
    tokens, _ = answer(target, count, period=23)
    require_same(target, tokens)


@pytest.mark.parametrize("kind", KINDS)
def test_a_copied_passage_takes_few_passes(open_target: Open, kind: str) -> None:
    target = open_target(kind)
    tokens, passes = answer(target, 31, period=1000)
    require_same(target, tokens)
    assert ANSWER / passes >= 8


@pytest.mark.parametrize("kind", [kind for kind, family in FAMILIES.items() if family.rollback])
def test_exact_mode_is_bitwise_equal(open_target: Open, kind: str) -> None:
    target = open_target(kind, exact=True)
    expected, logits = plain(target, 40)
    tokens, _ = answer(target, target.max_rows - 1, period=5, length=40)
    assert tokens == expected
    list(target.prefill([*PROMPT_TOKENS, *expected[:20]]))
    assert np.array_equal(target.last_row.logits[0], logits[20])


@pytest.mark.parametrize("kind", KINDS)
def test_the_header_tells_the_size_of_a_state(open_target: Open, folder: Path, kind: str) -> None:
    target = open_target(kind)
    list(target.prefill(PROMPT_TOKENS))
    handle = target._checkpoint._context
    size = lib.llama_state_seq_get_size_ext(handle, 0, lib.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY)
    expected = state_bytes(read_metadata(folder / f"{kind}.gguf"))
    assert expected <= size <= expected + 256, "a state and its description"


def test_snapshots_are_kept_as_far_as_memory_allows() -> None:
    assert snapshot_count(50_000_000, 5_500_000_000) == 6
    assert snapshot_count(150_000_000, 500_000_000) == 1
    assert snapshot_count(10**9, 500_000_000) == 0
    assert snapshot_count(1000, 10**6) == MAX_SNAPSHOTS


@pytest.mark.parametrize("kind", ["qwen35", "rwkv7"])
def test_a_full_context_is_drafted_to_its_end(open_target: Open, kind: str) -> None:
    target = open_target(kind)
    expected, _ = plain(target)
    text = [*PROMPT_TOKENS, *expected[: LENGTH - len(PROMPT_TOKENS) - 20]]
    list(target.prefill(text))
    with pytest.raises(ContextOverflowError):
        target.verify(chain(5, [6] * 20, PROMPT))
    assert list(target.tokens) == text
    target.verify(chain(5, [6] * 19, PROMPT))
    target.commit([0, 1])
    assert list(target.tokens) == [*text, 5, 6]


LONG_DRAFT = chain(5, [6] * 20, PROMPT)
FAULTS = pytest.mark.parametrize("kind", ["qwen35", "granitehybrid", "rwkv7"])
"""A family with snapshots, one without, and one without attention."""


def prepared(open_target: Open, kind: str) -> tuple[LlamaTarget, np.ndarray]:
    """A target that holds the prompt, and its row for the root of `LONG_DRAFT`."""
    target = open_target(kind)
    target.rewind(0)
    list(target.prefill([*PROMPT_TOKENS, 5]))
    logits = target.last_row.logits[0].copy()
    target.rewind(0)
    list(target.prefill(PROMPT_TOKENS))
    return target, logits


def require_untouched(target: LlamaTarget, logits: np.ndarray) -> None:
    assert list(target.tokens) == PROMPT_TOKENS
    assert np.abs(target.verify(LONG_DRAFT).logits[0] - logits).max() < SMALL_GAP
    target.commit([0, 1, 2])
    assert list(target.tokens) == [*PROMPT_TOKENS, 5, 6, 6]


@FAULTS
@pytest.mark.parametrize("during", ["verify", "re-evaluate"])
@pytest.mark.parametrize("fault", [KeyboardInterrupt, ModelError])
def test_a_fault_leaves_the_cache_as_it_was(
    open_target: Open,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    during: str,
    fault: type[BaseException],
) -> None:
    target, logits = prepared(open_target, kind)
    decode_batch = native.decode

    def interrupted(*arguments: object) -> int:
        decode_batch(*arguments)
        if fault is KeyboardInterrupt:
            raise KeyboardInterrupt
        return -3

    if during == "re-evaluate":
        target.verify(LONG_DRAFT)
    with monkeypatch.context() as patch:
        patch.setattr(native, "decode", interrupted)
        with pytest.raises(fault):
            target.commit([0, 1]) if during == "re-evaluate" else target.verify(LONG_DRAFT)
    require_untouched(target, logits)


@FAULTS
def test_a_state_that_cannot_be_saved_is_an_error(
    open_target: Open, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    target, logits = prepared(open_target, kind)
    with monkeypatch.context() as patch:
        patch.setattr(native, "save_partial_state", lambda *_: 0)
        with pytest.raises(ModelError, match="could not save"):
            target.verify(LONG_DRAFT)
    require_untouched(target, logits)


@FAULTS
def test_a_text_whose_state_cannot_be_restored_is_read_again(
    open_target: Open, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    target, _ = prepared(open_target, kind)
    expected = target.verify(chain(5, [6, 6], PROMPT)).logits[2].copy()
    target.commit([0])
    list(target.prefill(PROMPT_TOKENS))
    with monkeypatch.context() as patch:
        patch.setattr(native, "load_partial_state", lambda *_: 0)
        target.verify(LONG_DRAFT)
        target.commit([0, 1])
    assert list(target.tokens) == [*PROMPT_TOKENS, 5, 6]
    assert np.abs(target.verify(root_only(6)).logits[0] - expected).max() < SMALL_GAP


@FAULTS
def test_a_checkpoint_of_another_text_is_not_used(open_target: Open, kind: str) -> None:
    target, logits = prepared(open_target, kind)
    list(target.prefill([*PROMPT_TOKENS, 9, 9, 9]))
    target.verify(LONG_DRAFT)
    target.commit([0])
    list(target.prefill(PROMPT_TOKENS))
    target.rewind(len(PROMPT_TOKENS) - 1)
    list(target.prefill(PROMPT_TOKENS))
    require_untouched(target, logits)

"""The llama.cpp target: trees equal chains, and the cache always holds `tokens`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import llama_cpp.llama_cpp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from datastores.errors import ContextOverflowError, ModelError
from engines.draft_tree import DraftTree, chain, root_only
from engines.llama import context, native
from engines.llama.forward import ForwardPass
from engines.llama.model import LlamaModel, load
from engines.llama.target import LlamaTarget
from engines.target import Floats
from tests.engines.conftest import EMBEDDED, THREADS


class Shape:
    """The properties of weights on which the choice of attention depends."""

    def __init__(self, width: int, heads: int, *, on_device: bool = False) -> None:
        self.width, self.handle, self.on_device = width, heads, on_device


@pytest.mark.parametrize(
    ("shape", "cells", "rows"),
    [
        (Shape(2048, 32), 8192, 128),
        (Shape(4096, 32), 16_384, 128),
        (Shape(4096, 32), 32_768, 64),
        (Shape(8192, 64), 65_536, 0),
        (Shape(256, 4), 2048, 0),
        (Shape(4096, 32, on_device=True), 8192, 0),
    ],
)
def test_attention_is_plain_for_wide_models_on_a_cpu_where_its_scores_fit(
    monkeypatch: pytest.MonkeyPatch, shape: Shape, cells: int, rows: int
) -> None:
    monkeypatch.setattr(llama_cpp.llama_cpp, "llama_model_n_head", lambda handle: handle)
    assert context.plain_attention_rows(shape, cells) == rows  # type: ignore[arg-type]


TOLERANCE = 0.03
"""Tolerance between batch widths, as a share of the logits' range; activations have 11 bits.

The largest in 900 comparisons was 0.011; another token's logits differ by 0.4 or more.
"""

PROMPT = [1, *range(300, 360), 2]


@pytest.fixture
def target(model: LlamaModel) -> LlamaTarget:
    model.target.rewind(0)
    return model.target


def read(target: LlamaTarget, tokens: Sequence[int]) -> Floats:
    """Logits after `tokens`, from an empty cache."""
    target.rewind(0)
    list(target.prefill(tokens))
    logits: Floats = target.last_row.logits[0].copy()
    return logits


def near(logits: Floats, others: Floats) -> bool:
    """Whether logits differ by no more than rounding."""
    return bool(np.abs(logits - others).max() < TOLERANCE * np.ptp(others))


def path_to(tree: DraftTree, row: int) -> list[int]:
    rows: list[int] = []
    while row >= 0:
        rows.insert(0, row)
        row = tree.parents[row]
    return rows


@st.composite
def trees(draw: st.DrawFn) -> DraftTree:
    tree = root_only(draw(st.integers(3, 4000)))
    for _ in range(draw(st.integers(0, 12))):
        parent = draw(st.integers(0, len(tree) - 1))
        token = draw(st.integers(3, 4000))
        if token not in tree.children()[parent]:
            tree.add(parent, token, 1, 0.5)
    return tree


def test_prefill_yields_progress_and_a_fresh_last_row(target: LlamaTarget) -> None:
    counts = list(target.prefill(PROMPT))
    assert counts == sorted(counts)
    assert counts[-1] == len(PROMPT)
    assert list(target.tokens) == PROMPT
    assert target.last_row.logits.shape == (1, target.vocabulary_size)
    assert target.last_row.hidden.shape == (1, target.width)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(tree=trees(), data=st.data())
def test_tree_rows_equal_the_chains_of_their_paths(
    target: LlamaTarget, tree: DraftTree, data: st.DataObject
) -> None:
    path = path_to(tree, data.draw(st.integers(0, len(tree) - 1)))
    list(target.prefill(PROMPT))
    logits = target.verify(tree).logits.copy()
    target.commit(path)
    kept = [*PROMPT, *(tree.tokens[row] for row in path)]
    assert list(target.tokens) == kept
    continued = target.verify(root_only(77)).logits[0].copy()
    target.commit([0])
    for row in range(len(tree)):
        alone = read(target, [*PROMPT, *(tree.tokens[r] for r in path_to(tree, row))])
        assert near(alone, logits[row])
    assert near(read(target, [*kept, 77]), continued)


@pytest.fixture(scope="module")
def plain_target() -> LlamaTarget:
    """The embedded model with plain attention, as wider models use on a CPU."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(context, "MIN_PLAIN_WIDTH", 0)
        model = load(EMBEDDED, threads=THREADS, gpu_layers=0, context_length=1024)
    assert "plain attention" in model.build
    return model.target


def test_plain_and_fused_attention_agree(target: LlamaTarget, plain_target: LlamaTarget) -> None:
    text = [1, *range(300, 700), 2]
    assert near(read(target, text), read(plain_target, text))


@pytest.mark.parametrize("attention", ["target", "plain_target"])
def test_many_trees_in_a_row_leave_the_cache_of_a_fresh_prefill(
    request: pytest.FixtureRequest, attention: str
) -> None:
    target: LlamaTarget = request.getfixturevalue(attention)
    random = np.random.default_rng(5)
    list(target.prefill(PROMPT))
    for _ in range(60):
        tree = root_only(int(random.integers(3, 4000)))
        for _ in range(int(random.integers(0, 10))):
            tree.add(int(random.integers(0, len(tree))), int(random.integers(3, 4000)), 1, 0.5)
        target.verify(tree)
        target.commit(path_to(tree, int(random.integers(0, len(tree)))))
    tokens = list(target.tokens)
    assert len(tokens) > len(PROMPT) + 60
    logits = target.verify(root_only(9)).logits[0].copy()
    assert near(read(target, [*tokens, 9]), logits)


def test_hidden_states_give_the_logits_order(target: LlamaTarget) -> None:
    list(target.prefill(PROMPT))
    rows = target.verify(chain(5, [6, 7, 8], 1))
    assert rows.hidden.shape == (4, target.width)
    assert np.isfinite(rows.hidden).all()
    assert len(np.unique(rows.hidden, axis=0)) == 4


def test_only_what_follows_the_common_prefix_is_evaluated(target: LlamaTarget) -> None:
    list(target.prefill(PROMPT))
    changed = [*PROMPT[:40], 7, *PROMPT[41:]]
    counts = list(target.prefill(changed))
    assert counts[0] > 40
    assert list(target.tokens) == changed
    logits = target.last_row.logits[0].copy()
    assert near(read(target, changed), logits)
    assert list(target.prefill(changed)) == [len(changed)]


def test_interrupted_prefill_leaves_a_valid_shorter_cache(
    target: LlamaTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ForwardPass, "chunk", 16)
    reading = target.prefill(PROMPT)
    assert next(reading) == 16
    del reading
    assert list(target.tokens) == PROMPT[:16]
    list(target.prefill(PROMPT))
    logits = target.last_row.logits[0].copy()
    assert near(read(target, PROMPT), logits)


def test_tree_never_committed_is_dropped(target: LlamaTarget) -> None:
    list(target.prefill(PROMPT))
    target.verify(branching())
    logits = target.verify(root_only(5)).logits[0].copy()
    target.commit([0])
    assert list(target.tokens) == [*PROMPT, 5]
    assert near(read(target, [*PROMPT, 5]), logits)


def branching() -> DraftTree:
    tree = chain(5, [6, 7], 1)
    tree.add(0, 9, 1, 0.5)
    return tree


@pytest.mark.parametrize(
    "call",
    [
        lambda target: list(target.prefill([*PROMPT, *range(400, 460)])),
        lambda target: list(target.prefill([*PROMPT, 400])),
        lambda target: target.verify(chain(5, [6, 7], 1)),
        lambda target: target.verify(branching()),
    ],
    ids=["chunk", "last-chunk", "chain", "tree"],
)
def test_interrupt_in_the_middle_leaves_a_valid_cache(
    target: LlamaTarget, monkeypatch: pytest.MonkeyPatch, call: Callable[[LlamaTarget], object]
) -> None:
    list(target.prefill(PROMPT))
    decode = native.decode

    def interrupted(*arguments: object) -> int:
        decode(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(native, "decode", interrupted)
        with pytest.raises(KeyboardInterrupt):
            call(target)
    assert list(target.tokens) == PROMPT
    logits = target.verify(branching()).logits[2].copy()
    target.commit([0, 1, 2])
    assert list(target.tokens) == [*PROMPT, 5, 6, 7]
    assert near(read(target, [*PROMPT, 5, 6, 7]), logits)


@pytest.mark.parametrize("tree", [root_only(5), chain(5, [6, 7], 1), branching()])
def test_a_failed_pass_raises_and_leaves_the_cache(
    target: LlamaTarget, monkeypatch: pytest.MonkeyPatch, tree: DraftTree
) -> None:
    list(target.prefill(PROMPT))
    with monkeypatch.context() as patch:
        patch.setattr(native, "decode", lambda context, batch: -3)
        with pytest.raises(ModelError, match="status -3"):
            target.verify(tree)
    logits = target.verify(root_only(5)).logits[0].copy()
    target.commit([0])
    assert near(read(target, [*PROMPT, 5]), logits)


def test_a_token_that_does_not_exist_is_refused(target: LlamaTarget) -> None:
    list(target.prefill(PROMPT))
    with pytest.raises(ModelError):
        target.verify(root_only(10**6))
    assert list(target.prefill([*PROMPT, 5])) == [len(PROMPT) + 1]


def test_context_overflow_raises_and_leaves_the_cache(target: LlamaTarget) -> None:
    with pytest.raises(ContextOverflowError, match="1025 tokens"):
        list(target.prefill([5] * 1025))
    list(target.prefill([5] * 1023))
    with pytest.raises(ContextOverflowError):
        target.verify(chain(5, [6], 1))
    target.verify(root_only(5))
    target.commit([0])
    assert len(target.tokens) == target.context_length
    with pytest.raises(ContextOverflowError):
        target.verify(root_only(5))

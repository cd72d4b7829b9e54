"""Exact mode: drafted and plain decoding agree bit by bit, across turns and cache paddings."""

from __future__ import annotations

import numpy as np
import pytest

from datastores.errors import ModelError
from engines.draft_tree import chain
from engines.llama import model as model_module
from engines.llama.model import LlamaModel, load
from engines.llama.target import LlamaTarget
from engines.target import Floats
from tests.engines.conftest import EMBEDDED, THREADS

ANSWER = 150
PROMPT = list(range(300, 340))


@pytest.fixture(scope="module")
def exact_model() -> LlamaModel:
    return load(EMBEDDED, threads=THREADS, context_length=1024, exact=True)


def answer(
    target: LlamaTarget, prompt: list[int], oracle: list[int], seed: int
) -> tuple[list[int], Floats]:
    """Noisy greedy decoding with drafts of random length from `oracle`, one in six tokens wrong."""
    random = np.random.default_rng(seed)
    noise = np.random.default_rng(1).gumbel(size=(ANSWER + 1, target.vocabulary_size)) * 2
    list(target.prefill(prompt))
    seen = [target.last_row.logits[0].copy()]
    tokens = [int((seen[0] + noise[0]).argmax())]
    while len(tokens) < ANSWER:
        drafted = oracle[len(tokens) : len(tokens) + int(random.integers(0, target.max_rows))]
        drafted = [3 if random.random() < 1 / 6 else token for token in drafted]
        rows = target.verify(chain(tokens[-1], drafted, 1)).logits
        path: list[int] = []
        for row in range(len(rows)):
            path.append(row)
            seen.append(rows[row].copy())
            tokens.append(int((rows[row] + noise[len(tokens) % ANSWER]).argmax()))
            if row < len(drafted) and drafted[row] != tokens[-1]:
                break
        target.commit(path)
    return tokens[:ANSWER], np.stack(seen[:ANSWER])


def test_drafted_equals_plain_bit_by_bit_over_two_turns(exact_model: LlamaModel) -> None:
    target = exact_model.target
    assert target.chains_only
    first, first_logits = answer(target, PROMPT, [], 0)
    second, second_logits = answer(target, [*PROMPT, *first, 5, 6], [], 0)
    assert len(target.tokens) > 256, "the cache's padded length must change"
    for seed in (1, 2):
        target.rewind(0)
        drafted, logits = answer(target, PROMPT, first, seed)
        assert drafted == first
        assert np.array_equal(logits, first_logits)
        drafted, logits = answer(target, [*PROMPT, *first, 5, 6], second, seed)
        assert drafted == second
        assert np.array_equal(logits, second_logits)


def test_passes_are_padded_to_no_more_rows_than_agree(exact_model: LlamaModel) -> None:
    target = exact_model.target
    assert (target.padded_rows, target.max_rows) == (2, model_module.EXACT_ROWS), (
        "F16 agrees from two rows on"
    )


def test_full_context_is_reached(exact_model: LlamaModel) -> None:
    target = exact_model.target
    list(target.prefill([5] * (target.context_length - 1)))
    target.verify(chain(5, [], 1))
    target.commit([0])
    assert len(target.tokens) == target.context_length


def test_model_without_a_stable_width_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_module, "_is_stable", lambda target, width: False)
    with pytest.raises(ModelError, match="without --exact"):
        load(EMBEDDED, threads=THREADS, exact=True)


def test_an_unpadded_target_would_not_pass_the_trial(model: LlamaModel) -> None:
    assert not model_module._is_stable(model.target, 8), (
        "width 1 and wider differ, or the trial detects nothing"
    )

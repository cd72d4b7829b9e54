"""A loaded state equals reading the text, in every kind of memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from datastores.errors import ModelError
from engines.draft_tree import chain
from engines.llama.model import LlamaModel, load
from engines.llama.target import LlamaTarget
from engines.target import Floats
from tests.engines.conftest import EMBEDDED, THREADS
from tests.engines.tiny import TinyVocabulary, write_gemma, write_mamba

TEXT = [5 + index * 7 % 240 for index in range(150)]
PART = 64
ANSWER = 16
Open = Callable[[str], LlamaTarget]

KINDS = ("embedded", "exact", "quantised", "sliding", "recurrent")


@pytest.fixture(scope="module")
def open_target(model: LlamaModel, tmp_path_factory: pytest.TempPathFactory) -> Open:
    folder = tmp_path_factory.mktemp("models")
    words = TinyVocabulary()

    @cache
    def opened(kind: str) -> LlamaTarget:
        if kind == "embedded":
            return model.target
        if kind == "exact":
            return load(EMBEDDED, threads=THREADS, context_length=256, exact=True).target
        if kind == "quantised":
            return load(EMBEDDED, threads=THREADS, context_length=512, kv_type="q8_0").target
        if kind == "sliding":
            path = write_gemma(folder / "gemma.gguf", words, window=32)
        else:
            path = write_mamba(folder / "mamba.gguf", words)
        return load(path, threads=1, context_length=512).target

    def empty(kind: str) -> LlamaTarget:
        target = opened(kind)
        target.drop_parked()
        target.rewind(0)
        return target

    return empty


def states(target: LlamaTarget, size: int) -> list[tuple[list[int], np.ndarray]]:
    """The cached tokens and their states, in parts of `size` tokens."""
    tokens = list(target.tokens)
    parts = range(0, len(tokens), size)
    return [
        (tokens[start : start + size], target.save_state(start, min(start + size, len(tokens))))
        for start in parts
    ]


def answer(target: LlamaTarget, prompt: list[int]) -> tuple[list[int], Floats]:
    """Greedy decoding, with drafts of three tokens if the target verifies them."""
    list(target.prefill(prompt))
    rows = [target.last_row.logits[0].copy()]
    tokens = [int(rows[0].argmax())]
    drafted = min(3, target.max_rows - 1)
    while len(tokens) < ANSWER:
        logits = target.verify(chain(tokens[-1], [9] * drafted, 1)).logits
        rows.append(logits[0].copy())
        tokens.append(int(rows[-1].argmax()))
        target.commit([0])
    return tokens, np.stack(rows)


@pytest.mark.parametrize("kind", KINDS)
def test_loading_equals_reading(open_target: Open, kind: str) -> None:
    target = open_target(kind)
    list(target.prefill(TEXT))
    saved = states(target, PART if target.state_block else len(TEXT))
    follow_up = [*TEXT, 8, 9, 10]
    expected = answer(target, follow_up)

    open_target(kind)
    for tokens, state in saved:
        target.load_state(tokens, state)
    assert list(target.tokens) == TEXT
    tokens, logits = answer(target, follow_up)
    assert tokens == expected[0]
    assert np.array_equal(logits, expected[1]), "bit by bit"


def test_a_loaded_text_can_be_cut_anywhere(open_target: Open) -> None:
    target = open_target("embedded")
    list(target.prefill(TEXT))
    saved = states(target, PART)
    prompt = [*TEXT[:100], 8, 9, 10]
    target.rewind(0)
    expected, _ = answer(target, prompt)
    target.rewind(0)
    for tokens, state in saved[:2]:
        target.load_state(tokens, state)
    assert answer(target, prompt)[0] == expected


def test_parked_and_scratch_texts_survive(open_target: Open) -> None:
    target = open_target("embedded")
    list(target.prefill(TEXT[:120]))
    target.park()
    other = [TEXT[0], *range(900, 1000)]
    list(target.prefill(other))
    target.rewind(1)
    list(target.prefill(other))
    [(tokens, state)] = states(target, len(other))
    target.rewind(0)
    target.load_state(tokens, state)
    assert list(target.tokens) == other
    assert next(target.prefill([*TEXT[:120], 5])) == 121, "the parked text was not read again"


def test_a_state_that_is_refused_leaves_the_cache_as_it_was(open_target: Open) -> None:
    target = open_target("embedded")
    list(target.prefill(TEXT[:40]))
    state = target.save_state(0, 40)
    for wrong in (state[:100], np.zeros(64, np.uint8)):
        with pytest.raises(ModelError, match="refuses"):
            target.load_state([5] * 40, wrong)
        assert list(target.tokens) == TEXT[:40]
    with pytest.raises(ModelError, match="refuses"):
        target.load_state([5] * 41, state)
    expected = answer(target, TEXT[:40])[0]
    target.rewind(0)
    assert answer(target, TEXT[:40])[0] == expected


def test_a_state_key_depends_on_how_it_was_computed(open_target: Open) -> None:
    assert len({open_target(kind).state_key for kind in KINDS}) == len(KINDS)

"""States in the middle of a model are the same, however a text is divided and read."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from llama_cpp import llama_cpp as lib

from datastores.errors import ModelError
from engines.llama import layer_states
from engines.llama.batch import Batch, evaluate
from engines.llama.context import LlamaContext, Weights
from engines.llama.gguf import ARCHITECTURE
from engines.llama.layer_states import CELLS, MAX_ENDS, LlamaLayerStates
from engines.llama.model import LlamaModel
from engines.llama.target_states import (
    HAS_LAYER_INPUTS,
    LAYER_INPUT_ARCHITECTURES,
    LayerInputs,
)
from engines.target import StoppedError
from tests.engines.state_comparison import FIRST_TOKEN, assert_same, read_apart, texts
from tests.engines.tiny import (
    TinyVocabulary,
    write_gemma,
    write_gpt2,
    write_mixture,
    write_relative,
)
from tests.engines.tiny_recurrent import write_recurrent

WINDOW = 8

TINY: dict[str, Callable[[Path], Path]] = {
    "gemma2": lambda path: write_gemma(path, TinyVocabulary(), WINDOW),
    "mixture": lambda path: write_mixture(path, TinyVocabulary()),
    "qwen2": lambda path: write_relative(path, TinyVocabulary(), "qwen2"),
    "qwen3": lambda path: write_relative(path, TinyVocabulary(), "qwen3", blocks=3),
    "gemma3": lambda path: write_relative(path, TinyVocabulary(), "gemma3", blocks=4),
}
LAYERS = {"embedded": (0, 3, 6), "qwen3": (0, 1), "gemma3": (1, 2)}


@pytest.fixture(scope="module", params=["embedded", *TINY])
def states(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, model: LlamaModel
) -> LlamaLayerStates:
    """The states of the embedded model, or of a tiny one."""
    name = request.param
    layers = LAYERS.get(name, (0,))
    if name == "embedded":
        return LlamaLayerStates(model.target.weights, layers, 1)
    path = TINY[name](tmp_path_factory.mktemp("tiny") / f"{name}.gguf")
    return LlamaLayerStates(Weights(path), layers, 1)


@pytest.fixture(scope="module")
def windowed(tmp_path_factory: pytest.TempPathFactory) -> LlamaLayerStates:
    """The states of a model whose first block attends to the last tokens only."""
    path = TINY["gemma2"](tmp_path_factory.mktemp("windowed") / "a.gguf")
    return LlamaLayerStates(Weights(path), (0,), 1)


@pytest.mark.parametrize("cut", [0, 1, 19, 38, 39])
def test_a_text_is_read_as_a_whole_or_as_beginning_and_end(
    states: LlamaLayerStates, cut: int
) -> None:
    whole = texts(4, 40)
    split = np.concatenate([states.read(text[:cut], [text[cut:]]) for text in whole])
    assert_same(split, read_apart(states, (), whole))


def test_ends_are_read_beside_each_other_as_by_themselves(states: LlamaLayerStates) -> None:
    beginning, *others = texts(2 * MAX_ENDS + 2, 7)
    ends = [text[: 1 + number % 7] for number, text in enumerate(others)]
    assert len(ends) > 2 * MAX_ENDS
    assert_same(states.read(beginning, ends), read_apart(states, beginning, ends))


def test_more_tokens_than_fit_at_once(windowed: LlamaLayerStates) -> None:
    (beginning,), ends = texts(1, CELLS - 300), texts(4, 200)
    assert len(beginning) + sum(map(len, ends)) > CELLS
    apart = np.concatenate([windowed.read(beginning, [end]) for end in ends])
    assert_same(windowed.read(beginning, ends), apart)
    assert_same(windowed.read((), [[*beginning, *end] for end in ends]), apart)


def test_texts_are_at_most_as_long_as_those_of_the_models_training(tmp_path: Path) -> None:
    weights = Weights(write_gpt2(tmp_path / "a.gguf", TinyVocabulary(), context=64))
    states = LlamaLayerStates(weights, (0,), 1)
    assert states.max_tokens == 64 < CELLS
    (beginning,), ends = texts(1, 40), texts(5, 24)
    assert_same(states.read(beginning, ends), read_apart(states, beginning, ends))
    with pytest.raises(ValueError, match="an end of 25 tokens"):
        states.read(beginning, [[*ends[0], 5]])


def test_the_longest_texts_are_read(windowed: LlamaLayerStates) -> None:
    whole = texts(2, windowed.max_tokens)
    read = [windowed.read(text[:-1], [text[-1:]]) for text in whole]
    assert_same(np.concatenate(read), windowed.read((), whole))


def test_states_are_the_inputs_of_the_next_layer(model: LlamaModel) -> None:
    weights = model.target.weights
    if not HAS_LAYER_INPUTS or weights.metadata(ARCHITECTURE) not in LAYER_INPUT_ARCHITECTURES:
        pytest.skip("this llama.cpp does not give the inputs of such a model's layers")
    layers, (whole,) = (0, 3, model.layers - 2), texts(1, 24)
    context = LlamaContext(weights, 256, rows=32, threads=1)
    inputs = LayerInputs(context.handle, [one + 1 for one in layers], model.target.width)
    batch = Batch(len(whole))
    batch.fill([whole])
    evaluate(context.handle, batch, weights.path)
    expected = inputs.rows(range(len(whole))).reshape(len(whole), len(layers), -1)
    states = model.layer_states(layers)
    assert (states.layers, states.width) == (layers, model.target.width)
    read = states.read((), [whole[: place + 1] for place in range(len(whole))])
    assert_same(read, expected)


def test_the_models_own_cache_is_left_alone(model: LlamaModel) -> None:
    target, (whole, other) = model.target, texts(2, 30)
    list(target.prefill(whole))
    row = target.last_row.logits.copy(), target.last_row.hidden.copy()
    model.layer_states((3,)).read(other[:20], [other[20:], whole])
    assert list(target.tokens) == whole
    np.testing.assert_array_equal(target.last_row.logits, row[0])
    np.testing.assert_array_equal(target.last_row.hidden, row[1])
    target.rewind(len(whole) - 1)
    list(target.prefill(whole))
    np.testing.assert_allclose(target.last_row.logits, row[0], atol=0.02)


CALL = st.tuples(
    st.integers(0, 12),
    st.lists(st.integers(FIRST_TOKEN, FIRST_TOKEN + 1), max_size=6),
    st.lists(st.integers(1, 12), min_size=2, max_size=3, unique=True),
)
"""How much of the last call's beginning stays, what follows it, and lengths of ends."""


@settings(max_examples=25)
@given(calls=st.lists(CALL, min_size=2, max_size=5))
def test_states_do_not_depend_on_what_was_read_before(
    windowed: LlamaLayerStates, calls: list[tuple[int, list[int], list[int]]]
) -> None:
    beginning: list[int] = []
    (source,) = texts(1, 12)
    for kept, added, lengths in calls:
        beginning = beginning[:kept] + added
        ends = [source[:length] for length in lengths]
        read = windowed.read(beginning, ends)
        assert_same(read, read_apart(windowed, beginning, ends))
        windowed.read(beginning, ())


class StopAt:
    """Says stop when it is asked for the `number`th time, from 1, and only then."""

    def __init__(self, number: int = 0) -> None:
        self.number = number
        self.asked = 0

    def __call__(self) -> bool:
        self.asked += 1
        return self.asked == self.number


def test_a_stopped_read_does_no_harm_to_the_next(tmp_path: Path) -> None:
    states = LlamaLayerStates(Weights(TINY["gemma3"](tmp_path / "a.gguf")), (0, 2), 1)
    beginning, *ends = texts(MAX_ENDS + 2, 6)
    expected, asked = read_apart(states, beginning, ends), StopAt()
    states.read(beginning, ends, asked)
    # Of the beginning and two groups of ends, the layers from 0 to 2, and none above.
    assert asked.asked == 3 * 3
    for number in range(1, asked.asked + 1):
        states.read((), ends[:1])
        stop = StopAt(number)
        with pytest.raises(StoppedError):
            states.read(beginning, ends, stop)
        assert stop.asked == number
        assert_same(states.read(beginning, ends), expected)


def test_what_does_not_fit_is_refused(windowed: LlamaLayerStates) -> None:
    whole = texts(2, 8)
    expected = windowed.read((), whole)
    length = windowed.max_tokens
    for beginning, ends in (
        ([5], [[6], []]),
        ([5], [[6], [7] * length]),
        ([5] * length, [[6]]),
        ([5] * (length + 3), [[6]]),
    ):
        with pytest.raises(ValueError, match="an end of"):
            windowed.read(beginning, ends)
    assert windowed.read([5], []).shape == (0, 1, windowed.width)
    assert_same(windowed.read((), whole), expected)


def test_a_model_whose_memory_cannot_be_rewound_is_refused(tmp_path: Path) -> None:
    path = write_recurrent(tmp_path, "mamba2")
    with pytest.raises(ModelError, match=f"{path.name} cannot be read: its memory"):
        LlamaLayerStates(Weights(path), (0,), 1)


def test_a_model_whose_layers_have_no_names_is_refused(
    model: LlamaModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layer_states, "OUTPUT", "layer_output-")
    with pytest.raises(ModelError, match="does not output them"):
        model.layer_states((0,))


@pytest.mark.parametrize("beyond", [-1, 0, 5])
def test_layers_that_are_not_there_or_not_computed_are_refused(
    model: LlamaModel, beyond: int
) -> None:
    """llama.cpp computes the last layer for no row without logits."""
    with pytest.raises(ModelError, match="does not output them"):
        model.layer_states((0, model.layers + beyond))


def test_its_cache_is_freed_with_it_before_any_garbage_collection(
    model: LlamaModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    free, freed = lib.llama_free, []

    def note(handle: Any) -> None:
        freed.append(handle)
        free(handle)

    monkeypatch.setattr(lib, "llama_free", note)
    gc.disable()
    try:
        states = model.layer_states((0,))
        states.read((), [[5]])
        assert not freed
        del states
        assert len(freed) == 1
    finally:
        gc.enable()

"""States of a transformers model's layers equal its own, however a text is divided and read.

torch is imported by the tests that use it: collecting tests imports this file in every worker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from datastores.errors import ModelError
from engines.target import Floats, LayerStates, StoppedError
from tests.engines.hf.test_target import tiny
from tests.engines.state_comparison import assert_same, read_apart, texts

if TYPE_CHECKING:
    from engines.hf.layer_states import HfLayerStates

LENGTH = 20


@pytest.fixture(params=[False, True], ids=["full", "sliding"])
def sliding(request: pytest.FixtureRequest) -> bool:
    """Whether the layer that is read attends to the last tokens only."""
    return bool(request.param)


@pytest.fixture
def states(sliding: bool, monkeypatch: pytest.MonkeyPatch) -> HfLayerStates:
    """Those after the first layer of a tiny model, which reads seven tokens at a time."""
    from engines.hf import layer_states

    monkeypatch.setattr(layer_states, "CHUNK", 7)
    return layer_states.HfLayerStates(tiny(sliding).model, (0,))


def plain_states(sliding: bool, whole: list[list[int]]) -> Floats:
    """By transformers alone, without a cache."""
    import torch

    with torch.inference_mode():
        out = tiny(sliding).model(torch.tensor(whole), output_hidden_states=True, use_cache=False)
    return np.array(out.hidden_states[1][:, -1:].numpy())


@pytest.mark.parametrize("cut", [0, 1, 11, LENGTH - 1])
def test_a_text_is_read_as_a_whole_or_as_beginning_and_end(
    states: LayerStates, sliding: bool, cut: int
) -> None:
    whole = texts(3, LENGTH)
    expected = plain_states(sliding, whole)
    assert_same(read_apart(states, (), whole), expected)
    split = [states.read(text[:cut], [text[cut:]]) for text in whole]
    assert_same(np.concatenate(split), expected)


def test_states_do_not_depend_on_what_was_read_before(states: LayerStates, sliding: bool) -> None:
    whole = texts(4, LENGTH)
    for kept in (0, 9, 15, 4, 18, 2):
        changed = [whole[0][:kept] + text[kept:] for text in whole[1:]]
        read = states.read(whole[0][:kept], [text[kept:] for text in changed])
        assert_same(read, plain_states(sliding, changed))


def test_a_stopped_read_does_no_harm_to_the_next(states: LayerStates) -> None:
    beginning, *ends = texts(4, LENGTH)
    expected = read_apart(states, beginning, ends)
    for number in range(5):
        states.read((), ends[:1])
        stop = iter([*[False] * number, True]).__next__
        with pytest.raises(StoppedError):
            states.read(beginning, ends, stop)
        assert_same(states.read(beginning, ends), expected)


def test_what_does_not_fit_is_refused(states: LayerStates, sliding: bool) -> None:
    assert states.max_tokens == tiny(sliding).model.config.max_position_embeddings
    whole = texts(2, states.max_tokens)
    assert_same(read_apart(states, (), whole), plain_states(sliding, whole))
    for beginning, ends in ([5], [[6], []]), ([5] * states.max_tokens, [[6]]):
        with pytest.raises(ValueError, match="an end of"):
            states.read(beginning, ends)
    assert states.read([5], []).shape == (0, 1, states.width)


@pytest.mark.parametrize("layer", [-1, 1, 2])
def test_the_last_layer_and_missing_ones_are_refused(layer: int) -> None:
    from engines.hf.layer_states import HfLayerStates

    with pytest.raises(ModelError, match=rf"after its layers \(0, {layer}\)"):
        HfLayerStates(tiny(sliding=False).model, (0, layer))

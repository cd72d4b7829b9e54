"""The transformers target: one pass over a tree equals one pass over each path.

torch and transformers are imported by the tests that use them: collecting tests imports this file
in every worker.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datastores.errors import ModelError
from engines.draft_tree import DraftTree, chain, root_only
from engines.target import Floats

if TYPE_CHECKING:
    from engines.hf.target import HfTarget

VOCABULARY = 64
ASSET = Path(__file__).parents[3] / "assets" / "target-f16.gguf"


@cache
def tiny(sliding: bool) -> HfTarget:
    """Random weights, two layers; with `sliding`, one attends to the last four tokens only."""
    import torch
    from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config

    from engines.hf.target import HfTarget

    torch.manual_seed(7)
    shape: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 96,
        "initializer_range": 0.6,
    }
    config = (
        Qwen2Config(
            **shape,
            use_sliding_window=True,
            sliding_window=4,
            layer_types=["sliding_attention", "full_attention"],
        )
        if sliding
        else LlamaConfig(**shape)
    )
    return HfTarget(AutoModelForCausalLM.from_config(config), "tiny", 96)


def load(path: Path) -> HfTarget:
    from engines.hf.target import load_target

    return load_target(path)


def logits_after(target: HfTarget, tokens: list[int]) -> Floats:
    """Logits of the last of `tokens` by plain transformers, without a cache."""
    import torch

    with torch.inference_mode():
        out = target._model(input_ids=torch.tensor([tokens]), use_cache=False)
    return np.array(out.logits[0, -1].numpy())


@st.composite
def trees(draw: st.DrawFn) -> DraftTree:
    tree = root_only(draw(st.integers(0, VOCABULARY - 1)))
    for _ in range(draw(st.integers(0, 12))):
        parent = draw(st.integers(0, len(tree) - 1))
        free = sorted(set(range(VOCABULARY)) - set(tree.children()[parent]))
        tree.add(parent, draw(st.sampled_from(free)), 1, 0.5)
    return tree


def path_to(tree: DraftTree, row: int) -> list[int]:
    path = [row]
    while tree.parents[path[0]] >= 0:
        path.insert(0, tree.parents[path[0]])
    return path


@pytest.mark.parametrize("sliding", [False, True])
@settings(max_examples=12, deadline=None)
@given(tree=trees(), prompt=st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=9))
def test_every_row_of_a_tree_equals_plain_decoding_of_its_path(
    sliding: bool, tree: DraftTree, prompt: list[int]
) -> None:
    target = tiny(sliding)
    for _ in target.prefill(prompt):
        pass
    logits = np.array(target.verify(tree).logits)
    for row in range(len(tree)):
        words = prompt + [tree.tokens[r] for r in path_to(tree, row)]
        np.testing.assert_allclose(logits[row], logits_after(target, words), atol=2e-4)


@pytest.mark.parametrize("sliding", [False, True])
@settings(max_examples=12, deadline=None)
@given(tree=trees(), data=st.data())
def test_a_committed_path_leaves_the_cache_of_plain_decoding(
    sliding: bool, tree: DraftTree, data: st.DataObject
) -> None:
    target, prompt = tiny(sliding), [3, 1, 4, 1, 5]
    path = path_to(tree, data.draw(st.integers(0, len(tree) - 1)))
    for _ in target.prefill(prompt):
        pass
    target.verify(tree)
    target.commit(path)
    words = prompt + [tree.tokens[row] for row in path]
    assert list(target.tokens) == words
    after = target.verify(root_only(9)).logits[0]
    np.testing.assert_allclose(after, logits_after(target, [*words, 9]), atol=2e-4)


def test_hidden_states_times_the_head_give_the_logits() -> None:
    target = load(ASSET)
    for _ in target.prefill([5, 6, 7]):
        pass
    head = target._model.get_output_embeddings().weight.detach().numpy()
    rows = target.verify(chain(8, [9, 10], 1))
    np.testing.assert_allclose(rows.hidden @ head.T, rows.logits, atol=1e-4)


def test_prefill_reuses_the_common_prefix_and_can_be_interrupted() -> None:
    target, words = tiny(False), [n % VOCABULARY for n in range(90)]
    list(target.prefill(words))
    whole = np.array(target.last_row.logits)
    target.rewind(40)
    assert list(target.tokens) == words[:40]
    assert list(target.prefill(words)) == [90]
    np.testing.assert_allclose(target.last_row.logits, whole, atol=2e-4)
    next(iter(target.prefill([*words[:20], 1, 2])))
    assert list(target.tokens) == [*words[:20], 1, 2]


def test_the_last_row_is_fresh_even_where_all_is_cached() -> None:
    target = tiny(False)
    list(target.prefill([1, 2, 3]))
    before = np.array(target.last_row.logits)
    target.verify(root_only(4))
    list(target.prefill([1, 2, 3]))
    np.testing.assert_allclose(target.last_row.logits, before, atol=2e-4)


def test_a_saved_folder_loads_and_a_missing_one_is_refused(tmp_path: Path) -> None:
    tiny(False)._model.save_pretrained(tmp_path / "model")
    loaded = load(tmp_path / "model")
    np.testing.assert_allclose(
        logits_after(loaded, [1, 2, 3]), logits_after(tiny(False), [1, 2, 3]), atol=1e-5
    )
    with pytest.raises(ModelError, match="nowhere"):
        load(tmp_path / "nowhere")


def test_a_damaged_file_is_refused_in_one_line(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(ASSET.read_bytes()[:5000])
    with pytest.raises(ModelError) as refusal:
        load(broken)
    assert "broken.gguf" in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("settings", [{"use_cache": 1}, {"hidden_act": True}, {"vocab_size": {}}])
def test_absurd_settings_are_refused_in_one_line(
    tmp_path: Path, settings: dict[str, object]
) -> None:
    folder = tmp_path / "model"
    tiny(False)._model.save_pretrained(folder)
    config = folder / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), **settings}))
    with pytest.raises(ModelError, match=r"transformers cannot load .*model: ") as refusal:
        load(folder)
    assert "\n" not in str(refusal.value)

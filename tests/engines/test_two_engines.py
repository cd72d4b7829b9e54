"""Both engines give the same text and hidden states for the same weights, and the same errors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from datastores.errors import ContextOverflowError
from engines.budget.acceptance_model import AcceptanceModel
from engines.budget.cost_model import CostModel
from engines.budget.fixed import FixedBudget
from engines.chat_template.prompt_builder import Message
from engines.decode import StopCriteria, decode
from engines.draft_tree import chain, root_only
from engines.drafters.prompt_lookup import PromptLookup
from engines.drafters.protocol import Drafter
from engines.drafters.token_recycling import TokenRecycling
from engines.llama.model import LlamaModel
from engines.sampler import Sampling, make_sampler
from engines.target import Target
from tests.engines.conftest import EMBEDDED
from tests.engines.embedded_folder import write_embedded_folder
from tests.engines.state_comparison import assert_same, texts

if TYPE_CHECKING:
    from engines.hf.model import HfModel
    from engines.hf.target import HfTarget

QUESTIONS = (
    "How do I decode a file?",
    "What is tar?",
    "Show me how to rename a file or directory.",
    "Give me examples of git log.",
)
LENGTH = 60
NEAR = 0.02
"""Logits of the two engines differ by up to 0.006; a smaller gap than this may flip."""


@pytest.fixture(scope="module")
def other() -> HfTarget:
    # Imported here, as collecting tests imports this file in every worker.
    from engines.hf.target import load_target

    return load_target(EMBEDDED, device="cpu", context_length=1024)


def load(path: Path) -> HfModel:
    from engines.hf.model import load

    return load(path, device="cpu", context_length=512)


def answer(target: Target, prompt: list[int], stops: frozenset[int], draft: int) -> list[int]:
    for _ in target.prefill(prompt):
        pass
    drafters: list[Drafter] = [PromptLookup(), TokenRecycling()]
    budget = FixedBudget(draft, CostModel(), AcceptanceModel())
    steps = decode(
        target,
        drafters,
        budget,
        make_sampler(Sampling(temperature=0.0)),
        StopCriteria(stops, LENGTH),
    )
    return [token for step in steps for token in step.tokens]


def gap_after(target: Target, tokens: list[int]) -> float:
    """The likeliest next token's lead over the second."""
    for _ in target.prefill(tokens):
        pass
    second, first = np.sort(target.last_row.logits[0])[-2:]
    return float(first - second)


@pytest.fixture(params=["llama", "hf"])
def target(request: pytest.FixtureRequest, model: LlamaModel, other: HfTarget) -> Target:
    """Either engine, with a context of 1024 tokens."""
    return model.target if request.param == "llama" else other


def test_the_last_row_is_refused_after_another_pass(target: Target) -> None:
    list(target.prefill([5, 6, 7]))
    assert target.last_row.logits.shape == (1, target.vocabulary_size)
    target.verify(chain(8, [9], 1))
    with pytest.raises(RuntimeError, match="right after a finished prefill"):
        _ = target.last_row
    target.commit([0])
    with pytest.raises(RuntimeError, match="right after a finished prefill"):
        _ = target.last_row
    assert list(target.prefill([5, 6, 7, 8])) == [4]
    assert target.last_row.logits.shape == (1, target.vocabulary_size)
    target.rewind(2)
    with pytest.raises(RuntimeError, match="right after a finished prefill"):
        _ = target.last_row


def test_an_unfinished_prefill_has_no_last_row(target: Target) -> None:
    list(target.prefill([5, 6, 7]))
    reading = target.prefill([5, *range(300, 1000)])
    assert next(reading) < 700
    with pytest.raises(RuntimeError, match="right after a finished prefill"):
        _ = target.last_row


def test_what_exceeds_the_context_is_refused_and_leaves_the_cache(target: Target) -> None:
    with pytest.raises(ContextOverflowError, match="1025 tokens and the context 1024"):
        list(target.prefill([5] * 1025))
    with pytest.raises(ValueError, match="at least one token"):
        list(target.prefill([]))
    list(target.prefill([5] * 1023))
    with pytest.raises(ContextOverflowError, match="context of 1024 tokens is full"):
        target.verify(chain(5, [6], 1))
    target.verify(root_only(5))
    target.commit([0])
    assert len(target.tokens) == 1024
    with pytest.raises(ContextOverflowError, match="context of 1024 tokens is full"):
        target.verify(root_only(5))
    assert list(target.tokens) == [5] * 1024
    target.rewind(3)
    too_wide = chain(5, [6] * target.max_rows, 1)
    with pytest.raises(ValueError, match=f"at most {target.max_rows}"):
        target.verify(too_wide)


def test_a_commit_without_a_verified_tree_is_refused(target: Target) -> None:
    list(target.prefill([5, 6, 7]))
    with pytest.raises(RuntimeError, match="without a verified tree"):
        target.commit([0])


@pytest.fixture(scope="module")
def answers(model: LlamaModel) -> list[tuple[list[int], list[int]]]:
    """Prompts, and llama.cpp's plain answers."""
    prompts = [model.render([Message("user", question)]) for question in QUESTIONS]
    return [(given, answer(model.target, given, model.vocabulary.stops, 0)) for given in prompts]


@pytest.mark.parametrize("draft", [0, 8])
def test_both_engines_give_the_same_greedy_text(
    model: LlamaModel,
    other: HfTarget,
    answers: list[tuple[list[int], list[int]]],
    draft: int,
) -> None:
    forks = 0
    for prompt, one in answers:
        two = answer(other, prompt, model.vocabulary.stops, draft)
        if one != two:
            forks += 1
            length = next(n for n, (a, b) in enumerate(zip(one, two, strict=False)) if a != b)
            assert gap_after(model.target, prompt + one[:length]) < NEAR
    assert forks <= 1


def test_both_engines_give_the_same_hidden_states(model: LlamaModel, other: HfTarget) -> None:
    prompt = model.render([Message("user", QUESTIONS[0])])
    rows = []
    for target in (model.target, other):
        for _ in target.prefill(prompt):
            pass
        rows.append((target.last_row.hidden.copy(), target.last_row.logits.copy()))
    assert model.target.fingerprint == other.fingerprint
    for one, two in zip(*rows, strict=True):  # rounding grows with the values
        np.testing.assert_allclose(one, two, atol=0.002 * np.ptp(two))


def test_both_engines_read_the_same_states_of_layers(model: LlamaModel, other: HfTarget) -> None:
    from engines.hf.layer_states import HfLayerStates

    layers = (0, model.layers // 2, model.layers - 2)
    beginning, *ends = texts(6, 30)
    one, two = model.layer_states(layers), HfLayerStates(other.model, layers)
    assert (one.layers, one.width) == (two.layers, two.width)
    assert_same(one.read(beginning, ends), two.read(beginning, ends))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, other: HfTarget) -> Path:
    """With a second template, as for models that call tools."""
    path = write_embedded_folder(tmp_path_factory.mktemp("folder"), other)
    others = path / "additional_chat_templates"
    others.mkdir()
    (others / "tool_use.jinja").write_text("{{ tools }}")
    return path


def test_a_folder_tokenizes_and_answers_as_its_gguf_does(model: LlamaModel, folder: Path) -> None:
    loaded = load(folder)
    assert loaded.restrictions == model.restrictions == ()
    assert (loaded.norm_digest, loaded.layers) == (model.norm_digest, model.layers)
    assert loaded.target.fingerprint != model.target.fingerprint
    assert loaded.vocabulary.stops == model.vocabulary.stops
    assert loaded.vocabulary.size == model.vocabulary.size
    texts = ["Grüße, 世界!\n\n  `ls -la`", "<|im_start|>user", "a\ud800b", "", "  x  "]
    for text in texts:
        for special in (False, True):
            ids = model.vocabulary.encode(text, special=special)
            assert loaded.vocabulary.encode(text, special=special) == ids
    for token in range(model.vocabulary.size):
        assert loaded.vocabulary.piece(token) == model.vocabulary.piece(token)
    chat = [
        Message("user", QUESTIONS[0]),
        Message("assistant", "Yes."),
        Message("user", "<|im_end|>"),
    ]
    assert loaded.render(chat) == model.render(chat)
    stops, prompt = model.vocabulary.stops, model.render([Message("user", QUESTIONS[0])])
    assert answer(loaded.target, prompt, stops, 4) == answer(model.target, prompt, stops, 0)


def test_a_gguf_through_transformers_keeps_its_own_tokenizer(model: LlamaModel) -> None:
    loaded = load(EMBEDDED)
    assert loaded.vocabulary.fingerprint == model.vocabulary.fingerprint
    assert loaded.norm_digest == model.norm_digest
    chat = [Message("user", QUESTIONS[1])]
    assert loaded.render(chat) == model.render(chat)
    assert "cpu float32" in loaded.build

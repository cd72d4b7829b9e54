"""The head that the recipe trains is the one that llama.cpp runs."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from assets.recipe.prediction_head import (
    AnsweredChat,
    PredictionHead,
    draw_answers,
    export,
    head_loss,
    train,
    trunk_states,
)
from engines.distillation.model import Llama
from engines.distillation.weights import read_llama_file
from engines.llama.model import LlamaModel, load
from tests.engines.tiny import TinyVocabulary, write_llama

TOKENS = [5 + index * 7 % 240 for index in range(30)]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_llama(tmp_path_factory.mktemp("trunk") / "trunk.gguf", TinyVocabulary())


@pytest.fixture(scope="module")
def trunk(source: Path) -> Llama:
    return read_llama_file(source).model().requires_grad_(False)


@pytest.fixture(scope="module")
def model(source: Path, trunk: Llama) -> LlamaModel:
    """The trunk with an untrained head."""
    torch.manual_seed(3)
    path = source.with_name("with-head.gguf")
    export(trunk, PredictionHead(trunk), source, path)
    return load(path, threads=1, context_length=512, heads=True)


def test_the_trunk_computes_what_it_did(source: Path, model: LlamaModel) -> None:
    rows = []
    for one in (load(source, threads=1, context_length=512), model):
        list(one.target.prefill(TOKENS))
        rows.append(one.target.last_row.logits[0].copy())
    assert np.allclose(rows[0], rows[1], atol=0.02)


def test_llama_cpp_runs_the_head_as_training_does(trunk: Llama, model: LlamaModel) -> None:
    torch.manual_seed(3)
    head = PredictionHead(trunk)
    heads = model.target.heads
    assert heads is not None
    list(model.target.prefill(TOKENS[:-1]))
    heads.begin(TOKENS)
    first = heads.next_rows(TOKENS, 1)[0].copy()
    second = heads.next_rows([*TOKENS, 9], 1)[0].copy()
    ids = torch.tensor([[*TOKENS, 9]])
    cos, sin = trunk.cos[: len(ids[0])], trunk.sin[: len(ids[0])]
    states, embedded = trunk_states(trunk, ids), F.embedding(ids, trunk.embed_tokens)
    before = F.pad(states, (0, 0, 1, -1))
    for expected, at in ((first, -2), (second, -1)):
        said = head(embedded, before, cos, sin)[0]
        final = F.rms_norm(said[at], said.shape[-1:], head.norm, trunk.shape.epsilon)
        assert np.allclose(expected, trunk.logits(final).detach().numpy(), atol=0.05)
        before[0, -1] = said[-2]  # behind the root the head reads its own state


def test_training_lowers_the_loss(trunk: Llama) -> None:
    torch.manual_seed(3)
    head = PredictionHead(trunk)
    chats = [AnsweredChat([token + shift for token in TOKENS], 8) for shift in range(4)]
    before = head_loss(trunk, head, chats).item()
    train(trunk, head, chats, 0.5, seed=1)
    assert head_loss(trunk, head, chats).item() < before


def test_answers_are_drawn_behind_their_prompts(model: LlamaModel) -> None:
    found = list(islice(draw_answers(model, ["one", "two"], 1), 3))
    assert all(0 < chat.prompt < len(chat.tokens) for chat in found)

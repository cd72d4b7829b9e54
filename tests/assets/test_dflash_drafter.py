"""The DFlash drafter that the recipe trains is the one that llama.cpp runs."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from assets.recipe.dflash_drafter import (
    BLOCK,
    MASK,
    DFlashBlock,
    evaluate,
    export,
    losses,
    train,
)
from assets.recipe.drafter_training import TargetMatrices
from assets.recipe.eagle_data import ReadChat, read_layers
from engines.distillation.weights import LlamaFile, read_llama_file
from engines.llama.model import load
from tests.engines.tiny import WIDTH, TinyVocabulary
from tests.engines.tiny_heads import write_four_blocks

TEXT = [5 + index * 7 % 240 for index in range(40)]
PROMPT = 8


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_four_blocks(tmp_path / "llama.gguf", TinyVocabulary())


@pytest.fixture
def source(model: Path) -> LlamaFile:
    return read_llama_file(model)


@pytest.fixture
def matrices(source: LlamaFile) -> TargetMatrices:
    embeddings = source.weights["embed_tokens"]
    return TargetMatrices(embeddings, embeddings[5:200], torch.arange(5, 200))


@pytest.fixture
def drafter(source: LlamaFile) -> DFlashBlock:
    torch.manual_seed(3)
    drafter = DFlashBlock(source.shape)
    drafter.start_from(dict(source.weights), source.shape.layers)
    with torch.no_grad():
        for part in drafter.parameters():
            part.add_(0.1 * torch.randn_like(part))
    return drafter


@torch.no_grad()
def test_llama_cpp_runs_the_drafter_as_training_does(
    model: Path, drafter: DFlashBlock, matrices: TargetMatrices
) -> None:
    export(drafter, matrices, read_layers(4), model, model.with_name("llama-dflash.gguf"))
    target = load(model, threads=1, context_length=512, heads=True).target
    heads = target.heads
    assert heads is not None, target.heads_problem
    list(target.prefill(TEXT[:-1]))
    inputs = torch.from_numpy(heads._unread.rows.copy())
    heads.begin(TEXT)
    drafted = heads.next_rows(TEXT, BLOCK)[:, matrices.drafted]
    block = torch.tensor([TEXT[-1], *[MASK] * (BLOCK - 1)])
    embedded = F.embedding(block, matrices.embeddings)[None, None]
    states = drafter(inputs[None], torch.tensor([[len(TEXT) - 1]]), embedded)[0, 0]
    expected = F.linear(states, matrices.output).numpy()
    assert expected.shape == (BLOCK - 1, len(matrices.drafted))
    assert np.abs(np.diff(expected, axis=0)).max() > 0.5, "each place of the block differs"
    assert np.allclose(drafted, expected, atol=0.1)


def test_training_lowers_the_loss(drafter: DFlashBlock, matrices: TargetMatrices) -> None:
    rng = np.random.default_rng(1)
    chats = [
        ReadChat(
            np.roll(TEXT, shift),
            PROMPT,
            rng.normal(size=(len(TEXT) - 1, 3 * WIDTH)).astype(np.float16),
            rng.normal(size=(len(TEXT) - 1, WIDTH)).astype(np.float16),
        )
        for shift in range(3)
    ]
    before = losses(drafter, matrices, chats, Random(1))[0].item()
    train(drafter, matrices, chats, 0.5, seed=1)
    assert losses(drafter, matrices, chats, Random(1))[0].item() < before
    shares = evaluate(drafter, matrices, chats)
    assert len(shares) == BLOCK - 1
    assert all(0.0 <= share <= 1.0 for share in shares)

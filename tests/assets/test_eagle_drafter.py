"""The EAGLE-3 drafter that the recipe trains is the one that llama.cpp runs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from assets.recipe import eagle_data
from assets.recipe.eagle_data import ReadChat, draw_answers, load_chats, read_layers, read_states
from assets.recipe.eagle_drafter import (
    DEPTH,
    EagleBlock,
    TargetMatrices,
    draft_vocabulary,
    evaluate,
    export,
    losses,
    train,
)
from engines.distillation.weights import LlamaFile, read_llama_file
from engines.llama.model import load
from tests.engines.tiny import TinyVocabulary
from tests.engines.tiny_heads import write_eagle

DRAFTED = 30


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the states of two short answers."""
    folder = tmp_path_factory.mktemp("eagle")
    questions = [{"messages": [{"role": "user", "content": text}]} for text in ("one", "two")]
    (folder / "questions.jsonl").write_text("\n".join(map(json.dumps, questions)))
    source = write_eagle(folder, TinyVocabulary())
    source.with_name("llama-eagle3.gguf").unlink()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(eagle_data, "MAX_ANSWER", 12)
        draw_answers(source, folder / "questions.jsonl", folder, 60.0)
    read_states(source, folder, 60.0)
    return folder


@pytest.fixture(scope="module")
def source(work: Path) -> LlamaFile:
    return read_llama_file(work / "llama.gguf")


@pytest.fixture
def chats(work: Path) -> list[ReadChat]:
    return load_chats(work)


@pytest.fixture
def matrices(source: LlamaFile, chats: list[ReadChat]) -> TargetMatrices:
    embeddings = source.weights["embed_tokens"]
    drafted = draft_vocabulary(chats, len(embeddings))[-DRAFTED:]
    return TargetMatrices(embeddings, embeddings[drafted], drafted)


@pytest.fixture
def drafter(source: LlamaFile) -> EagleBlock:
    torch.manual_seed(3)
    drafter = EagleBlock(source.shape)
    drafter.start_from(dict(source.weights), source.shape.layers)
    return drafter


def test_both_steps_go_on_where_they_ended(work: Path, chats: list[ReadChat]) -> None:
    assert len(chats) == 2
    before = {path: path.stat().st_mtime_ns for path in work.rglob("*")}
    draw_answers(work / "llama.gguf", work / "questions.jsonl", work, 60.0)
    read_states(work / "llama.gguf", work, 60.0)
    assert {path: path.stat().st_mtime_ns for path in work.rglob("*")} == before
    for chat in chats:
        assert len(chat.tokens) == len(chat.inputs) == len(chat.hidden) == chat.prompt + 12


def test_logits_follow_from_the_states(source: LlamaFile, chats: list[ReadChat]) -> None:
    """The answers are greedy, so each token is the most probable one after those before it."""
    for chat in chats:
        logits = chat.hidden.astype(np.float32) @ source.weights["embed_tokens"].numpy().T
        assert np.array_equal(logits.argmax(1)[chat.prompt - 1 : -1], chat.tokens[chat.prompt :])


@torch.no_grad()
def test_llama_cpp_runs_the_drafter_as_training_does(
    work: Path, tmp_path: Path, drafter: EagleBlock, matrices: TargetMatrices, chats: list[ReadChat]
) -> None:
    """Along a draft, each token of which reads the states of those before it."""
    model = tmp_path / "llama.gguf"
    model.write_bytes((work / "llama.gguf").read_bytes())
    beside = tmp_path / "llama-eagle3.gguf"
    export(drafter, matrices.drafted, matrices.output, read_layers(4), model, beside)
    target, chat = load(model, threads=1, context_length=512, heads=True).target, chats[0]
    text = chat.tokens[: -DEPTH + 1].tolist()
    assert target.heads is not None
    list(target.prefill(text[:-1]))
    assert target.heads.begin(text) == len(text) - 1
    states = drafter.fuse(torch.from_numpy(chat.inputs[:-1]).float()[None])
    earlier: list[tuple[torch.Tensor, torch.Tensor]] = []
    tokens, root = F.pad(torch.from_numpy(chat.tokens[1:]), (0, DEPTH)), len(text) - 2
    for depth in range(DEPTH):
        drafted = target.heads.next_rows(text, 1)[0, matrices.drafted]
        embedded = matrices.embeddings[tokens[depth : depth + len(chat.tokens) - 1]][None]
        states = drafter(embedded, states, depth, earlier)
        expected = drafter.said(states, matrices.output)[0, root].numpy()
        assert np.allclose(drafted, expected, atol=0.1)
        text.append(int(tokens[root + depth + 1]))


def test_training_lowers_the_loss(
    drafter: EagleBlock, matrices: TargetMatrices, chats: list[ReadChat]
) -> None:
    before = losses(drafter, matrices, chats)[0].item()
    train(drafter, matrices, chats, 0.5, seed=1)
    assert losses(drafter, matrices, chats)[0].item() < before
    assert all(0.0 <= share <= 1.0 for share in evaluate(drafter, matrices, chats))

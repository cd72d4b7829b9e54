"""The EAGLE-3 drafter that the recipe trains is the one that llama.cpp runs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize

from assets.recipe import eagle_data
from assets.recipe.drafter_training import (
    TargetMatrices,
    divergence,
    draft_vocabulary,
    split,
)
from assets.recipe.eagle_block import EagleBlock
from assets.recipe.eagle_data import ReadChat, draw_answers, load_chats, read_layers
from assets.recipe.eagle_drafter import (
    DEPTHS,
    UpdateSchedule,
    draw_batches,
    evaluate,
    export,
    losses,
    read_rows,
    train,
)
from engines.distillation.weights import LlamaFile, read_llama_file
from engines.llama.model import load
from tests.engines.tiny import TinyVocabulary
from tests.engines.tiny_heads import write_eagle

DRAFTED = 30


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the states of three short answers."""
    folder = tmp_path_factory.mktemp("eagle")
    texts = ("one", "two and three", "four")
    questions = [{"messages": [{"role": "user", "content": text}]} for text in texts]
    (folder / "questions.jsonl").write_text("\n".join(map(json.dumps, questions)))
    source = write_eagle(folder, TinyVocabulary())
    source.with_name("llama-eagle3.gguf").unlink()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(eagle_data, "MAX_ANSWER", 12)
        patch.setattr(eagle_data, "BATCH", 2)
        draw_answers(source, folder / "questions.jsonl", folder, 60.0, temperature=0.0)
    return folder


@pytest.fixture(scope="module")
def source(work: Path) -> LlamaFile:
    return read_llama_file(work / "llama.gguf")


@pytest.fixture
def chats(work: Path) -> list[ReadChat]:
    return list(load_chats(work))


@pytest.fixture
def matrices(source: LlamaFile, chats: list[ReadChat]) -> TargetMatrices:
    embeddings = source.weights["embed_tokens"]
    drafted = draft_vocabulary(chats, len(embeddings))[-DRAFTED:]
    return TargetMatrices(embeddings, embeddings[drafted], drafted)


@pytest.fixture
def drafter(source: LlamaFile, chats: list[ReadChat]) -> EagleBlock:
    torch.manual_seed(3)
    drafter = EagleBlock(source.shape)
    rows = read_rows(chats, source.weights["embed_tokens"])
    drafter.start_linear(rows, source.weights["norm"])
    return drafter


def test_answers_go_on_where_they_ended(work: Path, chats: list[ReadChat]) -> None:
    assert len(chats) == 3
    questions, folder = work / "questions.jsonl", work / "answers"
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(eagle_data, "BATCH", 2)
        draw_answers(work / "llama.gguf", questions, work, 60.0, temperature=0.0)
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before
    for chat in chats:
        assert len(chat.inputs) == len(chat.hidden) == len(chat.tokens) - 1
        assert len(chat.tokens) == chat.prompt + 12


def test_logits_follow_from_the_states(source: LlamaFile, chats: list[ReadChat]) -> None:
    """The answers are greedy, so each token is the most probable one after those before it."""
    for chat in chats:
        logits = chat.hidden.astype(np.float32) @ source.weights["embed_tokens"].numpy().T
        assert np.array_equal(logits.argmax(1)[chat.prompt - 1 :], chat.tokens[chat.prompt :])


@torch.no_grad()
def test_llama_cpp_runs_the_drafter_as_training_does(
    work: Path, tmp_path: Path, drafter: EagleBlock, matrices: TargetMatrices, chats: list[ReadChat]
) -> None:
    """Along a draft, each token of which reads the states of those before it."""
    model = tmp_path / "llama.gguf"
    model.write_bytes((work / "llama.gguf").read_bytes())
    beside = tmp_path / "llama-eagle3.gguf"
    export(drafter, matrices.drafted, matrices.output, read_layers(4), model, beside)
    for name, weight in drafter.named_parameters():  # as the file rounds them
        if weight.ndim > 1 and name != "fc":
            kind = GGMLQuantizationType.Q4_0
            rounded = dequantize(quantize(weight.numpy(), kind), kind)
            weight.copy_(torch.from_numpy(rounded))
    target, chat = load(model, threads=1, context_length=512, heads=True).target, chats[0]
    text = chat.tokens[:-DEPTHS].tolist()
    assert target.heads is not None
    list(target.prefill(text[:-1]))
    assert target.heads.begin(text) == len(text) - 1
    rows = len(text) - 1
    tokens = torch.from_numpy(chat.tokens)[None]
    states = drafter.fuse(torch.from_numpy(chat.inputs[:rows]).float()[None])
    embedded = matrices.embeddings[tokens[:, 1 : rows + 1]]
    hidden = torch.zeros(drafter.shape.heads, rows, rows).masked_fill(
        torch.ones(rows, rows, dtype=torch.bool).triu(1), -torch.inf
    )
    earlier: list[tuple[torch.Tensor, torch.Tensor]] = []
    for _ in range(DEPTHS):
        drafted = target.heads.next_rows(text, 1)[0, matrices.drafted]
        states = drafter(embedded, states, rows, earlier, hidden)
        expected = drafter.said(states, matrices.output)[0, -1].numpy()
        assert np.allclose(drafted, expected, atol=0.1)
        # All roots draft the same token: only the last one's is compared.
        text.append(int(chat.tokens[len(text)]))
        embedded = matrices.embeddings[tokens[:, len(text) - 1]].expand(1, rows, -1)


def test_divergence_is_that_of_torch() -> None:
    generator = torch.Generator().manual_seed(2)
    logits, wanted = (3.0 * torch.randn(4, 7, generator=generator) for _ in range(2))
    ours, theirs = (logits.clone().requires_grad_() for _ in range(2))
    value = divergence(ours, wanted)
    expected = F.kl_div(
        theirs.log_softmax(-1), wanted.log_softmax(-1), reduction="batchmean", log_target=True
    )
    assert torch.allclose(value, expected)
    torch.autograd.backward([value, expected])
    assert ours.grad is not None
    assert theirs.grad is not None
    assert torch.allclose(ours.grad, theirs.grad, atol=1e-6)


@torch.no_grad()
def test_chats_side_by_side_count_as_each_alone(
    drafter: EagleBlock, matrices: TargetMatrices, chats: list[ReadChat]
) -> None:
    assert len({chat.prompt for chat in chats}) > 1
    with torch.autocast("cpu", torch.bfloat16):
        together, counts = losses(drafter, matrices, chats)
        alone = [losses(drafter, matrices, [chat]) for chat in chats]
    assert torch.allclose(together, torch.stack([loss for loss, _ in alone]).mean(), rtol=0.02)
    assert [of for _, of in counts] == [
        sum(of for _, of in each) for each in zip(*(each for _, each in alone), strict=True)
    ]


@torch.no_grad()
def test_the_block_begins_better_than_one_that_knows_nothing(
    source: LlamaFile, drafter: EagleBlock, matrices: TargetMatrices, chats: list[ReadChat]
) -> None:
    blocks = (drafter, EagleBlock(source.shape))
    with torch.autocast("cpu", torch.bfloat16):
        begun, ignorant = (losses(block, matrices, chats, 1)[0].item() for block in blocks)
    assert begun < 0.5 * ignorant


def test_training_lowers_the_loss(
    drafter: EagleBlock, matrices: TargetMatrices, chats: list[ReadChat]
) -> None:
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        before = losses(drafter, matrices, chats)[0].item()
    schedule = UpdateSchedule(12)
    train(drafter, matrices, chats, schedule, seconds=60.0)
    assert (schedule.done, schedule.depths) == (12, DEPTHS)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        assert losses(drafter, matrices, chats)[0].item() < before
    assert all(0.0 <= share <= 1.0 for share in evaluate(drafter, matrices, chats))


def test_batches_hold_every_chat_once(chats: list[ReadChat]) -> None:
    drawn = [chat for batch in draw_batches(chats, Random(1)) for chat in batch]
    assert sorted(map(id, drawn)) == sorted(map(id, chats))


def test_a_question_is_learned_from_or_held_out(chats: list[ReadChat]) -> None:
    learned, held_out = split(
        [replace(chats[0], tokens=np.append(number, chats[0].tokens)) for number in range(60)] * 2
    )
    assert len(learned) + len(held_out) == 120
    assert 0 < len(held_out) < len(learned)
    assert not {int(chat.tokens[0]) for chat in learned} & {int(c.tokens[0]) for c in held_out}

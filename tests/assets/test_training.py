"""Tokens, batches, the optimiser and the loop."""

from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from assets.recipe.batches import Corpus
from assets.recipe.pages import read_pages, split
from assets.recipe.prepare import make_chat, make_pool
from assets.recipe.settings import Schedule, Shape
from assets.recipe.tokens import IM_END, REPEATED_WEIGHT, WEIGHT_SCALE, encode_chats, render_prompt
from assets.recipe.training import (
    GUIDANCE_WEIGHT,
    MAX_HEAD_NORM,
    Progress,
    TrainingRun,
    clip_heads,
    make_distillation_loss,
    make_next_token_loss,
    orthogonalise,
    rate_factor,
)
from assets.recipe.turns import Turn
from assets.recipe.wording import Style
from engines.distillation.model import Llama

SHAPE = Shape(layers=1, width=64, hidden=64, vocabulary=400)
SHAPE_OF_TWO = replace(SHAPE, layers=2, copiers=(1,))
SCHEDULE = Schedule(tokens=8_000, step_tokens=1000, warm_steps=2)

NEXT_TOKEN = make_next_token_loss(SHAPE)


@pytest.fixture(scope="module")
def corpus(checkout: Path, tokenizer: Tokenizer) -> Corpus:
    pool = make_pool(split(read_pages(checkout)))
    rng = Random(1)
    return Corpus.join(encode_chats(tokenizer, [make_chat(pool, rng, Style()) for _ in range(150)]))


@pytest.mark.parametrize(
    "text", ["tar xf {{path/to/file12}}", "é → `x`\n```sh\nls\n```", " a  b\n"]
)
def test_any_text_comes_back(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_a_command_reads_the_same_in_a_page_and_in_a_fence(tokenizer: Tokenizer) -> None:
    command = "git commit {{[-m|--message]}} {{message12}}"
    plain = tokenizer.encode(command).ids
    between = tokenizer.encode(f"`{command}`").ids
    fenced = tokenizer.encode(f"```sh\n{command}\n```").ids
    assert between[1:-1] == plain
    assert any(fenced[at : at + len(plain)] == plain for at in range(len(fenced)))


def test_spans_of_a_chat_are_the_whole_chat(tokenizer: Tokenizer) -> None:
    chat = (Turn("user", "list files"), Turn("assistant", "Use `ls`.", 1.0))
    ids, weights, _, _ = encode_chats(tokenizer, [chat])[0]
    whole = render_prompt(chat).removesuffix("<|im_start|>assistant\n")
    assert ids.tolist() == tokenizer.encode(whole).ids
    ends = np.flatnonzero(ids == IM_END)
    assert weights[ends].tolist() == [0, WEIGHT_SCALE]


def test_the_first_word_of_an_answer_may_weigh_more(tokenizer: Tokenizer) -> None:
    chat = (Turn("user", "list files"), Turn("assistant", "Use `ls`.", 1.0, first=6.0))
    ids, weights, _, _ = encode_chats(tokenizer, [chat])[0]
    heavy = ids[weights == 6 * WEIGHT_SCALE].tolist()
    assert tokenizer.decode(heavy) == "Use"
    assert tokenizer.decode(ids[weights == WEIGHT_SCALE].tolist()).strip() == "`ls`."


def test_a_fenced_command_may_weigh_more(tokenizer: Tokenizer) -> None:
    answer = "Use `ls`. List:\n\n```sh\nls -l\n```"
    chat = (Turn("user", "list files"), Turn("assistant", answer, 1.0, command=3.0))
    ids, weights, _, _ = encode_chats(tokenizer, [chat])[0]
    assert tokenizer.decode(ids[weights == 3 * WEIGHT_SCALE].tolist()) == "ls -l"
    whole = render_prompt(chat).removesuffix("<|im_start|>assistant\n")
    assert ids.tolist() == tokenizer.encode(whole).ids


def test_only_repetitions_have_a_weight_outside_answers(tokenizer: Tokenizer) -> None:
    chat = (Turn("system", "xq zv xq zv"), Turn("user", "jk"), Turn("assistant", "ok", 1.0))
    ids, weights, _, _ = encode_chats(tokenizer, [chat])[0]
    light = ids[weights == round(REPEATED_WEIGHT * WEIGHT_SCALE)].tolist()
    assert tokenizer.decode(light).replace(" ", "") in ("xqzv", "qzv")


def test_an_epoch_holds_every_chat_once(corpus: Corpus) -> None:
    batches = corpus.batches(seed=3, most=512)
    wanted = len(corpus.starts) - 1
    rows = 0
    weight = 0.0
    while rows < wanted:
        batch = next(batches)
        rows += len(batch.ids)
        weight += float(batch.weights.sum())
    assert rows == wanted
    assert weight == pytest.approx(int(corpus.weights.sum()) / WEIGHT_SCALE, rel=1e-4)


def test_saved_arrays_come_back(corpus: Corpus, tmp_path: Path) -> None:
    corpus.save(tmp_path)
    loaded = Corpus.load(tmp_path)
    for name in ("ids", "weights", "copied", "chosen", "starts"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(corpus, name))


def test_a_head_is_clipped_to_the_maximum_norm() -> None:
    torch.manual_seed(0)
    matrix = torch.randn(128, 64)
    matrix[64:] *= 0.01
    before = matrix.clone()
    clip_heads(matrix)
    assert matrix[:64].norm() == pytest.approx(MAX_HEAD_NORM)
    torch.testing.assert_close(matrix[:64] / matrix[0, 0], before[:64] / before[0, 0])
    torch.testing.assert_close(matrix[64:], before[64:])


def test_the_guidance_loss_is_zero_where_a_head_can_only_attend_to_its_target() -> None:
    torch.manual_seed(0)
    model, ids = Llama(SHAPE.llama), torch.arange(6).unsqueeze(0)
    nowhere, first = torch.full((1, 6), -1), torch.full((1, 6), -1)
    first[0, 0] = 0
    last = nowhere.clone()
    last[0, 5] = 3
    assert model.forward_guided(ids, {0: nowhere})[1].item() == 0
    assert model.forward_guided(ids, {0: first})[1].item() == pytest.approx(0, abs=1e-6)
    assert model.forward_guided(ids, {0: last})[1].item() == pytest.approx(np.log(6), abs=0.1)
    torch.testing.assert_close(model.forward_guided(ids, {0: last})[0], model(ids))


def test_the_loss_includes_the_guidance_loss(corpus: Corpus) -> None:
    model = Llama(SHAPE_OF_TWO.llama)
    batch = next(batch for batch in corpus.batches(seed=9) if (batch.copied >= 0).any())
    loss = make_next_token_loss(SHAPE_OF_TWO)
    nowhere = torch.full_like(batch.copied, -1)
    free = loss(model, replace(batch, copied=nowhere, chosen=nowhere))
    missed = model.forward_guided(batch.ids, {0: batch.chosen, 1: batch.copied})[1]
    guided = loss(model, batch)
    assert missed.item() > 1
    assert guided.item() == pytest.approx((free + GUIDANCE_WEIGHT * missed).item(), rel=1e-4)


def test_orthogonalise_brings_singular_values_close_to_one() -> None:
    torch.manual_seed(0)
    values = torch.linalg.svdvals(orthogonalise(torch.randn(2, 96, 48)))
    assert values.min() > 0.5
    assert values.max() < 1.4


def test_the_rate_warms_up_holds_and_ends_at_zero() -> None:
    shares = [rate_factor(SCHEDULE, Progress(tokens=t, updates=9)) for t in (0, 3200, 4400, 8000)]
    assert shares == pytest.approx([1.0, 1.0, 0.5, 0.0])
    assert rate_factor(SCHEDULE, Progress()) == 0.5


def test_training_lowers_the_loss(corpus: Corpus, tmp_path: Path) -> None:
    run = TrainingRun(SHAPE, tmp_path)
    batch = next(corpus.batches(seed=9))
    before = NEXT_TOKEN(run.model, batch).item()
    run.train(corpus, replace(SCHEDULE, tokens=24_000), NEXT_TOKEN, seed=1)
    assert NEXT_TOKEN(run.model, batch).item() < 0.9 * before


def test_a_resumed_run_ends_where_an_unbroken_one_does(corpus: Corpus, tmp_path: Path) -> None:
    half = Schedule(tokens=4_000, step_tokens=1000, warm_steps=2, decay_from=0.0)
    whole = Schedule(tokens=8_000, step_tokens=1000, warm_steps=2, decay_from=0.0)
    broken = TrainingRun(SHAPE, tmp_path / "broken")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("assets.recipe.training.rate_factor", lambda *_: 1.0)
        broken.train(corpus, half, NEXT_TOKEN, seed=1)
        resumed = TrainingRun(SHAPE, tmp_path / "broken")
        assert resumed.progress == broken.progress
        resumed.train(corpus, whole, NEXT_TOKEN, seed=1)
        unbroken = TrainingRun(SHAPE, tmp_path / "unbroken")
        unbroken.train(corpus, whole, NEXT_TOKEN, seed=1)
    assert resumed.progress == unbroken.progress
    for name, weight in unbroken.optimiser.state.items():
        torch.testing.assert_close(resumed.optimiser.state[name], weight, rtol=1e-3, atol=1e-4)


def test_a_student_equal_to_its_teacher_has_nothing_to_learn(corpus: Corpus) -> None:
    torch.manual_seed(0)
    teacher = Llama(SHAPE.llama)
    loss = make_distillation_loss(teacher)(teacher, next(corpus.batches(seed=2)))
    gradients = torch.autograd.grad(loss, list(teacher.parameters()))
    assert max(float(each.abs().max()) for each in gradients) < 1e-3

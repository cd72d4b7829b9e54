"""Tokens, batches, the optimiser and the loop."""

from contextlib import closing
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from assets.recipe.batches import TrainingBatch, make_batches
from assets.recipe.chat_stream import ChatSource, EncodedChats, stream_chats
from assets.recipe.prepare import make_chat
from assets.recipe.settings import Schedule, Shape
from assets.recipe.tokens import (
    END_OF_TEXT,
    IM_END,
    NO_SOURCE,
    QUESTION_WEIGHT,
    REPEATED_WEIGHT,
    WEIGHT_SCALE,
    encode_chats,
    render_prompt,
)
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
from assets.recipe.turns import ChatTurn
from datastores.errors import InputError
from engines.distillation.model import Llama, _attend, _guidance_loss

SHAPE = Shape(layers=1, width=64, hidden=64, vocabulary=400)
SHAPE_OF_TWO = replace(SHAPE, layers=2, copiers=(1,))
SCHEDULE = Schedule(tokens=8_000, step_chats=5, warm_steps=2)

NEXT_TOKEN = make_next_token_loss(SHAPE)


@pytest.fixture(scope="module")
def source(
    checkout: Path, tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory
) -> ChatSource:
    path = tmp_path_factory.mktemp("source") / "tokenizer.json"
    tokenizer.save(str(path))
    return ChatSource(checkout, path, make_chat, chats=5, longest=512, seed=1)


@pytest.fixture(scope="module")
def steps(source: ChatSource) -> list[EncodedChats]:
    pool, tokenizer = source.load()
    return [source.draw(pool, tokenizer, step) for step in range(40)]


@pytest.fixture(scope="module")
def batch(steps: list[EncodedChats]) -> TrainingBatch:
    return next(each for each in make_batches(steps[0], 512) if (each.copied >= 0).any())


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
    chat = (ChatTurn("user", "list files"), ChatTurn("assistant", "Use `ls`.", 1.0))
    ids, weights, _, _ = encode_chats(tokenizer, [chat])[0]
    whole = render_prompt(chat).removesuffix("<|im_start|>assistant\n")
    assert ids.tolist() == tokenizer.encode(whole).ids
    ends = np.flatnonzero(ids == IM_END)
    assert weights[ends].tolist() == [round(QUESTION_WEIGHT * WEIGHT_SCALE), WEIGHT_SCALE]


def test_the_first_word_of_an_answer_may_weigh_more(tokenizer: Tokenizer) -> None:
    chat = (ChatTurn("user", "list files"), ChatTurn("assistant", "Use `ls`.", 1.0, first=6.0))
    ids, weights, _, _ = encode_chats(tokenizer, [chat])[0]
    heavy = ids[weights == 6 * WEIGHT_SCALE].tolist()
    assert tokenizer.decode(heavy) == "Use"
    assert tokenizer.decode(ids[weights == WEIGHT_SCALE].tolist()).strip() == "`ls`."


def test_a_fenced_command_may_weigh_more(tokenizer: Tokenizer) -> None:
    answer = "Use `ls`. List:\n\n```sh\nls -l\n```"
    chat = (ChatTurn("user", "list files"), ChatTurn("assistant", answer, 1.0, command=3.0))
    ids, weights, _, _ = encode_chats(tokenizer, [chat])[0]
    assert tokenizer.decode(ids[weights == 3 * WEIGHT_SCALE].tolist()) == "ls -l"
    whole = render_prompt(chat).removesuffix("<|im_start|>assistant\n")
    assert ids.tolist() == tokenizer.encode(whole).ids


def test_only_repetitions_have_a_weight_in_notes(tokenizer: Tokenizer) -> None:
    chat = (
        ChatTurn("system", "xq zv xq zv"),
        ChatTurn("user", "jk"),
        ChatTurn("assistant", "ok", 1.0),
    )
    ids, weights, _, _ = encode_chats(tokenizer, [chat])[0]
    light = ids[weights == round(REPEATED_WEIGHT * WEIGHT_SCALE)].tolist()
    assert tokenizer.decode(light).replace(" ", "") in ("xqzv", "qzv")


@pytest.mark.parametrize("most", [1, 512, 100_000])
def test_batches_hold_every_chat_once(steps: list[EncodedChats], most: int) -> None:
    chats = steps[0]
    batches = make_batches(chats, most)
    assert all(batch.tokens <= most or len(batch.ids) == 1 for batch in batches)
    rows = [(batch, row) for batch in batches for row in range(len(batch.ids))]
    order = np.argsort(np.diff(chats.starts), kind="stable")
    for (batch, row), index in zip(rows, order, strict=True):
        start, stop = chats.starts[index : index + 2]
        after = slice(start + 1, stop)
        weights = torch.zeros(batch.tokens).index_put((batch.rows,), batch.weights * WEIGHT_SCALE)
        for read, wanted, padding in (
            (batch.ids, chats.ids[start:stop], END_OF_TEXT),
            (weights.view_as(batch.ids), chats.weights[after], 0),
            (batch.copied, chats.copied[after], NO_SOURCE),
            (batch.chosen, chats.chosen[after], NO_SOURCE),
        ):
            np.testing.assert_allclose(read[row, : len(wanted)], wanted)
            assert (read[row, len(wanted) :] == padding).all()
        assert (batch.targets == batch.ids.flatten()[batch.rows + 1]).all()


def test_the_chats_of_a_step_are_the_same_in_any_process(
    source: ChatSource, steps: list[EncodedChats]
) -> None:
    with closing(stream_chats(source, first=3, processes=2)) as stream:
        drawn = list(islice(stream, 3))
    for got, wanted in zip(drawn, steps[3:6], strict=True):
        assert got.to_bytes() == wanted.to_bytes()
    assert steps[3].to_bytes() != steps[4].to_bytes()


def test_a_process_that_fails_ends_the_stream(source: ChatSource) -> None:
    impossible = replace(source, chats=0)
    with (
        closing(stream_chats(impossible, first=0, processes=1)) as stream,
        pytest.raises(InputError, match="ended early"),
    ):
        next(stream)


def test_a_head_is_clipped_to_the_maximum_norm() -> None:
    torch.manual_seed(0)
    matrix = torch.randn(128, 64)
    matrix[64:] *= 0.01
    before = matrix.clone()
    clip_heads(matrix)
    assert matrix[:64].norm() == pytest.approx(MAX_HEAD_NORM)
    torch.testing.assert_close(matrix[:64] / matrix[0, 0], before[:64] / before[0, 0])
    torch.testing.assert_close(matrix[64:], before[64:])


def test_attention_in_bf16_is_the_fused_kernels_in_float32() -> None:
    torch.manual_seed(1)
    rounded = torch.randn(3, 2, 4, 70, 64).bfloat16()
    answers = []
    for dtype in (torch.bfloat16, torch.float32):
        inputs = rounded.to(dtype).requires_grad_()
        mixed = _attend(inputs[0], inputs[1], inputs[2], 0)
        (gradient,) = torch.autograd.grad(mixed.float().square().sum(), inputs)
        answers.append((mixed.float(), gradient.float()))
    torch.testing.assert_close(answers[0][0], answers[1][0], atol=0.03, rtol=0.03)
    torch.testing.assert_close(answers[0][1], answers[1][1], atol=0.15, rtol=0.05)


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


def test_the_guidance_loss_is_minus_the_logarithm_of_the_attention() -> None:
    torch.manual_seed(0)
    q, k = torch.randn(2, 5, 64), torch.randn(2, 5, 64)
    wanted = torch.tensor([[-1, 0, 2, -1, 1], [0, 1, -1, 3, 4]])
    scores = (q @ k.mT / 8).masked_fill(torch.ones(5, 5).triu(1) > 0, -torch.inf)
    logs = scores.softmax(-1).log().gather(2, wanted.clamp(min=0).unsqueeze(2)).squeeze(2)
    torch.testing.assert_close(_guidance_loss(q, k, wanted), -logs[wanted >= 0].sum())


def test_the_loss_includes_the_guidance_loss(batch: TrainingBatch) -> None:
    model = Llama(SHAPE_OF_TWO.llama)
    loss = make_next_token_loss(SHAPE_OF_TWO)
    free = loss(model, replace(batch, guided=False))
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


def test_training_lowers_the_loss(
    steps: list[EncodedChats], batch: TrainingBatch, tmp_path: Path
) -> None:
    run = TrainingRun(SHAPE, tmp_path)
    before = NEXT_TOKEN(run.model, batch).item()
    run.train(cycle(steps), replace(SCHEDULE, tokens=24_000), NEXT_TOKEN)
    assert NEXT_TOKEN(run.model, batch).item() < 0.9 * before


def test_the_gradient_does_not_depend_on_the_batches(steps: list[EncodedChats]) -> None:
    model, loss = Llama(SHAPE_OF_TWO.llama), make_next_token_loss(SHAPE_OF_TWO)
    gradients = []
    for most in (1, 512, 100_000):
        total = torch.stack([loss(model, each) for each in make_batches(steps[0], most)]).sum()
        gradients.append(torch.autograd.grad(total, list(model.parameters())))
    for others in gradients[1:]:
        for one, other in zip(gradients[0], others, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)


def test_a_resumed_run_ends_where_an_unbroken_one_does(
    steps: list[EncodedChats], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = Schedule(tokens=4_000, step_chats=5)
    whole = replace(half, tokens=8_000)
    monkeypatch.setattr("assets.recipe.training.rate_factor", lambda *_: 1.0)
    broken = TrainingRun(SHAPE, tmp_path / "broken")
    broken.train(iter(steps), half, NEXT_TOKEN)
    resumed = TrainingRun(SHAPE, tmp_path / "broken")
    assert resumed.progress == broken.progress
    resumed.train(iter(steps[resumed.progress.updates :]), whole, NEXT_TOKEN)
    unbroken = TrainingRun(SHAPE, tmp_path / "unbroken")
    unbroken.train(iter(steps), whole, NEXT_TOKEN)
    assert resumed.progress == unbroken.progress
    for name, weight in unbroken.optimiser.state.items():
        torch.testing.assert_close(resumed.optimiser.state[name], weight, rtol=1e-3, atol=1e-4)


def test_training_pauses_when_its_time_is_over(steps: list[EncodedChats], tmp_path: Path) -> None:
    TrainingRun(SHAPE, tmp_path).train(iter(steps), SCHEDULE, NEXT_TOKEN, seconds=0)
    assert TrainingRun(SHAPE, tmp_path).progress == Progress()


def test_dropout_leaves_out_what_layers_add(batch: TrainingBatch, tmp_path: Path) -> None:
    run = TrainingRun(SHAPE, tmp_path)
    run.train(iter(()), replace(SCHEDULE, dropout=1.0), NEXT_TOKEN, seconds=0)
    embedded = torch.nn.functional.embedding(batch.ids, run.model.embed_tokens)
    bare = torch.nn.functional.rms_norm(embedded, (SHAPE.width,), run.model.norm, SHAPE.epsilon)
    torch.testing.assert_close(run.model(batch.ids), bare)
    run.train(iter(()), SCHEDULE, NEXT_TOKEN, seconds=0)
    assert not torch.allclose(run.model(batch.ids), bare)


def test_a_draft_model_equal_to_its_frozen_target_has_nothing_to_learn(
    batch: TrainingBatch,
) -> None:
    torch.manual_seed(0)
    frozen_target = Llama(SHAPE.llama)
    loss = make_distillation_loss(frozen_target)(frozen_target, batch)
    gradients = torch.autograd.grad(loss, list(frozen_target.parameters()))
    assert max(float(each.abs().max()) for each in gradients) < 1e-3

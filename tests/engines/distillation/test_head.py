"""A draft head is made from nothing, published as a draft model is, and drafts what it was
taught."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import accumulate, count, islice
from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGUFWriter

from datastores.errors import InputError, ModelError, SpecchatError, StoreError
from datastores.replay_buffer.states import encode
from datastores.replay_buffer.store import ReplayBuffer
from engines.distillation import gate, head_trainee, payoff
from engines.distillation import head as module
from engines.distillation import round as rounds
from engines.distillation.acceptance import WHOLE, answer_acceptances
from engines.distillation.head import (
    HeadModel,
    draft_vocabulary,
    make_head_batch,
    trainable,
)
from engines.distillation.head_trainee import HeadTrainee
from engines.distillation.output_matrix import OutputMatrix
from engines.distillation.payoff import PassCosts
from engines.distillation.reader import HeadReader
from engines.distillation.round import RoundResult, TrainingStep, run_round
from engines.distillation.trainer import TrainingSettings
from engines.distillation.versions import HEAD_FILE, Versions
from engines.drafters.head import MAX_DEPTH, HeadDrafter, HeadText, read_head
from engines.sampler import Sampling, greedy
from engines.step import Context
from tests.engines.distillation.workspace import ANSWER, PROMPT, Workspace, open_workspace
from tests.engines.tiny import write_tensors

SETTINGS = TrainingSettings(grown=0, rate=1e-2, epochs=1, older=1.0)
NEVER = frozenset[int]()


@pytest.fixture(scope="module", autouse=True)
def small() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        for name, size in (("STATE", 32), ("EMBEDDED", 16), ("RANK", 16), ("NEGATIVES", 32)):
            patched.setattr(module, name, size)
        patched.setattr(gate, "MIN_ACCEPTANCE", 0.0)  # so small a head hardly learns
        yield


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, small: None) -> Iterator[Workspace]:
    """Whose head has a version; to be read only."""
    with open_workspace(tmp_path_factory.mktemp("workspace")) as made:
        run(made, replace(SETTINGS, epochs=3))
        yield made


@pytest.fixture
def workspace(trained: Workspace, tmp_path: Path) -> Workspace:
    """The same answers, and no version yet."""
    return Workspace(trained.draft_model, tmp_path / "versions", trained.buffer)


def trainee(workspace: Workspace) -> HeadTrainee:
    return HeadTrainee(OutputMatrix(workspace.draft_model), "target", NEVER, WHOLE)


def run(workspace: Workspace, settings: TrainingSettings = SETTINGS) -> RoundResult:
    *_, result = run_round(
        workspace.buffer, trainee(workspace), workspace.folder, settings=settings
    )
    assert isinstance(result, RoundResult)
    return result


def versions(workspace: Workspace) -> Versions:
    return Versions(workspace.folder, HEAD_FILE)


def assert_nothing_published(workspace: Workspace) -> None:
    assert versions(workspace).all() == []
    assert not list(workspace.folder.glob(".partial*"))


def test_the_output_matrix_may_be_in_another_shard(workspace: Workspace, tmp_path: Path) -> None:
    first, second = (tmp_path / f"model-0000{number}-of-00002.gguf" for number in (1, 2))
    write_tensors(GGUFWriter(first, "llama"), first, {"blk.0.attn_norm": (32,)})
    shutil.copy(workspace.draft_model, second)
    tokens = np.arange(9)
    models = ((first, second), (workspace.draft_model,))
    found, whole = (OutputMatrix(*parts).rows(tokens) for parts in models)
    assert np.array_equal(found, whole)
    second.unlink()
    with pytest.raises(ModelError, match="cannot be read"):
        OutputMatrix(first, second)


def test_a_head_is_made_from_nothing(trained: Workspace) -> None:
    version = versions(trained).current_version()
    assert version is not None
    assert version.figures["acceptance"] > version.figures["acceptance_before"] == 0.0
    assert version.figures["tokens_per_step"] >= version.figures["tokens_per_step_before"] > 1.0
    assert version.origin == "target"
    assert "too few" in run(trained).reason


@pytest.mark.parametrize(("plain_s", "published"), [(10.0, True), (1e-9, False)])
def test_a_head_is_published_only_where_its_time_pays(
    workspace: Workspace, plain_s: float, published: bool
) -> None:
    """A pass of this target takes ten seconds, or less than any head."""
    costs = PassCosts(plain_s, [1.0] * (MAX_DEPTH + 2))
    trained = HeadTrainee(OutputMatrix(workspace.draft_model), "target", NEVER, WHOLE, costs)
    settings = replace(SETTINGS, epochs=3)
    *_, result = run_round(workspace.buffer, trained, workspace.folder, settings=settings)
    assert isinstance(result, RoundResult)
    assert (result.version is not None) == published
    attempt = versions(workspace).last_attempt()
    assert attempt is not None
    assert attempt.fruitless == (0 if published else 1)
    assert result.reason.startswith("" if published else "it would cost more time than it saves")


def test_a_head_is_not_refused_since_other_programs_had_the_cores(
    trained: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four of five steps are timed while they have to wait."""
    ticks = ((0.001 if step % 10 == 1 else 1.0) if step % 2 else 0.0 for step in count())
    clock = accumulate(ticks)
    monkeypatch.setattr(payoff, "perf_counter", lambda: next(clock))
    matrix = OutputMatrix(trained.draft_model)
    head = read_head(versions(trained).file(1), "target", matrix.width, matrix.size)
    records = list(trained.buffer.records(with_states=True))[:4]
    found = payoff.measure_payoff(head, records, PassCosts(1.0, [1.0] * (MAX_DEPTH + 2)))
    assert found.draft_s == pytest.approx(0.001)


def test_trainings_without_a_gain_are_counted(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "MIN_NEW", 0)
    for refused, fruitless in (("no gain", 1), ("no gain", 2), ("", 0), ("no gain", 1)):
        monkeypatch.setattr(rounds, "verdict", lambda *_, reason=refused: reason)
        run(workspace)
        attempt = versions(workspace).last_attempt()
        assert attempt is not None
        assert attempt.fruitless == fruitless


def test_numpy_drafts_what_torch_was_trained(trained: Workspace) -> None:
    path, matrix = versions(trained).file(1), OutputMatrix(trained.draft_model)
    head = read_head(path, "target", matrix.width, matrix.size)
    drafter, reader = HeadDrafter(head, NEVER), HeadReader(path, matrix)
    text = HeadText(head)
    for record in list(trained.buffer.records(with_states=True))[:2]:
        expected = reader.answer_logits(record)
        np.testing.assert_allclose(
            reader.acceptances(record, Sampling()),
            answer_acceptances(record, PROMPT + 1, expected, Sampling()),
            atol=1e-6,
        )
        tokens, states = record.tokens.tolist(), record.states.decoded()
        for place in range(ANSWER - 1):
            context = tokens[: PROMPT + place + 1]
            text.hidden = states[place]
            assert text.begin(context) == 1
            logits = text.next_rows(context, 1)[0, head.tokens]
            # The folded matrices are halves.
            np.testing.assert_allclose(logits, expected[place][head.tokens], atol=0.05)
            tree = drafter.propose(Context(context, states[place], 0.0), 6)
            assert tree.tokens[0] == context[-1]
            assert tree.drafted <= 6
            gap = np.diff(np.partition(logits, -2)[-2:])
            if tree.drafted and gap > 0.1:
                assert tree.tokens[1] == greedy(expected[place], 0, ())


def test_batches_hold_each_state_with_what_followed(workspace: Workspace) -> None:
    record = next(iter(workspace.buffer.records(with_states=True)))
    matrix = OutputMatrix(workspace.draft_model)
    every = np.arange(matrix.size)
    batch = make_head_batch([record], draft_vocabulary(matrix, every))
    tokens = record.tokens
    assert len(batch.hidden) == ANSWER - 1
    for row in range(ANSWER - 1):
        place = PROMPT + row
        assert batch.recent[row].tolist() == tokens[place - 3 : place + 1][::-1].tolist()
        following = tokens[place + 1 : place + 1 + module.UNROLL].tolist()
        assert batch.following[row, : len(following)].tolist() == following
        for depth, token in enumerate(following):
            chances = batch.chances[row, depth]
            assert 0.0 < chances.sum() <= 1.01
            assert batch.likely[row, depth, 0] == token
        assert batch.chances[row, len(following) :].sum() == 0
    narrow = make_head_batch([record], draft_vocabulary(matrix, every[:20]))
    assert (narrow.likely[narrow.chances > 0] < 20).all()


def test_records_without_states_teach_nothing(workspace: Workspace, tmp_path: Path) -> None:
    path, vocabulary = tmp_path / "replay.db", workspace.buffer.vocabulary
    with closing(ReplayBuffer.open(path, "target", vocabulary)) as buffer:
        for record in islice(workspace.buffer.records(), 30):
            assert not trainable(record)
            buffer.add("chat:1", record)
        other = Workspace(workspace.draft_model, workspace.folder, buffer)
        assert run(other).reason.startswith("0 new answers are too few")
    assert_nothing_published(workspace)


def test_a_loss_that_is_no_number_publishes_nothing(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nan(model: HeadModel, *_: object) -> torch.Tensor:
        return model.output.sum() * float("nan")

    monkeypatch.setattr(head_trainee, "head_loss", nan)
    with pytest.raises(ModelError, match=r"^[^\n]*diverged at step 0[^\n]*$"):
        run(workspace)
    assert_nothing_published(workspace)


def test_a_head_that_does_no_better_is_not_published(workspace: Workspace) -> None:
    assert run(workspace).version is not None
    workspace.folder.joinpath("attempt.json").unlink()
    result = run(workspace, replace(SETTINGS, rate=0.0))
    assert (result.version, result.reason) == (None, "no gain on new questions")


def test_a_killed_round_goes_on_where_it_was(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "SAVE_SECONDS", 0.0)
    killed = run_round(workspace.buffer, trainee(workspace), workspace.folder, settings=SETTINGS)
    for _ in range(5):
        step = next(killed)
    killed.close()
    assert_nothing_published(workspace)
    left = workspace.folder / ".partial-1"  # of one that was killed while it exported
    left.mkdir()
    (left / HEAD_FILE).write_bytes(b"\x08")
    resumed = list(
        run_round(workspace.buffer, trainee(workspace), workspace.folder, settings=SETTINGS)
    )
    assert isinstance(step, TrainingStep)
    assert len(resumed) - 1 == step.steps - 5
    assert versions(workspace).current_version() is not None
    assert not left.exists()


def test_a_full_disk_publishes_nothing(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise StoreError("cannot write head.safetensors: No space left on device")

    monkeypatch.setattr(head_trainee, "write_head", full)
    with pytest.raises(StoreError, match="No space left"):
        run(workspace)
    assert_nothing_published(workspace)


@pytest.mark.parametrize(
    ("target", "width", "size"), [("other", 0, 0), ("target", 1, 0), ("target", 0, 1)]
)
def test_the_head_of_another_model_is_refused_in_one_line(
    trained: Workspace, target: str, width: int, size: int
) -> None:
    matrix = OutputMatrix(trained.draft_model)
    with pytest.raises(InputError, match=r"^[^\n]*was made for another model[^\n]*$"):
        read_head(versions(trained).file(1), target, matrix.width + width, matrix.size + size)


@pytest.mark.parametrize("kept", [0, 100, -1])
def test_a_damaged_head_is_refused_in_one_line(
    trained: Workspace, workspace: Workspace, kept: int
) -> None:
    shutil.copytree(trained.folder, workspace.folder)
    path, matrix = versions(workspace).file(1), OutputMatrix(workspace.draft_model)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(SpecchatError, match=r"^[^\n]*not a draft head, or is damaged[^\n]*$"):
        read_head(path, "target", matrix.width, matrix.size)
    with pytest.raises(StoreError, match="is damaged"):
        versions(workspace).current_version()


def test_a_batch_of_unknown_states_still_teaches_tokens(workspace: Workspace) -> None:
    matrix = OutputMatrix(workspace.draft_model)
    record = next(trainee(workspace).records(workspace.buffer))
    zeros = encode(np.zeros((1, matrix.width), np.float32))
    vocabulary = draft_vocabulary(matrix, np.arange(64))
    batch = make_head_batch([replace(record, states=zeros)], vocabulary)
    loss = module.head_loss(HeadModel(matrix.width), batch, vocabulary)
    assert torch.isfinite(loss)

"""A round publishes a better draft model, or nothing."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from datastores.errors import InputError, ModelError, SpecchatError, StoreError
from datastores.replay_buffer.record import ReplayRecord
from datastores.storage.files import WorkLock
from engines.distillation import draft_model_trainee
from engines.distillation import round as rounds
from engines.distillation.acceptance import WHOLE
from engines.distillation.draft_model_trainee import DraftModelTrainee
from engines.distillation.gate import AnswerMean, Quality, Retention, measure_retention, verdict
from engines.distillation.holdout import measuring, split
from engines.distillation.losses import LOSSES, forward_kl
from engines.distillation.reader import evaluate
from engines.distillation.round import LOCK, PARENT_GONE, SAMPLER, RoundResult, TrainingStep
from engines.distillation.trainee import TrainingSplit
from engines.distillation.trainer import (
    Trainer,
    TrainingSettings,
    plan,
)
from engines.distillation.versions import Versions
from engines.distillation.weights import read_llama_file, write_llama_file
from engines.drafters.draft_model import DraftModel
from engines.fingerprint import fingerprint
from tests.engines.distillation.test_versions import publish
from tests.engines.distillation.workspace import (
    SETTINGS,
    Workspace,
    load_draft_model,
    make_records,
    make_target,
    open_workspace,
)

HASTY = replace(SETTINGS, epochs=1)


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with open_workspace(tmp_path) as made:
        yield made


def assert_nothing_published(workspace: Workspace) -> None:
    versions = Versions(workspace.folder)
    assert versions.all() == []
    assert versions.current_version() is None
    assert not list(workspace.folder.glob(".partial*"))


def test_a_round_publishes_a_draft_model_that_is_accepted_more_often(workspace: Workspace) -> None:
    result = workspace.run()
    versions = Versions(workspace.folder)
    version = versions.current_version()
    assert result.version == version is not None
    assert result.reason == ""
    figures = version.figures
    assert figures["acceptance"] > figures["acceptance_before"] + 0.005
    assert figures["tokens_per_step"] > figures["tokens_per_step_before"]
    assert figures["steps"] > 0
    assert [figures[name] for name in SAMPLER] == [1.0, 0.0, 1.0, 0.0]
    held_out = measuring(split(workspace.buffer.records()).held_out)
    trained = read_llama_file(versions.file(1)).model()
    assert evaluate(trained, held_out, WHOLE)[0] == pytest.approx(figures["acceptance"])
    assert sorted(path.name for path in workspace.folder.iterdir() if path.name != LOCK) == [
        "0001",
        "attempt.json",
        "current.json",
    ]
    assert (version.buffer, version.last_record) == (workspace.buffer.identity, 90)


def test_the_next_round_needs_new_answers_and_goes_on_from_the_last(workspace: Workspace) -> None:
    assert workspace.run().version is not None
    assert workspace.run().reason == "0 new answers are too few to learn from: 20 are needed"
    for record in make_records(make_target(workspace.draft_model, 1), 40, 2):
        workspace.buffer.add("chat:7", record)
    again = workspace.run()
    attempt = Versions(workspace.folder).last_attempt()
    assert attempt is not None
    assert (attempt.reason, attempt.last_record) == (again.reason, 130)
    if again.version is not None:
        assert (again.version.number, again.version.parent) == (2, 1)
        assert again.version.figures["older"] > 20


def test_new_neurons_learn_and_all_else_stays(workspace: Workspace) -> None:
    settings = replace(SETTINGS, grown=32, rate=1e-2, epochs=4)
    result = workspace.run(settings)
    assert result.reason == ""
    first = read_llama_file(workspace.draft_model)
    trained = read_llama_file(Versions(workspace.folder).file(1))
    assert trained.shape == replace(first.shape, hidden=first.shape.hidden + 32)
    for name, weight in first.weights.items():
        rows, columns = (*weight.shape, 0)[:2]
        kept = trained.weights[name][:rows]
        torch.testing.assert_close(kept[:, :columns] if columns else kept, weight)
    for record in make_records(make_target(workspace.draft_model, 1), 40, 2):
        workspace.buffer.add("chat:7", record)
    again = workspace.run(settings)
    if again.version is not None:  # it goes on with the same neurons
        assert read_llama_file(Versions(workspace.folder).file(2)).shape == trained.shape


def test_a_round_that_gains_nothing_publishes_nothing(workspace: Workspace) -> None:
    result = workspace.run(replace(SETTINGS, rate=0.0, epochs=1))
    assert (result.version, result.reason) == (None, "no gain on new questions")
    assert_nothing_published(workspace)
    assert "too few" in workspace.run().reason


def test_a_round_that_does_harm_publishes_nothing(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It learns to avoid what the target says."""
    monkeypatch.setitem(LOSSES, "lk", lambda log_p, log_q: -forward_kl(log_p, log_q).clamp(max=9))
    result = workspace.run(HASTY)
    assert "α on new questions fell from" in result.reason
    assert_nothing_published(workspace)


def test_few_answers_are_too_few_to_measure_with(tmp_path: Path) -> None:
    with open_workspace(tmp_path, answers=24) as workspace:
        reason = workspace.run().reason
        assert "too few" in reason
        assert_nothing_published(workspace)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_publishes_nothing(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, value: float
) -> None:
    monkeypatch.setitem(LOSSES, "lk", lambda log_p, log_q: log_q.sum(dim=1) * value)
    with pytest.raises(ModelError, match="diverged at step 0") as error:
        workspace.run()
    assert "\n" not in str(error.value)
    assert_nothing_published(workspace)


def test_a_killed_round_goes_on_where_it_was(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "SAVE_SECONDS", 0.0)
    killed = workspace.round()
    for _ in range(9):
        step = next(killed)
    killed.close()
    assert_nothing_published(workspace)
    resumed = list(workspace.round())
    assert isinstance(step, TrainingStep)
    assert len(resumed) - 1 == step.steps - 9
    unbroken = Workspace(workspace.draft_model, tmp_path / "other", workspace.buffer)
    assert unbroken.run().version is not None
    ours, theirs = (
        read_llama_file(Versions(each.folder).file(1)) for each in (workspace, unbroken)
    )
    for name, weight in theirs.weights.items():
        torch.testing.assert_close(ours.weights[name], weight, rtol=1e-3, atol=1e-4)


def test_a_damaged_checkpoint_begins_the_round_again(workspace: Workspace) -> None:
    workspace.folder.mkdir()
    removals = workspace.buffer.last_removal
    checkpoint = Versions(workspace.folder).checkpoint(workspace.buffer.identity, removals)
    checkpoint.write_bytes(b"\xff" * 100)
    assert workspace.run().version is not None


def test_what_was_trained_from_a_version_that_is_gone_is_not_published(
    workspace: Workspace,
) -> None:
    round_ = workspace.round()
    next(round_)
    versions = Versions(workspace.folder)
    publish(versions)
    *_, result = round_
    assert isinstance(result, RoundResult)
    assert (result.version, result.reason) == (None, PARENT_GONE)
    assert versions.current == 1
    assert versions.last_attempt() is None, "the same is learned again"


def test_what_learned_from_a_lost_buffer_is_no_parent(workspace: Workspace) -> None:
    """It may know chats that were deleted since; what is trained from it would know them too."""
    versions = Versions(workspace.folder)
    publish(versions)
    result = workspace.run()
    assert result.version is not None, "its weights would not even load"
    assert (result.version.number, result.version.parent) == (2, 0)
    assert result.version.origin == fingerprint(workspace.draft_model)


def test_a_checkpoint_of_other_sizes_is_not_continued(tmp_path: Path) -> None:
    def trainer(width: int) -> Trainer:
        model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, width))
        return Trainer(model, lambda _: 0.0, [], SETTINGS)

    path = tmp_path / "round.safetensors"
    saved, other, same = trainer(3), trainer(4), trainer(3)
    saved.save(path, "digest")
    before = {name: each.clone() for name, each in other.model.state_dict().items()}
    assert not other.resume(path, "digest")
    for name, weight in other.model.state_dict().items():
        assert torch.equal(weight, before[name])
    assert same.resume(path, "digest")


@pytest.mark.parametrize("part", [0.3, 0.6, 0.95])
def test_a_checkpoint_with_one_wrong_bit_is_not_continued(tmp_path: Path, part: float) -> None:
    def trainer() -> Trainer:
        return Trainer(torch.nn.Linear(64, 64), lambda _: 0.0, [], SETTINGS)

    path = tmp_path / "round.safetensors"
    trainer().save(path, "digest")
    content = bytearray(path.read_bytes())
    content[int(len(content) * part)] ^= 0x40
    path.write_bytes(content)
    assert not trainer().resume(path, "digest")


def test_another_vocabulary_publishes_nothing(workspace: Workspace) -> None:
    def refuse(path: Path) -> DraftModel:
        raise InputError(f"{path.name} cannot draft for this model: token 5 is 'a' to one model")

    with pytest.raises(InputError, match="token 5"):
        list(workspace.round(load=refuse))
    assert_nothing_published(workspace)


def test_a_trained_file_that_does_not_load_is_not_published(workspace: Workspace) -> None:
    def load(path: Path) -> DraftModel:
        if path != workspace.draft_model:
            raise ModelError(f"{path} does not run")
        return load_draft_model(path)

    with pytest.raises(ModelError, match="does not run"):
        list(workspace.round(HASTY, load))
    assert_nothing_published(workspace)


def test_a_full_disk_publishes_nothing(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise StoreError("cannot write draft-model.gguf: No space left on device")

    monkeypatch.setattr(draft_model_trainee, "write_llama_file", full)
    with pytest.raises(StoreError, match="No space left"):
        workspace.run(HASTY)
    assert_nothing_published(workspace)


def test_what_a_process_left_that_was_killed_while_exporting_is_removed(
    workspace: Workspace,
) -> None:
    left = workspace.folder / ".partial-1"
    left.mkdir(parents=True)
    (left / "draft-model.gguf").write_bytes(workspace.draft_model.read_bytes()[:1000])
    assert_published_is_whole(workspace)
    assert not left.exists()


def assert_published_is_whole(workspace: Workspace) -> None:
    assert workspace.run().version is not None
    assert Versions(workspace.folder).current_version() is not None


def test_two_processes_do_not_train_at_once(workspace: Workspace) -> None:
    workspace.folder.mkdir()
    lock = WorkLock(workspace.folder / LOCK)
    assert lock.acquire()
    with pytest.raises(StoreError, match="another process is training"):
        workspace.run()
    lock.release()
    assert_published_is_whole(workspace)


def test_what_the_draft_model_knew_is_not_lost(workspace: Workspace) -> None:
    """The base material is what the original draft model says itself; the buffer teaches
    otherwise."""
    base = make_records(read_llama_file(workspace.draft_model).model(), 60, 5)
    held_out = split(base).held_out
    before = evaluate(read_llama_file(workspace.draft_model).model(), held_out, WHOLE)[0]
    result = workspace.run(replace(SETTINGS, rate=1e-2, base=0.0), base)
    if result.version is None:
        assert result.reason
        assert_nothing_published(workspace)
    else:
        model = read_llama_file(Versions(workspace.folder).file(1)).model()
        after = evaluate(model, held_out, WHOLE)[0]
        assert after >= before - 0.01


def test_known_texts_are_learned_as_the_original_says_them(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = read_llama_file(workspace.draft_model).model()
    base = make_records(make_target(workspace.draft_model, 2), 30, 5)
    trained: list[Sequence[ReplayRecord]] = []

    def spy(
        new: Sequence[ReplayRecord],
        older: Sequence[ReplayRecord],
        known: Sequence[ReplayRecord],
        settings: TrainingSettings,
    ) -> list[list[ReplayRecord]]:
        trained.append(known)
        return plan(new, older, known, settings)

    monkeypatch.setattr(draft_model_trainee, "plan", spy)
    trainee = DraftModelTrainee(workspace.draft_model, load_draft_model, WHOLE)
    trainee.trainer(None, TrainingSplit(base, [], base, [], [], 30, 30, 0), SETTINGS)
    assert evaluate(original, base, WHOLE)[0] < 0.9
    assert evaluate(original, trained[0], WHOLE)[0] == pytest.approx(1.0, abs=1e-3)


def test_repeated_questions_are_replayed_first(workspace: Workspace) -> None:
    records = list(workspace.buffer.records())
    new, older = records[:10], records[10:]
    older[5] = replace(older[5], question=new[0].question)
    older[7] = replace(older[7], question=older[9].question)
    settings = replace(SETTINGS, epochs=3, older=0.5)
    trained = Counter(one.id for batch in plan(new, older, (), settings) for one in batch)
    twice = {one.id for one in (new[0], older[5], older[7], older[9])}
    assert all(trained[one] == 6 for one in twice)
    assert all(trained[one.id] == 3 for one in new[1:])
    assert trained.total() == 3 * (10 + 5 + 4)
    alone = plan(new, older, (), replace(settings, older=0.2))
    assert {one.id for batch in alone for one in batch} <= {
        one.id for one in (*new, older[5], older[7], older[9])
    }


def test_agreement_shows_what_acceptance_hides(workspace: Workspace) -> None:
    """A draft model that grows surer of what it knows gains α where it prefers more wrong
    tokens."""
    target = make_target(workspace.draft_model, 1)
    records = make_records(target, 10, 1)
    assert evaluate(target, records, WHOLE)[1] == 1.0
    assert 0.0 < evaluate(read_llama_file(workspace.draft_model).model(), records, WHOLE)[1] < 1.0
    assert evaluate(target, [], WHOLE) == (0.0, 0.0)
    assert measure_retention(target, [], WHOLE) is None
    known, better = Retention(0.8, 0.9), quality(0.7, 2.0, Retention(0.81, 0.88))
    assert verdict(quality(0.6, 1.9, known), better, known) == (
        "agreement on known texts fell from 0.9000 to 0.8800"
    )
    assert not verdict(quality(0.6, 1.9, known), replace(better, base=known), known)


def quality(acceptance: float, steps: float, base: Retention | None) -> Quality:
    """Of answers that are all alike: no difference is left to chance."""
    alike = (1.0,) * 4
    return Quality(AnswerMean((acceptance,) * 4, alike), AnswerMean((steps,) * 4, alike), base)


@pytest.mark.parametrize("gained", [0.001, 0.2])
def test_a_version_that_loses_more_than_it_gains_is_refused(gained: float) -> None:
    known, left = Retention(0.820, 0.880), Retention(0.803, 0.872)
    before, after = quality(0.219, 1.0, known), quality(0.219 + gained, 1.0, left)
    original = replace(known, acceptance=0.810)
    assert verdict(before, after, original) == (
        f"α rose by {gained:.4f} on new questions and fell by 0.0170 on known ones"
    )
    assert not verdict(before, replace(after, base=known), original)


def test_what_chance_explains_is_no_fall() -> None:
    before, same = AnswerMean((3.0, 5.0, 4.0), (5.0, 6.0, 7.0)), AnswerMean((4.0,) * 3, (1.0,) * 3)
    mixed = AnswerMean((4.0, 3.9, 4.0), before.counts)  # one better, one worse
    worse = AnswerMean((2.9, 4.9, 3.9), before.counts)
    assert before.value - mixed.value == pytest.approx(0.1 / 18)
    assert before.error_of_change(mixed) > 0.05
    assert before.error_of_change(worse) < before.value - worse.value
    gain = replace(same, totals=(4.1,) * 3)
    assert not verdict(Quality(before, same, None), Quality(mixed, gain, None), None)
    assert verdict(Quality(before, same, None), Quality(mixed, same, None), None) == (
        "no gain on new questions"
    )
    assert verdict(Quality(before, same, None), Quality(worse, gain, None), None) == (
        "α on new questions fell from 0.6667 to 0.6500"
    )
    assert verdict(Quality(same, before, None), Quality(gain, worse, None), None) == (
        "tokens per step on new questions fell from 0.6667 to 0.6500"
    )


def test_what_is_hardly_ever_accepted_is_refused() -> None:
    """Random answers: α on others like them rises by chance."""
    before, after = quality(0.019, 1.0, None), quality(0.020, 1.0, None)
    assert verdict(before, after, None) == "α on new questions is 0.0200: too little to draft"
    assert not verdict(before, quality(0.2, 1.0, None), None)


def test_damaged_answers_are_counted(workspace: Workspace) -> None:
    with workspace.buffer.store.writing() as db:
        db.execute("UPDATE records SET packed = zeroblob(size) WHERE id > 10")
    assert workspace.run().reason == (
        "10 new answers are too few to learn from: 20 are needed; 80 damaged ones were left out"
    )


def test_a_draft_model_whose_weights_are_not_numbers_is_refused(workspace: Workspace) -> None:
    weights = dict(read_llama_file(workspace.draft_model).weights)
    weights["norm"] = weights["norm"] * float("nan")
    write_llama_file(workspace.draft_model, weights, workspace.folder.with_name("nan.gguf"))
    workspace.draft_model = workspace.folder.with_name("nan.gguf")
    with pytest.raises(ModelError, match="is damaged: its weights are not numbers"):
        workspace.run()
    assert_nothing_published(workspace)


def test_every_error_is_one_of_ours(workspace: Workspace) -> None:
    workspace.draft_model.write_bytes(b"GGUF")
    with pytest.raises(SpecchatError):
        workspace.run()
    assert_nothing_published(workspace)


def test_a_result_says_what_it_cost(workspace: Workspace) -> None:
    result = workspace.run(HASTY)
    assert isinstance(result, RoundResult)
    assert result.seconds > 0

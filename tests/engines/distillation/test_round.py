"""A round publishes a better student, or nothing."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from datastores.errors import InputError, ModelError, SpecchatError, StoreError
from datastores.replay_buffer.record import ReplayRecord
from datastores.storage.files import WorkLock
from engines.distillation import round as rounds
from engines.distillation import student_pupil
from engines.distillation.gate import AnswerMean, Quality, Retention, measure_retention, verdict
from engines.distillation.holdout import measuring, split
from engines.distillation.losses import LOSSES, forward_kl
from engines.distillation.pupil import Lesson
from engines.distillation.round import LOCK, PARENT_GONE, RoundResult, TrainingStep
from engines.distillation.student_pupil import StudentPupil
from engines.distillation.trainer import (
    Trainer,
    TrainingSettings,
    evaluate,
    plan,
)
from engines.distillation.versions import Versions
from engines.distillation.weights import read_student, write_student
from engines.drafters.student import Student
from engines.fingerprint import fingerprint
from tests.engines.distillation.school import (
    SETTINGS,
    School,
    load_student,
    make_records,
    make_teacher,
    open_school,
)
from tests.engines.distillation.test_versions import publish

HASTY = replace(SETTINGS, epochs=1)


@pytest.fixture
def school(tmp_path: Path) -> Iterator[School]:
    with open_school(tmp_path) as made:
        yield made


def assert_nothing_published(school: School) -> None:
    versions = Versions(school.folder)
    assert versions.all() == []
    assert versions.current_version() is None
    assert not list(school.folder.glob(".partial*"))


def test_a_round_publishes_a_student_that_is_accepted_more_often(school: School) -> None:
    result = school.run()
    versions = Versions(school.folder)
    version = versions.current_version()
    assert result.version == version is not None
    assert result.reason == ""
    figures = version.figures
    assert figures["acceptance"] > figures["acceptance_before"] + 0.005
    assert figures["tokens_per_call"] > figures["tokens_per_call_before"]
    assert figures["steps"] > 0
    held_out = measuring(split(school.buffer.records()).held_out)
    trained = read_student(versions.file(1)).model()
    assert evaluate(trained, held_out)[0] == pytest.approx(figures["acceptance"])
    assert sorted(path.name for path in school.folder.iterdir() if path.name != LOCK) == [
        "0001",
        "attempt.json",
        "current.json",
    ]
    assert (version.buffer, version.last_record) == (school.buffer.identity, 90)


def test_the_next_round_needs_new_answers_and_goes_on_from_the_last(school: School) -> None:
    assert school.run().version is not None
    assert school.run().reason == "0 new answers are too few to learn from: 20 are needed"
    for record in make_records(make_teacher(school.student, 1), 40, 2):
        school.buffer.add("chat:7", record)
    again = school.run()
    attempt = Versions(school.folder).last_attempt()
    assert attempt is not None
    assert (attempt.reason, attempt.last_record) == (again.reason, 130)
    if again.version is not None:
        assert (again.version.number, again.version.parent) == (2, 1)
        assert again.version.figures["older"] > 20


def test_new_neurons_learn_and_all_else_stays(school: School) -> None:
    settings = replace(SETTINGS, grown=32, rate=1e-2, epochs=4)
    result = school.run(settings)
    assert result.reason == ""
    first = read_student(school.student)
    trained = read_student(Versions(school.folder).file(1))
    assert trained.shape == replace(first.shape, hidden=first.shape.hidden + 32)
    for name, weight in first.weights.items():
        rows, columns = (*weight.shape, 0)[:2]
        kept = trained.weights[name][:rows]
        torch.testing.assert_close(kept[:, :columns] if columns else kept, weight)
    for record in make_records(make_teacher(school.student, 1), 40, 2):
        school.buffer.add("chat:7", record)
    again = school.run(settings)
    if again.version is not None:  # it goes on with the same neurons
        assert read_student(Versions(school.folder).file(2)).shape == trained.shape


def test_a_round_that_gains_nothing_publishes_nothing(school: School) -> None:
    result = school.run(replace(SETTINGS, rate=0.0, epochs=1))
    assert (result.version, result.reason) == (None, "no gain on new questions")
    assert_nothing_published(school)
    assert "too few" in school.run().reason


def test_a_round_that_does_harm_publishes_nothing(
    school: School, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It learns to avoid what the target says."""
    monkeypatch.setitem(LOSSES, "lk", lambda log_p, log_q: -forward_kl(log_p, log_q).clamp(max=9))
    result = school.run(HASTY)
    assert "α on new questions fell from" in result.reason
    assert_nothing_published(school)


def test_few_answers_are_too_few_to_measure_with(tmp_path: Path) -> None:
    with open_school(tmp_path, answers=24) as school:
        reason = school.run().reason
        assert "too few" in reason
        assert_nothing_published(school)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_publishes_nothing(
    school: School, monkeypatch: pytest.MonkeyPatch, value: float
) -> None:
    monkeypatch.setitem(LOSSES, "lk", lambda log_p, log_q: log_q.sum(dim=1) * value)
    with pytest.raises(ModelError, match="diverged at step 0") as error:
        school.run()
    assert "\n" not in str(error.value)
    assert_nothing_published(school)


def test_a_killed_round_goes_on_where_it_was(
    school: School, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "SAVE_SECONDS", 0.0)
    killed = school.round()
    for _ in range(9):
        step = next(killed)
    killed.close()
    assert_nothing_published(school)
    resumed = list(school.round())
    assert isinstance(step, TrainingStep)
    assert len(resumed) - 1 == step.steps - 9
    unbroken = School(school.student, tmp_path / "other", school.buffer)
    assert unbroken.run().version is not None
    ours, theirs = (read_student(Versions(each.folder).file(1)) for each in (school, unbroken))
    for name, weight in theirs.weights.items():
        torch.testing.assert_close(ours.weights[name], weight, rtol=1e-3, atol=1e-4)


def test_a_damaged_checkpoint_begins_the_round_again(school: School) -> None:
    school.folder.mkdir()
    removals = school.buffer.last_removal
    checkpoint = Versions(school.folder).checkpoint(school.buffer.identity, removals)
    checkpoint.write_bytes(b"\xff" * 100)
    assert school.run().version is not None


def test_what_was_trained_from_a_version_that_is_gone_is_not_published(school: School) -> None:
    round_ = school.round()
    next(round_)
    versions = Versions(school.folder)
    publish(versions)
    *_, result = round_
    assert isinstance(result, RoundResult)
    assert (result.version, result.reason) == (None, PARENT_GONE)
    assert versions.current == 1
    assert versions.last_attempt() is None, "the same is learned again"


def test_what_learned_from_a_lost_buffer_is_no_parent(school: School) -> None:
    """It may know chats that were deleted since; what is trained from it would know them too."""
    versions = Versions(school.folder)
    publish(versions)
    result = school.run()
    assert result.version is not None, "its weights would not even load"
    assert (result.version.number, result.version.parent) == (2, 0)
    assert result.version.origin == fingerprint(school.student)


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


def test_another_vocabulary_publishes_nothing(school: School) -> None:
    def refuse(path: Path) -> Student:
        raise InputError(f"{path.name} cannot draft for this model: token 5 is 'a' to one model")

    with pytest.raises(InputError, match="token 5"):
        list(school.round(load=refuse))
    assert_nothing_published(school)


def test_a_trained_file_that_does_not_load_is_not_published(school: School) -> None:
    def load(path: Path) -> Student:
        if path != school.student:
            raise ModelError(f"{path} does not run")
        return load_student(path)

    with pytest.raises(ModelError, match="does not run"):
        list(school.round(HASTY, load))
    assert_nothing_published(school)


def test_a_full_disk_publishes_nothing(school: School, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise StoreError("cannot write student.gguf: No space left on device")

    monkeypatch.setattr(student_pupil, "write_student", full)
    with pytest.raises(StoreError, match="No space left"):
        school.run(HASTY)
    assert_nothing_published(school)


def test_what_a_process_left_that_was_killed_while_exporting_is_removed(school: School) -> None:
    left = school.folder / ".partial-1"
    left.mkdir(parents=True)
    (left / "student.gguf").write_bytes(school.student.read_bytes()[:1000])
    assert_published_is_whole(school)
    assert not left.exists()


def assert_published_is_whole(school: School) -> None:
    assert school.run().version is not None
    assert Versions(school.folder).current_version() is not None


def test_two_processes_do_not_train_at_once(school: School) -> None:
    school.folder.mkdir()
    lock = WorkLock(school.folder / LOCK)
    assert lock.acquire()
    with pytest.raises(StoreError, match="another process is training"):
        school.run()
    lock.release()
    assert_published_is_whole(school)


def test_what_the_student_knew_is_not_lost(school: School) -> None:
    """The base material is what the original student says itself; the buffer teaches otherwise."""
    base = make_records(read_student(school.student).model(), 60, 5)
    held_out = split(base).held_out
    before = evaluate(read_student(school.student).model(), held_out)[0]
    result = school.run(replace(SETTINGS, rate=1e-2, base=0.0), base)
    if result.version is None:
        assert result.reason
        assert_nothing_published(school)
    else:
        after = evaluate(read_student(Versions(school.folder).file(1)).model(), held_out)[0]
        assert after >= before - 0.01


def test_known_texts_are_learned_as_the_original_says_them(
    school: School, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = read_student(school.student).model()
    base = make_records(make_teacher(school.student, 2), 30, 5)
    taught: list[Sequence[ReplayRecord]] = []

    def spy(
        new: Sequence[ReplayRecord],
        older: Sequence[ReplayRecord],
        known: Sequence[ReplayRecord],
        settings: TrainingSettings,
    ) -> list[list[ReplayRecord]]:
        taught.append(known)
        return plan(new, older, known, settings)

    monkeypatch.setattr(student_pupil, "plan", spy)
    pupil = StudentPupil(school.student, load_student)
    pupil.trainer(None, Lesson(base, [], base, [], [], 30, 30, 0), SETTINGS)
    assert evaluate(original, base)[0] < 0.9
    assert evaluate(original, taught[0])[0] == pytest.approx(1.0, abs=1e-3)


def test_repeated_questions_are_replayed_first(school: School) -> None:
    records = list(school.buffer.records())
    new, older = records[:10], records[10:]
    older[5] = replace(older[5], question=new[0].question)
    older[7] = replace(older[7], question=older[9].question)
    settings = replace(SETTINGS, epochs=3, older=0.5)
    taught = Counter(one.id for batch in plan(new, older, (), settings) for one in batch)
    twice = {one.id for one in (new[0], older[5], older[7], older[9])}
    assert all(taught[one] == 6 for one in twice)
    assert all(taught[one.id] == 3 for one in new[1:])
    assert taught.total() == 3 * (10 + 5 + 4)
    alone = plan(new, older, (), replace(settings, older=0.2))
    assert {one.id for batch in alone for one in batch} <= {
        one.id for one in (*new, older[5], older[7], older[9])
    }


def test_agreement_shows_what_acceptance_hides(school: School) -> None:
    """A student that grows surer of what it knows gains α where it prefers more wrong tokens."""
    teacher = make_teacher(school.student, 1)
    records = make_records(teacher, 10, 1)
    assert evaluate(teacher, records)[1] == 1.0
    assert 0.0 < evaluate(read_student(school.student).model(), records)[1] < 1.0
    assert evaluate(teacher, []) == (0.0, 0.0)
    assert measure_retention(teacher, []) is None
    known, better = Retention(0.8, 0.9), quality(0.7, 2.0, Retention(0.81, 0.88))
    assert verdict(quality(0.6, 1.9, known), better, known) == (
        "agreement on known texts fell from 0.9000 to 0.8800"
    )
    assert not verdict(quality(0.6, 1.9, known), replace(better, base=known), known)


def quality(acceptance: float, calls: float, base: Retention | None) -> Quality:
    """Of answers that are all alike: no difference is left to chance."""
    alike = (1.0,) * 4
    return Quality(AnswerMean((acceptance,) * 4, alike), AnswerMean((calls,) * 4, alike), base)


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


def test_damaged_answers_are_counted(school: School) -> None:
    with school.buffer.store.writing() as db:
        db.execute("UPDATE records SET packed = zeroblob(size) WHERE id > 10")
    assert school.run().reason == (
        "10 new answers are too few to learn from: 20 are needed; 80 damaged ones were left out"
    )


def test_a_student_whose_weights_are_not_numbers_is_refused(school: School) -> None:
    weights = dict(read_student(school.student).weights)
    weights["norm"] = weights["norm"] * float("nan")
    write_student(school.student, weights, school.folder.with_name("nan.gguf"))
    school.student = school.folder.with_name("nan.gguf")
    with pytest.raises(ModelError, match="is damaged: its weights are not numbers"):
        school.run()
    assert_nothing_published(school)


def test_every_error_is_one_of_ours(school: School) -> None:
    school.student.write_bytes(b"GGUF")
    with pytest.raises(SpecchatError):
        school.run()
    assert_nothing_published(school)


def test_a_result_says_what_it_cost(school: School) -> None:
    result = school.run(HASTY)
    assert isinstance(result, RoundResult)
    assert result.seconds > 0

"""The learner: training runs while nobody is there, and ends or pauses when somebody is."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from app.engine.draft_model_versions import MIN_NEW_ANSWERS, NewAnswers
from app.runtime import learning
from app.runtime.learning import (
    Learned,
    Learner,
    LearningConditions,
    LearningNews,
    LearningProgress,
    LearningWaits,
    _learned,
)
from datastores.errors import SpecchatError, StoreError
from datastores.storage.files import process_id, process_id_of
from engines.child_process import ChildProcess
from tests.waiting import TIMEOUT_S, until


class Room:
    """Where a learner lives, with every condition in hand."""

    def __init__(self, folder: Path) -> None:
        self.quiet_s = 0.0
        self.busy = self.loaded = False
        self.news, self.fruitless = MIN_NEW_ANSWERS, 0
        self.fails: SpecchatError | None = None
        self.steps = folder / "steps"
        self.note = folder / "versions" / "paused"
        self.shown: list[LearningProgress | Learned | None] = []
        self.waited: list[str] = []
        self.errors: list[str] = []
        self.adopted = 0

    def learner(self, mode: str) -> Learner:
        command = ("tests.app.runtime.learning_child", mode, self.steps)
        conditions = LearningConditions(
            self.quiet_s, lambda: self.busy, self._new_answers, lambda: self.loaded
        )
        return Learner(command, self.note, conditions, self._notify, self._adopt)

    def done(self) -> int:
        """Steps that the child has done."""
        text = self.steps.read_text() if self.steps.exists() else ""
        return int(text or 0)

    def _new_answers(self) -> NewAnswers:
        if self.fails is not None:
            raise self.fails
        return NewAnswers(self.news, self.fruitless)

    def _notify(self, news: LearningNews, error: SpecchatError | None) -> None:
        if error is not None:
            self.errors.append(str(error))
        elif isinstance(news, LearningWaits):
            self.waited.append(news.reason)
        else:
            self.shown.append(news)

    def _adopt(self) -> None:
        self.adopted += 1


@pytest.fixture
def room(tmp_path: Path) -> Room:
    return Room(tmp_path)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "POLL_S", 0.01)
    monkeypatch.setattr(learning, "REST_S", 0.01)
    monkeypatch.setattr(learning, "CHECK_S", 0.01)
    monkeypatch.setattr(learning, "on_battery", lambda: False)


@pytest.fixture
def running(room: Room) -> Iterator[Callable[[str], Learner]]:
    """Starts a learner, which is closed in the end."""
    started: list[Learner] = []

    def start(mode: str) -> Learner:
        started.append(room.learner(mode))
        started[-1].start()
        return started[-1]

    yield start
    for learner in started:
        learner.close()
        assert child_of(learner) is None


Running = Callable[[str], Learner]


def child_of(learner: Learner) -> ChildProcess | None:
    return learner._child


def is_stopped(child: ChildProcess) -> bool:
    return psutil.Process(child.pid).status() == psutil.STATUS_STOPPED


def some_polls() -> None:
    time.sleep(0.1)


def test_a_version_is_adopted_and_what_it_brought_is_shown(
    room: Room, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learning, "CHECK_S", TIMEOUT_S)  # there is no second training
    running("learn")
    until(lambda: room.adopted)
    progress = [one for one in room.shown if isinstance(one, LearningProgress)]
    assert [one.done for one in progress] == list(range(1, 31))
    assert Learned(4, 0.5, 0.75) in room.shown
    assert room.errors == []


@pytest.mark.parametrize(
    ("parent", "head", "before"), [(0, False, 0.5), (0, True, None), (1, True, 0.5)]
)
def test_nothing_came_before_the_first_head(parent: int, head: bool, before: float | None) -> None:
    figures = {"acceptance_before": 0.5, "acceptance": 0.75}
    version = {"number": 2, "parent": parent, "figures": figures}
    assert _learned({"version": version, "head": head}) == Learned(2, before, 0.75, head)


@pytest.mark.parametrize(
    ("hindrance", "said"),
    [
        ("busy", "learns after 0 quiet seconds"),
        ("loaded", "learning waits: other programs are busy"),
        ("quiet", "learns after 3600 quiet seconds"),
        ("news", "learns from 25 new answers, 9 so far"),
        (
            "no gain",
            "learns from 50 new answers, 25 so far; no gain in the last 3 trainings",
        ),
        ("off", "learning is off"),
        ("battery", "learning waits for mains power"),
    ],
)
def test_it_waits_until_nothing_speaks_against_it_and_says_for_what(
    room: Room, monkeypatch: pytest.MonkeyPatch, hindrance: str, said: str
) -> None:
    room.busy, room.loaded = hindrance == "busy", hindrance == "loaded"
    room.news = 9 if hindrance == "news" else MIN_NEW_ANSWERS
    room.fruitless = 3 if hindrance == "no gain" else 0
    room.quiet_s = 3600.0 if hindrance == "quiet" else 0.0
    monkeypatch.setattr(learning, "on_battery", lambda: hindrance == "battery")
    learner = room.learner("endless")
    learner.enabled = hindrance != "off"
    learner.start()
    until(lambda: learner.waits_for)
    some_polls()
    assert child_of(learner) is None
    assert room.waited == [learner.waits_for] == [said]
    room.busy, room.loaded, room.news = False, False, 2 * MIN_NEW_ANSWERS
    monkeypatch.setattr(learning, "on_battery", lambda: False)
    learner.switch(True)
    if hindrance != "quiet":
        until(lambda: child_of(learner))
        until(lambda: room.waited[-1] == "")
    learner.close()
    assert child_of(learner) is None


def test_a_key_press_pauses_it_where_it_is(room: Room, running: Running) -> None:
    learner = running("endless")
    until(room.done)
    until(lambda: room.shown)
    room.busy = True
    child = child_of(learner)
    assert child is not None
    learner.touch()
    until(lambda: is_stopped(child))
    until(lambda: room.shown[-1] is None)
    done = room.done()
    some_polls()
    assert room.done() == done
    assert room.shown[-1] is None, "nothing is shown while it is paused"
    room.busy = False
    until(lambda: room.done() > done)
    assert child_of(learner) == child
    until(lambda: not room.note.exists())


def test_a_key_press_while_the_conditions_are_checked_is_not_undone(
    room: Room, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner, resumed = running("endless"), list[int]()
    until(lambda: room.shown)
    monkeypatch.setattr(ChildProcess, "resume", lambda child: resumed.append(child.pid))
    pressed = replace(learner._conditions, quiet_s=3600.0)

    def press() -> bool:
        learner._conditions = pressed
        learner.touch()
        return False

    learner._conditions = replace(pressed, quiet_s=0.0, is_loaded=press)
    until(lambda: room.shown[-1] is None)
    some_polls()
    assert resumed == []


@pytest.mark.parametrize("hindrance", ["busy", "loaded"])
def test_load_and_answers_pause_it_too(room: Room, running: Running, hindrance: str) -> None:
    learner = running("endless")
    until(lambda: room.shown)
    child = child_of(learner)
    assert child is not None
    if hindrance == "busy":
        room.quiet_s = 0.0
    setattr(room, hindrance, True)
    if hindrance == "busy":
        learner.touch()
    until(lambda: is_stopped(child))


def test_one_that_reads_is_ended_and_started_again(room: Room, running: Running) -> None:
    learner = running("load")
    until(lambda: room.shown and not learner._may_pause)
    room.loaded = True
    first = child_of(learner)
    learner.touch()
    until(lambda: child_of(learner) is None)
    room.loaded = False
    until(lambda: child_of(learner) not in (None, first))


def test_a_long_pause_ends_it(
    room: Room, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = running("endless")
    until(lambda: room.shown)
    monkeypatch.setattr(learning, "MAX_PAUSE_S", 0.05)
    room.loaded = True
    learner.touch()
    until(lambda: child_of(learner) is None)
    until(lambda: not room.note.exists())


def test_switching_it_off_ends_it_at_once(room: Room, running: Running) -> None:
    learner = running("endless")
    until(lambda: room.shown)
    child = child_of(learner)
    assert child is not None
    learner.switch(False)
    assert child_of(learner) is None
    until(lambda: not child.is_running())
    done = room.done()
    some_polls()
    assert (child_of(learner), room.done()) == (None, done)


def test_training_that_brought_nothing_is_not_repeated_at_once(
    room: Room, running: Running
) -> None:
    learner = running("nothing")
    until(lambda: room.done() == 30 and child_of(learner) is None)
    room.steps.unlink()
    some_polls()
    assert (room.done(), room.adopted, room.errors) == (0, 0, [])
    assert room.waited[-1] == "learns again in 30 min"


@pytest.mark.parametrize(
    ("mode", "reason"), [("fail", "not a number"), ("crash", "learning failed: exit code 3")]
)
def test_a_failure_is_reported_in_one_line_and_not_repeated_at_once(
    room: Room, running: Running, mode: str, reason: str
) -> None:
    running(mode)
    until(lambda: room.errors)
    some_polls()
    [error] = room.errors
    assert reason in error


def test_an_unreadable_buffer_is_reported_once(room: Room, running: Running) -> None:
    room.fails = StoreError("cannot be read")
    running("learn")
    until(lambda: room.errors)
    some_polls()
    assert room.errors == ["cannot be read"]


@pytest.mark.parametrize("alive", [False, True])
def test_one_that_a_killed_program_had_paused_is_ended(
    room: Room, running: Running, alive: bool
) -> None:
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    psutil.Process(sleeper.pid).suspend()
    room.note.parent.mkdir()
    parent = process_id() if alive else "1:0.00"
    room.note.write_text(f"{process_id_of(sleeper.pid)} {parent}")
    room.news = 0
    running("learn")
    some_polls()
    if alive:
        assert sleeper.poll() is None, "it is another window's"
        sleeper.kill()
    sleeper.wait(TIMEOUT_S)
    until(lambda: room.note.exists() == alive)

"""Trains the draft model while the user is idle.

Training starts after a quiet minute, on mains power, if no other program keeps the machine busy and
there are new answers to learn from. A key press pauses it within milliseconds: the process is
stopped by a signal, so that it takes no processor time and can resume; after some minutes it is
ended instead, which frees its memory and loses the last seconds of training.

`app.runtime.learning_process` does the training.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import psutil

from app.engine.draft_model_versions import NewAnswers
from app.machine import on_battery
from app.remaining_time import RemainingTime
from datastores.errors import ModelError, SpecchatError
from datastores.storage.files import is_running, process_id, process_id_of
from engines.child_process import ChildProcess

POLL_S, REST_S = 0.1, 4.0
"""Seconds between two checks of the conditions: while a training runs, and while none does."""
CHECK_S = 15.0
"""Seconds between two counts of new answers."""
RETRY_S = 1800.0
"""Seconds until the next training after one without a gain."""
MAX_PAUSE_S = 600.0
"""Longest pause, after which the process is ended."""
CLOSE_TIMEOUT_S = 5.0
HEAD_TOO = "head"
"""The argument that makes the process train the draft head."""


@dataclass(frozen=True, slots=True)
class LearningProgress:
    """Progress of a training; `seconds_left` is None while unknown."""

    done: int
    steps: int
    seconds_left: float | None = None

    @property
    def share(self) -> float:
        """From 0 to 1."""
        return self.done / max(1, self.steps)


@dataclass(frozen=True, slots=True)
class Learned:
    """A new version of the draft model, or of the draft `head`, drafts.

    Attributes:
        before, after: acceptance on held-out questions; `before` is None for the first head.
    """

    version: int
    before: float | None
    after: float
    head: bool = False


@dataclass(frozen=True, slots=True)
class LearningWaits:
    """What the next training waits for; `reason` is empty while one runs."""

    reason: str


LearningNews = LearningProgress | Learned | LearningWaits | None
"""News about learning; None when nothing is learned now."""
NotifyLearning = Callable[[LearningNews, SpecchatError | None], object]
"""Called on any thread with news and errors."""


@dataclass(frozen=True, slots=True)
class LearningConditions:
    """When training may run.

    Attributes:
        quiet_s: seconds without a key press or an answer.
        is_busy: whether the model is used, or somebody waits for another process.
        is_loaded: whether other programs keep the machine busy.
    """

    quiet_s: float
    is_busy: Callable[[], bool]
    new_answers: Callable[[], NewAnswers]
    is_loaded: Callable[[], bool]


def awaited_answers(new: NewAnswers) -> str:
    """The number of answers that the next training waits for, and the reason if it is large; empty
    for none."""
    if not new.missing:
        return ""
    text = f"learns from {new.needed} new answers, {new.count} so far"
    return f"{text}; {new.halted}" if new.halted else text


class Learner:
    """A thread that watches the conditions, and at most one process, read by another thread.

    Attributes:
        enabled: set by `switch`.
        waits_for: what prevents learning now; empty for nothing.
        error: why the last training failed; None if it did not.
    """

    def __init__(
        self,
        command: tuple[object, ...],
        note: Path,
        conditions: LearningConditions,
        notify: NotifyLearning,
        adopt: Callable[[], object],
    ) -> None:
        """Train with the process of `command`, its module and arguments.

        Args:
            note: file that names a paused process, so that none outlives this program.
            adopt: called on a thread of its own when a new version was published.
        """
        self.enabled = True
        self.waits_for = ""
        self.error: SpecchatError | None = None
        self._command = command
        self._note = note
        self._conditions = conditions
        self._notify = notify
        self._adopt = adopt
        self._touched = self._looked = self._retried = monotonic()
        self._new = NewAnswers()
        self._lock = threading.Lock()
        self._child: ChildProcess | None = None
        self._reader: threading.Thread | None = None
        self._paused_at: float | None = None
        self._may_pause = False
        self._closing = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="learner", daemon=True)

    def start(self) -> None:
        """Start watching."""
        self._watcher.start()

    def touch(self) -> None:
        """Report user activity: pause at once. From any thread; takes microseconds."""
        self._touched = monotonic()
        if self._child is not None and self._paused_at is None:
            self._pause()

    def switch(self, enabled: bool) -> None:
        """Allow learning, or end it at once."""
        self.enabled = enabled
        if not enabled:
            self._stop()

    def close(self) -> None:
        """End the process; the next session continues from what was saved."""
        self._closing.set()
        self._stop()
        if self._watcher.ident is not None:
            self._watcher.join(CLOSE_TIMEOUT_S)
        self._stop()  # it may have started one meanwhile
        if self._reader is not None:
            self._reader.join(CLOSE_TIMEOUT_S)

    def _watch(self) -> None:
        _end_orphan(self._note)
        while not self._closing.wait(REST_S if self._child is None else POLL_S):
            # Read before the conditions, so that a pause by a key press is not undone at once.
            child, paused_at = self._child, self._paused_at
            hindrance = self._hindrance()
            if child is None:
                hindrance = self._missing_answers() or hindrance or self._retry()
                if not hindrance:
                    self._start()
            elif paused_at is not None:
                if not hindrance:
                    self._resume()
                elif monotonic() > paused_at + MAX_PAUSE_S:
                    self._stop()
            elif hindrance:
                self._pause()
            self._wait_for(hindrance)

    def _wait_for(self, reason: str) -> None:
        """Notify of what it waits for, if that has changed."""
        if reason != self.waits_for:
            self.waits_for = reason
            self._notify(LearningWaits(reason), None)

    def _hindrance(self) -> str:
        """What prevents training now; empty for nothing."""
        busy = self._conditions.is_busy()
        if busy:
            self._touched = monotonic()
        quiet = monotonic() - self._touched >= self._conditions.quiet_s
        loaded = self._conditions.is_loaded()  # called always, as it measures between two calls
        if not self.enabled:
            return "learning is off"
        if busy or not quiet:
            return f"learns after {self._conditions.quiet_s:.0f} quiet seconds"
        if on_battery():
            return "learning waits for mains power"
        return "learning waits: other programs are busy" if loaded else ""

    def _missing_answers(self) -> str:
        """What is missing to learn from; counted every `CHECK_S`."""
        if monotonic() >= self._looked:
            self._looked = monotonic() + CHECK_S
            try:
                self._new = self._conditions.new_answers()
            except SpecchatError as error:
                self._new = NewAnswers()
                self._report_error(error)
        return awaited_answers(self._new)

    def _retry(self) -> str:
        """The wait after a training without a gain; empty if it is over."""
        left = self._retried - monotonic()
        return f"learns again in {left / 60:.0f} min" if left > 0 else ""

    def _start(self) -> None:
        with self._lock:
            if self._closing.is_set() or not self.enabled:
                return
            self._may_pause, self._paused_at = False, None
            self._child = child = ChildProcess(*map(str, self._command))
        self._reader = threading.Thread(target=self._read, args=(child,), daemon=True)
        self._reader.start()

    def _read(self, child: ChildProcess) -> None:
        """Follow `child` to its end."""
        result: dict[str, Any] | None = None
        error: SpecchatError | None = None
        remaining = RemainingTime()
        try:
            for message in child:
                if "steps" in message:
                    self._may_pause = True
                    done, steps = message["done"], message["steps"]
                    left = remaining.update(done, steps, monotonic())
                    with self._lock:  # the message may be from before a pause
                        if self._child is child and self._paused_at is None:
                            self._notify(LearningProgress(done, steps, left), None)
                elif "reading" in message:
                    self._may_pause = False
                else:
                    self._may_pause = False
                    if result is None or message["version"] is not None:
                        result = message
        except SpecchatError as raised:
            error = raised
        code, learned = child.code(), _learned(result)
        with self._lock:
            ended_by_us = self._child is not child
            if not ended_by_us:
                self._child, self._paused_at = None, None
                # Before the watcher can start another training with the same answers.
                self._new = NewAnswers()
                self._looked = monotonic() + CHECK_S * (learned is not None)
                self._retried = monotonic() + RETRY_S * (learned is None)
        child.close()
        if ended_by_us:
            return
        if result is None and error is None and code:
            error = ModelError(f"learning failed: exit code {code}")
        self._ended(learned, error)

    def _ended(self, learned: Learned | None, error: SpecchatError | None) -> None:
        self._notify(learned, None)
        if error is not None:
            self._report_error(error)
        if learned is not None:
            self.error = None
            self._adopt()

    def _report_error(self, error: SpecchatError) -> None:
        if str(error) != str(self.error):
            self.error = error
            self._notify(None, error)

    def _pause(self) -> None:
        """Pause the process, or end it while it loads or reads the buffer, as it would keep its
        locks."""
        with self._lock:
            child = self._child
            if child is None or self._paused_at is not None:
                return
            if self._may_pause:
                self._paused_at = monotonic()
                child.pause()
                _write_note(self._note, child.pid)
        if not self._may_pause:
            self._stop()
        self._notify(None, None)

    def _resume(self) -> None:
        with self._lock:
            if self._child is not None and self._paused_at is not None:
                self._paused_at = None
                self._child.resume()
                self._note.unlink(missing_ok=True)

    def _stop(self) -> None:
        """End the process; the next one continues from its checkpoint."""
        with self._lock:
            child, self._child = self._child, None
            self._paused_at = None
        if child is not None:
            child.stop()
            self._note.unlink(missing_ok=True)
            self._notify(None, None)


def _learned(result: dict[str, Any] | None) -> Learned | None:
    """The new version of a result message, if any."""
    if result is None or result["version"] is None:
        return None
    version = result["version"]
    figures, head = version["figures"], result["head"]
    # The first head is trained from scratch, the first draft model from the original one.
    before = figures["acceptance_before"] if version["parent"] or not head else None
    return Learned(version["number"], before, figures["acceptance"], head)


def _write_note(note: Path, pid: int) -> None:
    """Name the paused process and this one."""
    with suppress(OSError, psutil.NoSuchProcess):
        note.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        note.write_text(f"{process_id_of(pid)} {process_id()}")


def _end_orphan(note: Path) -> None:
    """End a process that was paused when its parent was killed."""
    try:
        child, _, parent = note.read_text("ascii").partition(" ")
    except (OSError, UnicodeDecodeError):
        return
    if is_running(parent):
        return
    if is_running(child):
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            psutil.Process(int(child.partition(":")[0])).kill()
    note.unlink(missing_ok=True)

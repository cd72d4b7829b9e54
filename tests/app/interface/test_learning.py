"""Learning in the interface is shown, paused by a key press, and turned off by a key."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from textual.pilot import Pilot

from app.config import load_config
from app.engine.draft_model_versions import NewAnswers
from app.engine.engine import Engine
from app.runtime.learning import Learned, Learner, LearningConditions, LearningProgress
from datastores.errors import ModelError
from tests.app.interface.conftest import Make, Stage, notices, ready, until
from tests.app.scripted import scripted_engine


class WatchedLearner(Learner):
    """A learner that is never started.

    Attributes:
        touches: number of reported user activities.
    """

    def __init__(self, folder: Path) -> None:
        conditions = LearningConditions(0.0, lambda: False, NewAnswers, lambda: False)
        super().__init__((), folder / "paused", conditions, lambda *_: None, lambda: None)
        self.touches = 0

    def touch(self) -> None:
        self.touches += 1


async def with_learner(
    pilot: Pilot[None], made: Stage, folder: Path
) -> tuple[WatchedLearner, Engine]:
    """Give the screen a learner and an engine."""
    await ready(pilot, made)
    thread = made.conversation.model_thread
    await until(pilot, lambda: thread.model)
    assert thread.model is not None
    learner, engine = WatchedLearner(folder), scripted_engine(folder)
    engine.learns = True
    thread.model = replace(thread.model, engine=engine, learner=learner)
    return learner, engine


async def test_every_key_counts_as_activity(stage: Make, tmp_path: Path) -> None:
    made = stage()
    async with made.app.run_test() as pilot:
        learner, _ = await with_learner(pilot, made, tmp_path)
        await pilot.press("a", "b", "f2")
        assert learner.touches >= 3
        before = learner.touches
        await pilot.click()
        assert learner.touches > before


async def test_it_is_switched_off_by_one_key_and_stays_off(stage: Make, tmp_path: Path) -> None:
    made = stage()
    async with made.app.run_test() as pilot:
        learner, engine = await with_learner(pilot, made, tmp_path)
        await pilot.press("alt+l")
        await until(pilot, lambda: not learner.enabled)
        assert not engine.learns
        assert not load_config(made.locations.settings).learn
        await until(pilot, lambda: notices(made))
        assert notices(made) == ["Learning is off: nothing is trained on your chats."]
        await pilot.press("alt+l")
        await until(pilot, lambda: learner.enabled)
        assert engine.learns
        assert load_config(made.locations.settings).learn


async def test_a_model_without_a_draft_model_says_so(stage: Make) -> None:
    made = stage()
    async with made.app.run_test() as pilot:
        await ready(pilot, made)
        await pilot.press("alt+l")
        await until(pilot, lambda: notices(made))
        assert notices(made) == ["This model has nothing to train: no draft model, no draft head."]
        assert load_config(made.locations.settings).learn


async def test_the_top_line_shows_progress_and_gain(stage: Make) -> None:
    made = stage()
    async with made.app.run_test() as pilot:
        await ready(pilot, made)
        topbar = made.conversation.topbar
        for progress, text in (
            (LearningProgress(12, 100), "learning 12%"),
            (None, ""),
            (Learned(1, None, 0.7, head=True), "draft head made: 70% right"),
            (Learned(2, 0.7, 0.72, head=True), "draft head learned: 70% → 72% right"),
            (Learned(4, 0.81, 0.84), "learned: 81% → 84% right"),
        ):
            made.app.learning_changed(progress, None)
            await until(pilot, lambda text=text: topbar.learning == text)  # type: ignore[misc]
            assert text in topbar.render().plain
        made.app.learning_changed(None, ModelError("the loss is not a number"))
        await until(pilot, lambda: notices(made) == ["The loss is not a number"])
        assert topbar.learning == "learned: 81% → 84% right"


async def test_all_idle_work_is_paused_by_one_key_and_stays_paused(
    stage: Make, tmp_path: Path
) -> None:
    made = stage()
    switched: list[bool] = []
    async with made.app.run_test() as pilot:
        await with_learner(pilot, made, tmp_path)
        thread = made.conversation.model_thread
        assert thread.model is not None
        thread.model = replace(thread.model, switch_idle=switched.append)
        topbar = made.conversation.topbar
        await pilot.press("alt+i")
        await until(pilot, lambda: switched == [False])
        assert "idle work paused" in topbar.render().plain
        assert not load_config(made.locations.settings).idle
        await pilot.press("alt+i")
        await until(pilot, lambda: switched == [False, True])
        assert "paused" not in topbar.render().plain
        assert load_config(made.locations.settings).idle
        made.app.learning_changed(LearningProgress(12, 100, 125.0), None)
        await until(pilot, lambda: "learning 12% · 2 min left" in topbar.render().plain)

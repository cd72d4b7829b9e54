"""The demonstration in the interface: its order, its conclusion, and how the user ends it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest

from app.config import Options
from app.importing.events import ImportFinished
from app.indexing.corpus_index import IndexingProgress
from app.interface import demo
from app.interface.demo import ELSEWHERE, FAILED, SECOND, Demo, DemoCaption
from app.runtime.demo import AFTER, BEFORE, INTRODUCTION, DemoStage
from datastores.errors import ModelError
from tests.app.interface.conftest import Make, Stage, notices, ready, until
from tests.app.interface.imports.scripted import DONE, ScriptedImport
from tests.app.interface.scripted import Script, passes_of
from tests.waiting import TIMEOUT_S


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "READING_S", 0.0)
    monkeypatch.setattr(demo, "PAUSE_S", 0.0)


def of(made: Stage) -> Demo:
    screen = made.app.chat_screen
    stage = DemoStage(Path("/demo"), Options(), Path("/demo/commands.md"))
    return Demo(screen.conversation, screen.import_task, screen._session_statistics, stage)


def caption(made: Stage) -> str:
    """The caption of the demonstration."""
    return str(made.app.chat_screen.query_one(DemoCaption).render())


async def test_it_asks_imports_asks_again_and_says_what_was_measured(
    stage: Make, scripted: Callable[..., ScriptedImport]
) -> None:
    script = scripted([ImportFinished(DONE)])
    held = Event()
    made = stage(gate=lambda: held.wait(TIMEOUT_S))
    async with made.app.run_test() as pilot:
        running = made.app.run_worker(of(made).run())
        await until(pilot, lambda: made.app.chat_screen.query(DemoCaption))
        assert caption(made).startswith(INTRODUCTION), "before the model is made"
        held.set()
        await until(pilot, lambda: script.asked)
        assert made.assistant.asked == list(BEFORE)
        assert caption(made) == SECOND
        made.app.indexer_changed(IndexingProgress(1, 1, 500, imports=True), None)
        made.app.indexer_changed(None, None)
        await until(pilot, lambda: running.is_finished)
        assert made.assistant.asked == [*BEFORE, *AFTER]
        assert script.asked == [[Path("/demo/commands.md")]]
        assert "answers came 2.4× as fast" in caption(made)
        assert caption(made).endswith("Now ask something yourself; Ctrl+Q quits.")
        assert notices(made) == []


async def test_stopping_an_answer_ends_it(stage: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "POLL_S", 0.3)  # the answer ends before the first poll
    made = stage(Script(passes_of("some words", [0], 2), holds=True))
    async with made.app.run_test() as pilot:
        await ready(pilot, made)
        running = made.app.run_worker(of(made).run())
        await until(pilot, lambda: made.assistant.asked)
        await pilot.press("escape")
        await until(pilot, lambda: running.is_finished)
        assert made.assistant.asked == list(BEFORE[:1])
        assert caption(made).startswith("The demo has ended.")


async def test_esc_and_a_question_end_it_between_answers_too(
    stage: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "READING_S", float("inf"))
    made = stage()
    async with made.app.run_test() as pilot:
        await ready(pilot, made)
        running = made.app.run_worker(of(made).run())
        await until(pilot, lambda: made.app.chat_screen.query(DemoCaption))
        await pilot.press("escape")
        await until(pilot, lambda: running.is_finished)
        again = made.app.run_worker(of(made).run())
        await pilot.press(*"mine", "enter")
        await until(pilot, lambda: again.is_finished)
        assert made.assistant.asked == ["mine"]


async def test_without_a_model_it_says_so(stage: Make) -> None:
    made = stage(fails=ModelError("no room"))
    async with made.app.run_test() as pilot:
        running = made.app.run_worker(of(made).run())
        await until(pilot, lambda: running.is_finished)
        assert caption(made).startswith("The demo cannot run")


async def test_the_command_runs_it_in_a_process_of_its_own(
    stage: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = stage()
    async with made.app.run_test() as pilot:
        await ready(pilot, made)
        await made.app.chat_screen.run_action("command('demo')")
        await until(pilot, lambda: notices(made) == [ELSEWHERE])
        calls: list[object] = []

        def run(_: object, command: list[str], __: object) -> int:
            calls.append(command[1:])
            return 1

        monkeypatch.setattr("app.interface.demo.run_in_terminal", run)
        await made.app.chat_screen.run_action("command('demo')")
        await until(pilot, lambda: FAILED in notices(made))
        assert calls == [["-P", "-m", "app", "demo"]]

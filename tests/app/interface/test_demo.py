"""The demonstration in the interface: in order, ended by the person, with a conclusion."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from app.config import Options
from app.importing.events import ImportFinished
from app.indexing.corpus_index import IndexingProgress
from app.interface import demo
from app.interface.demo import ELSEWHERE, FAILED, Demo
from app.runtime.demo import AFTER, BEFORE, DemoStage
from tests.app.interface.conftest import Stage, notices, ready, until
from tests.app.interface.imports.scripted import DONE, ScriptedImport
from tests.app.interface.scripted import Script, passes_of

Make = Callable[..., Stage]


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "READING_S", 0.0)
    monkeypatch.setattr(demo, "PAUSE_S", 0.0)


def of(made: Stage) -> Demo:
    screen = made.app.chat_screen
    stage = DemoStage(Path("/demo"), Options(), Path("/demo/commands.md"))
    return Demo(screen, screen._session_statistics, stage)


async def test_it_asks_imports_asks_again_and_says_what_was_measured(
    stage: Make, scripted: Callable[..., ScriptedImport]
) -> None:
    script = scripted([ImportFinished(DONE)])
    made = stage()
    async with made.app.run_test() as pilot:
        await ready(pilot, made)
        running = made.app.run_worker(of(made).run())
        await until(pilot, lambda: script.asked)
        assert made.assistant.asked == list(BEFORE)
        made.app.indexer_changed(IndexingProgress(1, 1, 500), None)
        made.app.indexer_changed(None, None)
        await until(pilot, lambda: running.is_finished)
        assert made.assistant.asked == [*BEFORE, *AFTER]
        assert script.asked == [[Path("/demo/commands.md")]]
        assert "answers came 2.4× as fast" in notices(made)[-1]
        assert notices(made)[-1].endswith("Now ask it something yourself.")


async def test_stopping_an_answer_ends_it(stage: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "POLL_S", 0.3)  # the answer has ended before the first look
    made = stage(Script(passes_of("some words", [0], 2), holds=True))
    async with made.app.run_test() as pilot:
        await ready(pilot, made)
        running = made.app.run_worker(of(made).run())
        await until(pilot, lambda: made.assistant.asked)
        await pilot.press("escape")
        await until(pilot, lambda: running.is_finished)
        assert made.assistant.asked == list(BEFORE[:1])
        assert notices(made) == []


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

"""Operates the model picker as a user does."""

from __future__ import annotations

from textual.pilot import Pilot
from textual.widgets import Input, OptionList

from app.interface.models.download_task import DownloadTask
from app.interface.models.picker import ModelPicker
from tests.app.interface.conftest import Stage, ready, until


def picker(made: Stage) -> ModelPicker:
    screen = made.app.screen
    assert isinstance(screen, ModelPicker)
    return screen


def lines(made: Stage) -> list[str]:
    """The first line of each row."""
    listed = picker(made).query_one(OptionList)
    prompts = [str(listed.get_option_at_index(row).prompt) for row in range(listed.option_count)]
    return [" ".join(prompt.splitlines()[0].split()) for prompt in prompts]


def download_task(made: Stage) -> DownloadTask:
    return made.app.chat_screen.model_switch._download_task


async def open_picker(pilot: Pilot[None], made: Stage) -> None:
    """Press F5 and wait until the search has finished."""
    await ready(pilot, made)
    await pilot.press("f5")
    await until(pilot, lambda: not picker(made)._searching)


async def type_name(pilot: Pilot[None], made: Stage, typed: str) -> None:
    picker(made).query_one(Input).value = typed
    await pilot.pause()

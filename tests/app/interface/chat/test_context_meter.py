"""The context meter at the prompt: tokens of the chat and of the question being written."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.pilot import Pilot

from tests.app.interface.conftest import (
    PLAIN,
    SIZES,
    Compare,
    Make,
    Stage,
    ask,
    ready,
    type_in,
    until,
)
from tests.app.scripted import scripted_engine


def meter(made: Stage) -> str:
    return str(made.conversation.prompt.border_title or "")


async def test_it_counts_what_is_typed_and_attached(stage: Make, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x" * 40)
    made = stage(PLAIN, engine=scripted_engine(tmp_path, context_length=100))
    async with made.app.run_test(size=(100, 30)) as pilot:
        await ready(pilot, made)
        prompt = made.conversation.prompt
        assert meter(made) == ""
        await type_in(pilot, made, "y" * 20)
        await until(pilot, lambda: meter(made) == "22 of 100 tokens")
        prompt.attachments.attach([tmp_path / "notes.txt"])
        await until(pilot, lambda: meter(made) == "62 of 100 tokens")
        assert "notes.txt · 40 bytes · 40 tokens" in str(prompt.attachments.render())
        assert not prompt.has_class("-overflows")
        await type_in(pilot, made, "y" * 40)
        await until(pilot, lambda: prompt.has_class("-overflows"))
        assert meter(made) == "102 tokens, 100 fit"
        prompt.attachments.detach(-1)
        prompt.clear()
        await until(pilot, lambda: meter(made) == "")
        await ask(pilot, made, "one")
        await until(pilot, lambda: meter(made) == "34 of 100 tokens")
        await pilot.press("ctrl+n")
        await until(pilot, lambda: meter(made) == "")


@pytest.mark.parametrize("size", SIZES)
def test_a_message_that_is_too_long(
    stage: Make,
    tmp_path: Path,
    snap_compare: Compare,
    size: tuple[int, int],
) -> None:
    (tmp_path / "notes.txt").write_text("x" * 1400)
    made = stage(PLAIN, engine=scripted_engine(tmp_path, context_length=1024))

    async def act(pilot: Pilot[None]) -> None:
        await ready(pilot, made)
        made.conversation.prompt.attachments.attach([tmp_path / "notes.txt"])
        await type_in(pilot, made, "What is this?")
        await until(pilot, lambda: "1,4" in meter(made))

    assert snap_compare(made.app, terminal_size=size, run_before=act)

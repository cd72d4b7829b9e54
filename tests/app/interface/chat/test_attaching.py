"""A file goes with a question."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.app.interface.conftest import Stage, notices, type_in, until

Make = Callable[..., Stage]


async def test_the_text_of_a_file_stands_before_the_question(stage: Make, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("one\ntwo\x1b[31m\n")
    made = stage()
    async with made.app.run_test() as pilot:
        await type_in(pilot, made, "What is this?")
        await pilot.press("f8")
        await pilot.press(*str(tmp_path / "notes.txt"), "enter")
        prompt = made.conversation.prompt
        whole = "File notes.txt:\n\none\ntwo␛[31m\n\nWhat is this?"
        await until(pilot, lambda: prompt.text == whole)
        await pilot.press("enter")
        await until(pilot, lambda: made.assistant.asked == [whole])


async def test_a_file_that_is_not_there_is_named_and_the_question_stays(
    stage: Make, tmp_path: Path
) -> None:
    made = stage()
    async with made.app.run_test() as pilot:
        await type_in(pilot, made, "What is this?")
        await pilot.press("f8")
        await pilot.press(*str(tmp_path / "gone.txt"), "enter")
        await until(pilot, lambda: notices(made))
        assert "gone.txt" in notices(made)[0]
        assert made.conversation.prompt.text == "What is this?"

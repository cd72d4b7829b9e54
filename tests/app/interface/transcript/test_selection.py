"""A selection with the mouse is highlighted, and copied as the text was written."""

from __future__ import annotations

import pytest
from textual.pilot import Pilot

from app.interface.transcript.markdown import MarkdownStream
from datastores.chats.history import History
from tests.app.interface.conftest import Compare, Make, Stage, ready, until
from tests.app.interface.transcript.test_markdown import plain_styles

PROSE = (
    "The quick brown fox jumps over the lazy dog, and then it goes on until the line has"
    " certainly wrapped on every screen that anybody would use for reading a sentence like this."
)
CODE = "def f():\n\tif x:\n\t\treturn 1\n\n    # spaces"
ANSWER = f"""{PROSE}

```python
{CODE}
```

- first item
- second item
  - nested one

1. one
2. two

| name | use |
|---|---|
| cp | copies |"""
QUESTION = "What does a fox do?\nAnd why?"

SIZES = [(60, 40), (130, 50)]


@pytest.fixture
def chat(history: History) -> int:
    """A chat with two answers, the second one in two versions."""
    made = history.create_chat("fox").id
    asked = history.add_message(made, None, "user", QUESTION)
    first = history.add_message(made, asked.id, "assistant", ANSWER, finish="stop")
    again = history.add_message(made, first.id, "user", "Again?")
    for text in ("No.", "第一行" * 40):
        history.add_message(made, again.id, "assistant", text, finish="stop")
    return made


def places(made: Stage, text: str) -> tuple[int, int]:
    """Column and line of `text` on the screen."""
    for y, strip in enumerate(made.app.screen._compositor.render_strips()):
        if (x := strip.text.find(text)) >= 0:
            return x, y
    raise AssertionError(f"{text!r} is not on the screen")


async def drag(
    pilot: Pilot[None], made: Stage, start: tuple[int, int], end: tuple[int, int]
) -> str:
    """Drag from cell to cell; returns what Ctrl+C copies."""
    await pilot.mouse_down(None, offset=start)
    await pilot.hover(None, offset=((start[0] + end[0]) // 2, (start[1] + end[1]) // 2))
    await pilot.hover(None, offset=end)
    await pilot.mouse_up(None, offset=end)
    await pilot.pause()
    made.conversation.app.clear_notifications()
    made.app.copy_to_clipboard("")
    made.app.chat_screen.copy_actions.interrupt()
    return made.app.clipboard


def highlighted(made: Stage) -> str:
    """The text on the screen in the colours of a selection."""
    style = made.app.screen.get_component_rich_style("screen--selection")
    return "".join(
        segment.text
        for strip in made.app.screen._compositor.render_strips()
        for segment in strip
        if segment.style is not None
        and segment.style.bgcolor == style.bgcolor
        and segment.style.color != style.bgcolor  # or nobody could read it
    )


async def opened(pilot: Pilot[None], made: Stage, chat: int) -> None:
    await until(pilot, lambda: made.conversation.topbar.model)
    made.conversation.open(chat)
    await pilot.pause()
    made.conversation.transcript.go_to_start()
    await pilot.pause()


@pytest.mark.parametrize("size", SIZES)
async def test_a_dragged_selection_is_copied_as_written(
    stage: Make, chat: int, size: tuple[int, int]
) -> None:
    made = stage()
    async with made.app.run_test(size=size) as pilot:
        await opened(pilot, made, chat)
        x, y = places(made, "brown")
        assert await drag(pilot, made, (x, y), (x + 8, y)) == "brown fox"
        assert highlighted(made) == "brown fox"
        end, below = places(made, "sentence")
        assert await drag(pilot, made, (end + 7, below), (x, y)) == PROSE[10:-11]
        x, y = places(made, "def f")
        end, below = places(made, "# spaces")
        assert await drag(pilot, made, (x, y), (end + 7, below)) == CODE
        assert "return 1" in highlighted(made)
        assert await drag(pilot, made, (x - 2, y), (x + 2, y + 1)) == CODE[:10]


@pytest.mark.parametrize("size", SIZES)
async def test_lists_and_tables_are_copied_with_their_structure(
    stage: Make, chat: int, size: tuple[int, int]
) -> None:
    made = stage()
    async with made.app.run_test(size=size) as pilot:
        await opened(pilot, made, chat)
        x, y = places(made, "• first")
        end, below = places(made, "two")
        copied = await drag(pilot, made, (x, y), (end + 2, below))
        assert copied == "- first item\n- second item\n  - nested one\n\n1. one\n2. two"
        x, y = places(made, "item")
        assert await drag(pilot, made, (x, y), (x + 3, y + 1)) == "item\n- second ite"
        x, y = places(made, "name")
        end, below = places(made, "copies")
        assert await drag(pilot, made, (x, y), (end + 5, below)) == "name\tuse\ncp\tcopies"


@pytest.mark.parametrize("size", SIZES)
async def test_a_selection_across_messages_has_no_frame(
    stage: Make, chat: int, size: tuple[int, int]
) -> None:
    made = stage()
    async with made.app.run_test(size=size) as pilot:
        await opened(pilot, made, chat)
        x, y = places(made, "And why")
        end, below = places(made, "quick")
        assert await drag(pilot, made, (x, y), (end + 4, below)) == "And why?\n\nThe quick"
        made.conversation.transcript.follow()
        await pilot.pause()
        x, y = places(made, "Again?")
        last, below = places(made, "‹ 2/2 ›")
        copied = await drag(pilot, made, (x, y), (last + 3, below))
        assert copied == "Again?\n\n" + "第一行" * 40
        # A word without spaces is divided at the edge of the screen.
        x, y = places(made, "第一行")
        width = made.conversation.transcript._layout.width // 2  # type: ignore[union-attr]
        assert await drag(pilot, made, (x, y), (x + 2 * width, y)) == ("第一行" * 40)[:width]


async def test_a_double_click_selects_a_word_and_a_triple_click_a_paragraph(
    stage: Make, chat: int
) -> None:
    made = stage()
    async with made.app.run_test(size=SIZES[0]) as pilot:
        await opened(pilot, made, chat)
        left, top = made.conversation.transcript.region.offset
        x, y = places(made, "brown")
        await pilot.click("Transcript", offset=(x + 2 - left, y - top), times=2)
        assert made.app.screen.get_selected_text() == "brown"
        await pilot.click("Transcript", offset=(x + 2 - left, y - top), times=3)
        assert made.app.screen.get_selected_text() == PROSE
        x, y = places(made, "second")
        await pilot.click("Transcript", offset=(x - left, y - top), times=3)
        assert made.app.screen.get_selected_text() == "second item"
        await pilot.click("Transcript", offset=(x - left, y + 1 - top))
        assert not made.app.screen.get_selected_text()


@pytest.mark.parametrize("clicks", [1, 2, 3])
def test_a_selection_is_highlighted(
    stage: Make, snap_compare: Compare, chat: int, clicks: int
) -> None:
    """A drag over two lines, a word by a double click, a paragraph by a triple click."""
    made = stage()

    async def act(pilot: Pilot[None]) -> None:
        await ready(pilot, made)
        await opened(pilot, made, chat)
        x, y = places(made, "brown")
        if clicks > 1:
            left, top = made.conversation.transcript.region.offset
            await pilot.click("Transcript", offset=(x + 2 - left, y - top), times=clicks)
        else:
            await pilot.mouse_down(None, offset=(x, y))
            await pilot.hover(None, offset=(x + 2, y + 1))
            await pilot.mouse_up(None, offset=(x + 2, y + 1))
        await pilot.pause()

    assert snap_compare(made.app, terminal_size=(80, 24), run_before=act)


async def test_a_selection_survives_a_new_width_and_ends_with_its_chat(
    stage: Make, chat: int
) -> None:
    made = stage()
    async with made.app.run_test(size=SIZES[0]) as pilot:
        await opened(pilot, made, chat)
        x, y = places(made, "brown")
        assert await drag(pilot, made, (x, y), (x + 8, y)) == "brown fox"
        await pilot.resize_terminal(*SIZES[1])
        await pilot.pause()
        assert highlighted(made) == made.app.screen.get_selected_text() == "brown fox"
        made.conversation.open(None)
        assert not made.app.screen.get_selected_text()


async def test_a_drag_that_leaves_the_transcript_selects_what_is_visible(
    stage: Make, chat: int
) -> None:
    made = stage()
    async with made.app.run_test(size=(60, 16)) as pilot:
        await opened(pilot, made, chat)
        x, y = places(made, "brown")
        await pilot.mouse_down(None, offset=(x, y))
        await pilot.hover(None, offset=(x, 15))
        await pilot.mouse_up(None, offset=(x, 15))
        await pilot.pause()
        copied = made.app.screen.get_selected_text() or ""
        assert copied.startswith("brown fox")
        assert "第" not in copied


def test_a_growing_answer_has_the_texts_of_a_complete_one() -> None:
    whole = MarkdownStream(plain_styles(), 40)
    whole.append_fragment(ANSWER)
    growing = MarkdownStream(plain_styles(), 40)
    for start in range(0, len(ANSWER), 7):
        growing.append_fragment(ANSWER[start : start + 7])
    assert growing.texts == whole.texts
    assert growing.spans == whole.spans

"""The cursor over messages: each can be copied, edited or regenerated, by key and by click."""

from __future__ import annotations

import pytest
from textual.containers import Vertical
from textual.events import Paste
from textual.pilot import Pilot
from textual.widgets import OptionList

from app.interface.chat.copy import code_blocks, placeholders
from app.interface.dialogs.basic import InputDialog
from app.interface.models.picker import ModelPicker
from app.interface.panel.panel import Panel
from app.interface.transcript.answer import Answer
from app.interface.transcript.message_list import CURSOR
from datastores.chats.history import History
from datastores.errors import ModelError
from tests.app.interface.conftest import (
    ANSWER,
    Compare,
    Make,
    Stage,
    answered,
    ask,
    burst,
    notices,
    ready,
    until,
)
from tests.app.interface.scripted import Script, passes_of

TWO_BLOCKS = (
    "First:\n\n```sh\ntar -xf {{archive.tar}} -C {{directory}}\n```\n\nor\n\n```\nls\n```\n"
)
FILLABLE = Script(passes_of(TWO_BLOCKS, [0], 3))


def marked(stage: Stage) -> str:
    """The lines beside the cursor mark, as drawn."""
    transcript = stage.conversation.transcript
    strips = [transcript._line(y, transcript.rich_style, None) for y in range(len(transcript.rows))]
    return "\n".join(
        strip.text.split(CURSOR, 1)[1].strip() for strip in strips if CURSOR in strip.text
    )


async def two_turns(pilot: Pilot[None], stage: Stage) -> None:
    await ready(pilot, stage)
    await ask(pilot, stage, "one?")
    await ask(pilot, stage, "two?")
    await pilot.press("alt+m")
    await until(pilot, lambda: stage.conversation.transcript.has_focus)


async def test_the_cursor_moves_over_messages_and_leaves(stage: Make) -> None:
    made = stage()
    async with made.app.run_test(size=(100, 40)) as pilot:
        await two_turns(pilot, made)
        assert marked(made).startswith("You can copy")
        await pilot.press("up")
        assert marked(made).startswith("two?")
        await pilot.press("up", "up", "up", "up")
        assert marked(made).startswith("one?")
        await pilot.press("escape")
        assert made.conversation.prompt.has_focus
        assert marked(made) == ""


async def test_typing_over_messages_goes_into_the_prompt_and_runs_nothing(
    stage: Make, history: History
) -> None:
    made = stage()
    async with made.app.run_test(size=(100, 40)) as pilot:
        await two_turns(pilot, made)
        typed = " Every hobby: copy? rybe"
        await burst(pilot, *typed)
        assert made.conversation.prompt.text == typed
        assert made.conversation.prompt.has_focus
        await pilot.press("alt+m")
        await until(pilot, lambda: made.conversation.transcript.has_focus)
        made.app.post_message(Paste("\nmore"))
        await until(pilot, lambda: made.conversation.prompt.text == f"{typed}\nmore")
        await pilot.press("ctrl+o")
        await burst(pilot, *" vpr")
        assert made.conversation.prompt.text == f"{typed}\nmore vpr"
        assert [chat.pinned or chat.private for chat in history.chats()] == [False]
        assert (notices(made), made.app.clipboard) == ([], "")


async def test_any_message_is_copied(stage: Make) -> None:
    made = stage()
    async with made.app.run_test(size=(100, 40)) as pilot:
        await two_turns(pilot, made)
        await pilot.press("alt+c")
        await until(pilot, lambda: made.app.clipboard == ANSWER)
        await pilot.press("up", "up", "up", "alt+c")
        await until(pilot, lambda: made.app.clipboard == "one?")
        await pilot.press("alt+y")
        await until(pilot, lambda: "No code block here." in notices(made))


async def test_code_is_copied_block_by_block_with_placeholders_filled_in(stage: Make) -> None:
    made = stage(FILLABLE)
    async with made.app.run_test(size=(100, 40)) as pilot:
        await two_turns(pilot, made)
        await pilot.press("alt+y")
        await until(pilot, lambda: isinstance(made.app.screen, InputDialog))
        await pilot.press(*"a.tar", "enter")
        await until(pilot, lambda: len(made.app.screen_stack) == 2)
        await pilot.press("enter")
        filled = "tar -xf a.tar -C {{directory}}"
        await until(pilot, lambda: made.app.clipboard == filled)
        await pilot.press("alt+y")
        await until(pilot, lambda: made.app.clipboard == "ls")
        assert "Copied block 2 of 2." in notices(made)
        await pilot.press("alt+y")
        await until(pilot, lambda: isinstance(made.app.screen, InputDialog))
        await pilot.press("escape")
        await until(pilot, lambda: made.app.clipboard == code_blocks(TWO_BLOCKS)[0])


async def test_a_placeholder_is_shown_as_text_whatever_it_says(stage: Make) -> None:
    hostile = "```\nrun {{[@click=app.quit]x[/red]}}\n```"
    made = stage(Script(passes_of(hostile, [0], 3)))
    async with made.app.run_test(size=(100, 40)) as pilot:
        await ready(pilot, made)
        await ask(pilot, made, "one?")
        await pilot.press("alt+y")
        await until(pilot, lambda: isinstance(made.app.screen, InputDialog))
        title = made.app.screen.query_one(Vertical)._border_title
        assert title is not None
        assert title.plain == "Fill in: [@click=app.quit]x[/red]"
        assert not title.spans


async def test_earlier_messages_are_edited_and_regenerated(stage: Make) -> None:
    made = stage()
    async with made.app.run_test(size=(100, 40)) as pilot:
        await two_turns(pilot, made)
        await pilot.press("up", "up", "ctrl+r")
        await answered(pilot, made)
        await until(pilot, lambda: len(made.conversation.transcript.messages) == 2)
        answer = made.conversation.transcript.messages[-1]
        assert (isinstance(answer, Answer), answer.version) == (True, "‹ 2/2 ›")
        await pilot.press("alt+m", "left")
        await until(pilot, lambda: len(made.conversation.transcript.messages) == 4)
        await pilot.press("alt+m", "up", "up", "up", "alt+e")
        await until(pilot, lambda: made.conversation.prompt.text == "one?")
        assert made.conversation.is_editing


def dialogue(stage: Stage) -> list[str]:
    """What is shown: the questions, and `…` for an answer."""
    messages = stage.conversation.transcript.messages
    return ["…" if isinstance(message, Answer) else message.text for message in messages]


async def test_a_chat_branches_after_an_answer(stage: Make, history: History) -> None:
    made = stage()
    async with made.app.run_test(size=(100, 40)) as pilot:
        await two_turns(pilot, made)
        chat = made.conversation.chat
        assert chat is not None
        history.set_private(chat, True)
        before = [message.id for message in history.tree(chat)]
        await pilot.press("up", "up", "alt+n")
        assert dialogue(made) == ["one?", "…"]
        assert made.conversation.prompt.has_focus
        assert "Esc Cancel" in str(made.conversation.prompt.border_subtitle)
        assert len(history.thread(chat)) == 4, "nothing is stored before something is sent"
        await pilot.press("escape")
        assert dialogue(made) == ["one?", "…", "two?", "…"]
        await pilot.press("alt+m", "up", "up", "alt+n")
        await ask(pilot, made, "other?")
        assert dialogue(made) == ["one?", "…", "other?", "…"]
        assert not made.conversation.prompt.border_subtitle
        tree = history.tree(chat)
        assert [message.id for message in tree[:4]] == before
        assert [message.parent for message in tree[4:]] == [before[1], tree[4].id]
        assert made.conversation.transcript.messages[2].version == "‹ 2/2 ›"
        assert history.chat(chat).private
        assert len(history.chats()) == 1
        await pilot.press("alt+left")
        assert dialogue(made) == ["one?", "…", "two?", "…"]


async def test_branching_again_goes_back_turn_by_turn(stage: Make) -> None:
    made = stage()
    async with made.app.run_test(size=(100, 40)) as pilot:
        await two_turns(pilot, made)
        await pilot.press("escape", *"/branch", "enter")
        await until(pilot, lambda: dialogue(made) == ["one?", "…"])
        await pilot.press("alt+n")
        assert dialogue(made) == []
        await pilot.press("alt+n", "escape")
        assert dialogue(made) == ["one?", "…", "two?", "…"]
        await pilot.press("alt+m", "up", "alt+n")
        await until(pilot, lambda: made.conversation.prompt.text == "two?")
        assert made.conversation.is_editing, "a branch before a question edits it"
        await pilot.press("escape", "alt+m", "alt+n")
        assert made.conversation.prompt.has_focus
        assert not made.conversation.is_branching, "after the last answer nothing is hidden"


async def test_a_branch_without_an_answer_leaves_the_chat_as_it_was(
    stage: Make, history: History
) -> None:
    fails = Script([], fails=ModelError("it failed"))
    made = stage(Script(FILLABLE.passes), Script(FILLABLE.passes), fails)
    async with made.app.run_test(size=(100, 40)) as pilot:
        await two_turns(pilot, made)
        await pilot.press("up", "up", "alt+n")
        await ask(pilot, made, "other?")
        await until(pilot, lambda: made.conversation.prompt.text == "other?")
        assert dialogue(made) == ["one?", "…"]
        assert made.conversation.chat is not None
        assert [message.content for message in history.thread(made.conversation.chat)][2] == "two?"
        made.conversation.prompt.clear()
        await pilot.press("escape")
        assert dialogue(made) == ["one?", "…", "two?", "…"]


async def test_the_palette_branches_from_the_message_under_the_cursor(stage: Make) -> None:
    made = stage()
    async with made.app.run_test(size=(100, 40)) as pilot:
        await two_turns(pilot, made)
        await pilot.press("escape")
        await ask(pilot, made, "three?")
        await pilot.press("alt+m", "up", "up", "up", "up", "ctrl+p")
        listed = made.app.screen.query_one(OptionList)
        await pilot.press(*"continue differently")
        await until(pilot, lambda: listed.option_count == 1)
        await pilot.press("enter")
        await until(pilot, lambda: dialogue(made) == ["one?", "…"])


async def test_actions_that_do_not_apply_to_a_message_say_so(stage: Make) -> None:
    made = stage()
    async with made.app.run_test(size=(100, 40)) as pilot:
        await two_turns(pilot, made)
        await pilot.press("alt+e")
        await until(pilot, lambda: "Only your own messages can be edited." in notices(made))
        await pilot.press("up", "ctrl+r")
        await until(pilot, lambda: "Only an answer can be regenerated." in notices(made))


async def test_a_click_on_a_version_shows_the_next_one(stage: Make) -> None:
    made = stage()
    async with made.app.run_test(size=(100, 40)) as pilot:
        await ready(pilot, made)
        await ask(pilot, made, "one?")
        await pilot.press("ctrl+r")
        transcript = made.conversation.transcript

        def version() -> str:
            return transcript.messages[-1].version

        await until(pilot, lambda: made.conversation.turn is None and version() == "‹ 2/2 ›")
        row = next(y for y, row in enumerate(transcript.rows) if "‹ 2/2 ›" in row.text)
        await pilot.click(transcript, offset=(5, row - transcript.scroll_offset.y))
        await until(pilot, lambda: version() == "‹ 1/2 ›")
        row = next(y for y, row in enumerate(transcript.rows) if "‹ 1/2 ›" in row.text)
        await pilot.click(transcript, offset=(40, row - transcript.scroll_offset.y))
        await pilot.pause()
        assert version() == "‹ 1/2 ›", "a click next to it does nothing"


async def test_the_title_the_model_and_the_hint_of_the_panel_can_be_clicked(stage: Make) -> None:
    made = stage()
    async with made.app.run_test(size=(80, 24)) as pilot:
        await ready(pilot, made)
        await ask(pilot, made, "one?")
        topbar, panel = made.conversation.topbar, made.conversation.query_one(Panel)
        await pilot.click(topbar, offset=(3, 0))
        await until(pilot, lambda: isinstance(made.app.screen, InputDialog))
        await pilot.press("escape")
        await pilot.click(topbar, offset=(75, 0))
        await until(pilot, lambda: isinstance(made.app.screen, ModelPicker))
        await pilot.press("escape")
        await pilot.click(topbar, offset=(40, 0))
        await pilot.pause()
        assert made.app.screen is made.app.chat_screen, "a click between them does nothing"
        row, text = next((y, line) for y, line in enumerate(panel._lines) if "F2" in line.plain)
        await pilot.click(panel, offset=(panel.styles.padding.left + text.plain.index("F2"), row))
        await until(pilot, lambda: panel.detailed)


async def test_an_empty_chat_has_no_cursor(stage: Make) -> None:
    made = stage()
    async with made.app.run_test() as pilot:
        await ready(pilot, made)
        await pilot.press("alt+m")
        assert "No messages yet." in notices(made)
        assert made.conversation.prompt.has_focus


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("cp {{a}} {{b}} {{a}}", ["{{a}}", "{{b}}"]),
        ("echo {{}} {a} {{a\nb}}", []),
        ("{{path/to/file}}", ["{{path/to/file}}"]),
        ("cp <source> <target>", ["<source>", "<target>"]),
        ("mount </dev/sdXY> <a>", ["</dev/sdXY>", "<a>"]),
        ("rm <file...>", ["<file...>"]),
        ("ssh <user>@<host>", ["<user>", "<host>"]),
        ("awk {{x}} <y>", ["{{x}}"]),
        ("sort <in >out <<EOF", []),
        ("#include <stdio.h>", []),
        ("<p>Hello</p>", []),
        ("std::vector<int> x", []),
        ("cat <a>\ncat <b>", []),
    ],
)
def test_placeholders_are_found_once_each(code: str, names: list[str]) -> None:
    assert placeholders(code) == names


@pytest.mark.parametrize("size", [(80, 24), (130, 40)])
def test_the_cursor(snap_compare: Compare, stage: Make, size: tuple[int, int]) -> None:
    made = stage()

    async def act(pilot: Pilot[None]) -> None:
        await two_turns(pilot, made)
        await pilot.press("up", "up")
        await pilot.pause()

    assert snap_compare(made.app, terminal_size=size, run_before=act)

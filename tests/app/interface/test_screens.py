"""Snapshots of the screens in three sizes. Look at each one before updating it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from textual.command import CommandPalette
from textual.pilot import Pilot
from textual.widgets import Input, LoadingIndicator, OptionList

from app.interface.chat import event_stream
from datastores.chats.history import History
from engines.budget.protocol import BudgetStatus
from engines.draft_tree import CHATS, CODE, DENSE, DRAFT_MODEL, NOTES, PROMPT, RECYCLE
from tests.app.interface.conftest import (
    ANSWER,
    SCRIPT,
    SIZES,
    Act,
    Compare,
    Make,
    Stage,
    answered,
    ask,
    loaded,
    ready,
    send,
    shown,
    type_in,
    until,
)
from tests.app.interface.scripted import Script, passes_of

QUESTION = "How do I copy a directory?"

DOCUMENT = """# Heading

Words with *emphasis*, **weight**, `code`, ~~deletion~~ and a [link](https://example.org).

> A quote that is long enough to be continued on the next line of a narrow screen, as quotes are.

1. First
   - Nested
2. Second

| option | meaning | default |
|:-------|:-------:|--------:|
| `-a` | all | no |
| `-b` | make a backup of each file that is there already | yes |

```python
def copy(source: str) -> int:
    # a comment
    return len("text") + 42
```

---

The end."""

EVERY = [PROMPT, CHATS, CHATS, NOTES, CODE, DENSE, DRAFT_MODEL, RECYCLE]


@pytest.fixture(autouse=True)
def still(monkeypatch: pytest.MonkeyPatch) -> None:
    """Freeze the time, which is on the screen and makes the palette's cursor blink."""
    monkeypatch.setattr(Input, "_toggle_cursor", lambda _: None)
    monkeypatch.setattr(event_stream, "monotonic", lambda: 1000.0)


def before(made: Stage, *keys: str, question: str = QUESTION) -> Act:
    """Ask, then press keys, before a snapshot."""

    async def act(pilot: Pilot[None]) -> None:
        await ready(pilot, made)
        await ask(pilot, made, question)
        # The list is updated by a message, which a busy machine delays.
        await until(pilot, lambda: made.conversation.topbar.chat == question[:60])
        await pilot.press(*keys)
        await pilot.pause()

    return act


@pytest.mark.parametrize("size", SIZES)
def test_first_launch(stage: Make, snap_compare: Compare, size: tuple[int, int]) -> None:
    made = stage()
    assert snap_compare(made.app, terminal_size=size, run_before=loaded(made))


@pytest.mark.parametrize("size", SIZES)
def test_an_answer(
    stage: Make, history: History, snap_compare: Compare, size: tuple[int, int]
) -> None:
    for title in ("Rename many files", "What does tar -xzf do?"):
        chat = history.create_chat(title)
        history.add_message(chat.id, None, "user", title)
    made = stage()
    assert snap_compare(made.app, terminal_size=size, run_before=before(made))


@pytest.mark.parametrize("size", SIZES)
def test_more_figures(stage: Make, snap_compare: Compare, size: tuple[int, int]) -> None:
    made = stage()
    assert snap_compare(made.app, terminal_size=size, run_before=before(made, "f2"))


@pytest.mark.parametrize("size", SIZES)
def test_every_origin_tinted(stage: Make, snap_compare: Compare, size: tuple[int, int]) -> None:
    made = stage(Script(passes_of(ANSWER, EVERY, 6)))
    assert snap_compare(made.app, terminal_size=size, run_before=before(made, "f3"))


@pytest.mark.parametrize("size", SIZES)
def test_drafting_paused(stage: Make, snap_compare: Compare, size: tuple[int, int]) -> None:
    paused, possible = BudgetStatus(0.06, False), {"prompt": 0.31, "recycle": 0.12}
    made = stage(Script(passes_of(ANSWER, [0], 1), budget_status=paused, possible=possible))
    assert snap_compare(made.app, terminal_size=size, run_before=before(made, "f2"))


@pytest.mark.parametrize("size", SIZES)
def test_a_model_too_fast_to_gain(
    stage: Make, snap_compare: Compare, size: tuple[int, int]
) -> None:
    ready = {"chats": 0.41, "prompt": 0.18, "recycle": 0.06}
    fast, passes = BudgetStatus(0.0014, True), passes_of(ANSWER, [0], 1)
    made = stage(Script(passes, step_s=0.0014, budget_status=fast, possible=ready))
    assert snap_compare(made.app, terminal_size=size, run_before=before(made))


@pytest.mark.parametrize("theme", ["specchat-dark", "specchat-light", "nord"])
def test_markdown(stage: Make, snap_compare: Compare, theme: str) -> None:
    made = stage(Script(passes_of(DOCUMENT, [CHATS], 3)), theme=theme)
    assert snap_compare(made.app, terminal_size=(120, 50), run_before=before(made))


@pytest.mark.parametrize("size", SIZES)
def test_help(stage: Make, snap_compare: Compare, size: tuple[int, int]) -> None:
    made = stage()
    assert snap_compare(made.app, terminal_size=size, run_before=loaded(made), press=["f1"])


@pytest.mark.parametrize("size", SIZES)
def test_the_list_of_chats(stage: Make, snap_compare: Compare, size: tuple[int, int]) -> None:
    made = stage()
    assert snap_compare(made.app, terminal_size=size, run_before=before(made, "ctrl+o"))


@pytest.mark.parametrize("size", SIZES)
def test_the_palette(stage: Make, snap_compare: Compare, size: tuple[int, int]) -> None:
    made = stage()

    async def act(pilot: Pilot[None]) -> None:
        await ready(pilot, made)
        await pilot.press("ctrl+p", *"this chat as")
        await until(pilot, lambda: isinstance(made.app.screen, CommandPalette))
        listed = made.app.screen.query_one(OptionList)
        busy = made.app.screen.query_one(LoadingIndicator)
        await until(pilot, lambda: listed.option_count == 2 and not busy.has_class("--visible"))

    assert snap_compare(made.app, terminal_size=size, run_before=act)


def test_reasoning_unfolded(stage: Make, snap_compare: Compare) -> None:
    thought = passes_of("<think> " + "let me think about it once more " * 5, [CHATS], 3)
    made = stage(Script([*thought, [("</think>\n\nForty-two.", 0)]]))
    assert snap_compare(made.app, terminal_size=(80, 24), run_before=before(made, "f4"))


def test_stopped(stage: Make, snap_compare: Compare) -> None:
    made = stage(replace(SCRIPT, holds=True))

    async def act(pilot: Pilot[None]) -> None:
        await ready(pilot, made)
        await type_in(pilot, made, QUESTION)
        await pilot.press("enter")
        await until(pilot, lambda: "copied into it." in shown(made))
        await pilot.press("escape")
        await answered(pilot, made)

    assert snap_compare(made.app, terminal_size=(80, 24), run_before=act)


def test_scrolled_up(stage: Make, snap_compare: Compare) -> None:
    made = stage(Script(passes_of(DOCUMENT, [CHATS], 3)))
    assert snap_compare(made.app, terminal_size=(80, 24), run_before=before(made, "pageup"))


def test_a_failure(stage: Make, snap_compare: Compare) -> None:
    made = stage()

    async def act(pilot: Pilot[None]) -> None:
        await ready(pilot, made)
        made.conversation.show_error("model.gguf is truncated: fetch it again, or choose --model")

    assert snap_compare(made.app, terminal_size=(80, 24), run_before=act)


@pytest.mark.parametrize("size", SIZES)
def test_versions(stage: Make, snap_compare: Compare, size: tuple[int, int]) -> None:
    made = stage()

    async def act(pilot: Pilot[None]) -> None:
        await before(made, "ctrl+r")(pilot)
        await answered(pilot, made)
        await pilot.press("ctrl+t")
        await send(pilot, made, " And a file?")
        await until(pilot, lambda: len(made.assistant.asked) == 2)
        await answered(pilot, made)
        await pilot.press("alt+left", "ctrl+t")
        await pilot.pause()

    assert snap_compare(made.app, terminal_size=size, run_before=act)

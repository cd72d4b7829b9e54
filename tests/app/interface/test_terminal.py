"""The terminal's title follows the chat, and the end of long answers is announced."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest
from textual import events
from textual._xterm_parser import XTermParser

from app.config import NOTIFICATIONS
from app.interface.terminal import (
    KEEP_TITLE,
    RESTORE_TITLE,
    AnswerNotice,
    recognise_alt_enter,
    restore_only_after_stop,
    title_sequence,
)
from engines.draft_tree import CHATS
from tests.app.interface.conftest import Stage, ask, until
from tests.app.interface.scripted import Script, passes_of

PLAIN = Script(passes_of("an answer", [CHATS], 2))
HOSTILE = "a\x1b]0;b\a\nc; d"


def test_a_title_is_one_harmless_line() -> None:
    assert title_sequence(HOSTILE, private=False) == "\x1b]2;a␛]0;b␇ c; d · specchat\a"
    assert title_sequence("secret plans", private=True) == "\x1b]2;Private chat · specchat\a"


def test_alt_enter_is_told_from_escape_and_enter() -> None:
    recognise_alt_enter()
    parser = XTermParser()
    (key,) = parser.feed("\x1b\r")
    assert isinstance(key, events.Key)
    assert key.key == "alt+enter"
    assert [one.key for one in parser.feed("\r") if isinstance(one, events.Key)] == ["enter"]


@pytest.mark.parametrize(
    ("kind", "sequence"),
    [
        ("bell", "\a"),
        ("osc9", "\x1b]9;specchat: The answer is ready: a␛]0;b␇ c; d\a"),
        ("osc777", "\x1b]777;notify;specchat;The answer is ready: a␛]0,b␇ c, d\a"),
    ],
)
def test_notices_are_what_terminals_understand(kind: str, sequence: str) -> None:
    notice = AnswerNotice(kind)
    assert notice.sequence(HOSTILE, {}, private=False, failed=False) == sequence
    private = notice.sequence("secret plans", {}, private=True, failed=True)
    assert "plans" not in private
    if kind != "bell":
        assert "The answer failed" in private
        tmux = notice.sequence("a", {"TMUX": "/tmp/tmux"}, private=False, failed=False)
        assert tmux.startswith("\x1bPtmux;\x1b\x1b]")
        assert tmux.endswith("\a\x1b\\")


@pytest.mark.parametrize("kind", NOTIFICATIONS)
def test_a_notice_is_due_after_a_long_answer_elsewhere(kind: str) -> None:
    notice = AnswerNotice(kind, 10)
    assert notice.is_due(12, focused=False) == (kind != "off")
    assert not notice.is_due(12, focused=True)
    assert not notice.is_due(9, focused=False)


async def test_the_terminal_is_told(
    stage: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = stage(PLAIN)
    written: list[str] = []
    monkeypatch.setattr(made.app, "_write", written.append)
    made.app._notice = AnswerNotice("osc9", 0)
    async with made.app.run_test() as pilot:
        await until(pilot, lambda: written == [KEEP_TITLE + "\x1b]2;specchat\a"])
        await ask(pilot, made, "sing")
        await until(pilot, lambda: written[1:] == ["\x1b]2;sing · specchat\a"])
        made.app.post_message(events.AppBlur())
        await until(pilot, lambda: not made.app.app_focus)
        made.app.chat_screen.thread_actions.regenerate()
        await until(pilot, lambda: "\x1b]9;specchat: The answer is ready: sing\a" in written)
        made.conversation.open(None, private=True)
        await until(pilot, lambda: written[-1] == "\x1b]2;Private chat · specchat\a")
        await pilot.press("ctrl+q")
    assert written[-1] == RESTORE_TITLE


@pytest.fixture
def continued() -> Iterator[list[int]]:
    """Signals that a handler of SIGCONT, like Textual's, has received."""
    received: list[int] = []
    before = signal.signal(signal.SIGCONT, lambda number, _: received.append(number))
    yield received
    signal.signal(signal.SIGCONT, before)


@pytest.mark.parametrize(("stopped", "restored"), [(True, [signal.SIGCONT]), (False, [])])
def test_the_screen_is_restored_only_after_a_stop(
    continued: list[int], stopped: bool, restored: list[int]
) -> None:
    restore_only_after_stop(SimpleNamespace(_must_signal_resume=stopped))
    signal.raise_signal(signal.SIGCONT)
    assert continued == restored

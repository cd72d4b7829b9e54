"""Answers, code and selections are copied to whichever clipboard there is."""

from __future__ import annotations

import base64
import sys
from pathlib import Path

import pytest

from app.interface.chat import copy
from app.interface.chat.copy import clipboard_commands, code_blocks, copy_with, osc52_sequence
from engines.draft_tree import CHATS
from tests.app.interface.conftest import (
    ANSWER,
    Make,
    answered,
    ask,
    notices,
    ready,
    send,
    shown,
    type_in,
    until,
)
from tests.app.interface.scripted import Script, passes_of
from tests.waiting import TIMEOUT_S


def test_clipboard_programs_by_environment() -> None:
    names = [command[0] for command in clipboard_commands({"DISPLAY": ":0", "TMUX": "/tmp/socket"})]
    assert names == ["pbcopy", "xclip", "clip.exe", "tmux"]
    assert "wl-copy" in [
        command[0] for command in clipboard_commands({"WAYLAND_DISPLAY": "wayland-0"})
    ]
    assert clipboard_commands({"DISPLAY": ":0", "SSH_TTY": "/dev/pts/1"}) == []


def test_the_first_program_that_works_gets_the_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copy, "COPY_TIMEOUT_S", TIMEOUT_S)
    taken = tmp_path / "taken"
    write = f"import sys; open({str(taken)!r}, 'w').write(sys.stdin.read())"
    fails, takes = [sys.executable, "-c", "exit(1)"], [sys.executable, "-c", write]
    assert copy_with("à copier", [["specchat-has-no-such-program"], fails, takes])
    assert taken.read_text() == "à copier"
    assert not copy_with("text", [["specchat-has-no-such-program"], fails])


def test_tmux_gets_the_sequence_wrapped() -> None:
    plain = osc52_sequence("é", {})
    assert base64.b64decode(plain.removeprefix("\x1b]52;c;").removesuffix("\a")) == "é".encode()
    wrapped = osc52_sequence("é", {"TMUX": "/tmp/socket"})
    assert wrapped == f"\x1bPtmux;\x1b{plain}\x1b\\"


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ("no code", ""),
        ("```sh\none\n```\n\n- in a list:\n\n  ```\n  two\n\n  lines\n  ```\nend", "two\n\nlines"),
        ("text\n\n    indented", "indented"),
    ],
)
def test_the_last_block_of_code(answer: str, code: str) -> None:
    assert ["", *code_blocks(answer)][-1] == code


async def test_the_last_answer_and_its_code_are_copied(stage: Make) -> None:
    made = stage(Script(passes_of(f"<think> aloud </think>\n\n{ANSWER}", [CHATS], 3)))
    async with made.app.run_test() as pilot:
        await ask(pilot, made, "copy?")
        await pilot.press("ctrl+g")
        await until(pilot, lambda: made.app.clipboard == ANSWER)
        await pilot.press("alt+y")
        code = "cp -r source/ target/   # a trailing slash matters"
        await until(pilot, lambda: made.app.clipboard == code)


async def test_nothing_is_copied_without_an_answer_or_code(stage: Make) -> None:
    made = stage(Script(passes_of("no code here", [CHATS], 2)))
    async with made.app.run_test() as pilot:
        await pilot.press("ctrl+g")
        await ask(pilot, made, "copy?")
        await pilot.press("alt+y")
        await until(pilot, lambda: len(notices(made)) == 2)
        assert made.app.clipboard == ""
        assert notices(made) == ["No answer to copy.", "The answer has no code block."]


async def test_ctrl_c_stops_then_copies_then_clears_then_quits(
    stage: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copy, "monotonic", lambda: 0.0)
    made = stage(Script(passes_of("some words", [CHATS], 2), holds=True))
    async with made.app.run_test() as pilot:
        await ready(pilot, made)
        await send(pilot, made, "a question")
        await until(pilot, lambda: "some words" in shown(made))
        await type_in(pilot, made, "typed since")
        await pilot.press("ctrl+c")
        await answered(pilot, made)
        assert "stopped" in shown(made)
        assert made.conversation.prompt.text == "typed since"
        made.conversation.prompt.select_all()
        await pilot.press("ctrl+c")
        await until(pilot, lambda: made.app.clipboard == "typed since")
        made.conversation.prompt.move_cursor((0, 0))
        await pilot.press("ctrl+c")
        await until(pilot, lambda: not made.conversation.prompt.text)
        assert made.app.is_running
        await pilot.press("ctrl+c")
        await until(pilot, lambda: "Press Ctrl+C again to quit." in notices(made))
        await pilot.press("ctrl+c")
        await until(pilot, lambda: made.app._exit)


async def test_late_presses_of_ctrl_c_do_not_quit(
    stage: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(copy, "monotonic", lambda: now[0])
    made = stage()
    async with made.app.run_test() as pilot:
        await ready(pilot, made)
        for _ in range(3):
            await pilot.press("ctrl+c")
            now[0] += copy.QUIT_WINDOW_S + 0.1
        assert notices(made) == ["Press Ctrl+C again to quit."]
        assert not made.app._exit

"""Files are attached by key, drop and `@`, shown as chips, and folded in the transcript."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from textual import events
from textual.pilot import Pilot

from app.conversation.attachments import Attachment, compose
from app.interface.chat.attachment_bar import AttachmentBar
from app.interface.chat.suggestions import Suggestions
from datastores.chats.history import History
from datastores.chats.records import ASSISTANT, USER
from tests.app.interface.conftest import (
    PLAIN,
    SIZES,
    Compare,
    Make,
    Stage,
    notices,
    ready,
    send,
    shown,
    suggested,
    type_in,
    until,
)

SIZE = (100, 30)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with some files in it."""
    place = tmp_path / "work"
    (place / "src").mkdir(parents=True)
    (place / "notes.txt").write_text("one\ntwo\x1b[31m\n")
    (place / "my plan.md").write_text("# Plan\n")
    (place / "src" / "main.py").write_text("pass\n")
    (place / "src" / "util.py").write_text("pass\n")
    (place / "picture.png").write_bytes(b"\x89PNG\0\0")
    monkeypatch.chdir(place)
    return place


def bar(made: Stage) -> AttachmentBar:
    return made.conversation.prompt.attachments


def names(made: Stage) -> list[str]:
    """Names of the attachments that are read."""
    return [one.name for one in bar(made).attachments]


def told(made: Stage, words: str) -> bool:
    return words in "".join(notices(made))


def is_shown(made: Stage, words: str) -> bool:
    return words in shown(made)


async def paste(pilot: Pilot[None], text: str) -> None:
    pilot.app.post_message(events.Paste(text))
    await pilot.pause()


async def test_a_file_goes_with_the_question_and_is_stored_with_it(
    stage: Make, folder: Path, history: History
) -> None:
    made = stage(PLAIN)
    async with made.app.run_test(size=SIZE) as pilot:
        await ready(pilot, made)
        await type_in(pilot, made, "What is this?")
        await pilot.press("f8")
        await pilot.press(*"notes.txt", "enter")
        await until(pilot, lambda: names(made) == ["notes.txt"])
        assert "notes.txt · 13 bytes" in str(bar(made).render())
        assert made.conversation.prompt.text == "What is this?"
        await pilot.press("enter")
        await until(pilot, lambda: made.assistant.asked and made.conversation.turn is None)
        assert made.assistant.attached == [(Attachment("notes.txt", 13, "one\ntwo\x1b[31m"),)]
        assert not bar(made).display
        assert "▸ notes.txt · 13 bytes" in shown(made)
        assert "two" not in shown(made)
    stored = history.thread(history.chats()[0].id)[0]
    assert stored.content == "File notes.txt:\n\none\ntwo\x1b[31m\n\nWhat is this?"


async def test_an_unreadable_file_is_named_and_the_question_stays(
    stage: Make, folder: Path
) -> None:
    made = stage()
    async with made.app.run_test() as pilot:
        await ready(pilot, made)
        await type_in(pilot, made, "What is this?")
        for path, reason in (("gone.txt", "no such file"), ("picture.png", "binary")):
            await pilot.press("f8", *path, "enter")
            await until(pilot, partial(told, made, reason))
        assert made.conversation.prompt.text == "What is this?"
        assert bar(made).chips == ()


async def test_dropped_files_and_folders_become_chips_and_are_removed_by_key_and_mouse(
    stage: Make, folder: Path
) -> None:
    made = stage()
    async with made.app.run_test(size=SIZE) as pilot:
        await ready(pilot, made)
        await paste(pilot, f"'{folder}/my plan.md' {folder}/notes.txt {folder}/src")
        await until(pilot, lambda: len(names(made)) == 3)
        assert names(made) == ["my plan.md", "notes.txt", "src/"]
        assert "src/ · 2 files · 10 bytes" in str(bar(made).render())
        assert made.conversation.prompt.text == ""
        await pilot.press("backspace")
        assert names(made) == ["my plan.md", "notes.txt"]
        await pilot.press("x", "backspace")
        assert names(made) == ["my plan.md", "notes.txt"], "a character is deleted first"
        line = str(bar(made).render())
        await pilot.click(AttachmentBar, offset=(1 + line.index("✕"), 0))
        assert names(made) == ["notes.txt"]
        await pilot.click(AttachmentBar, offset=(3, 0))
        assert names(made) == ["notes.txt"], "only the cross removes"
        await pilot.press(*"/detach", "enter")
        await until(pilot, lambda: not bar(made).chips)
        await paste(pilot, f"{folder}/notes.txt")
        await until(pilot, lambda: names(made) == ["notes.txt"])
        await pilot.press("ctrl+c")
        assert bar(made).chips == ()


async def test_pasted_text_that_only_begins_with_a_path_stays_text(
    stage: Make, folder: Path
) -> None:
    made = stage()
    async with made.app.run_test() as pilot:
        await ready(pilot, made)
        await paste(pilot, f"{folder}/notes.txt is what?")
        await until(pilot, lambda: made.conversation.prompt.text)
        assert made.conversation.prompt.text == f"{folder}/notes.txt is what?"
        assert bar(made).chips == ()


async def test_a_path_after_an_at_is_completed_and_attached(stage: Make, folder: Path) -> None:
    made = stage(PLAIN)
    async with made.app.run_test(size=SIZE) as pilot:
        await ready(pilot, made)
        prompt = made.conversation.prompt
        await pilot.press(*"Explain @uti")
        await until(pilot, lambda: suggested(made) == ["src/util.py"])
        await pilot.press("enter")
        assert prompt.text == "Explain src/util.py "
        await until(pilot, lambda: names(made) == ["src/util.py"])
        await pilot.press(*"and @sr")
        await until(pilot, lambda: suggested(made) == ["src/", "src/main.py", "src/util.py"])
        await pilot.press("tab")
        assert prompt.text.endswith("and @src/")
        await until(pilot, lambda: suggested(made) == ["src/main.py", "src/util.py", "src/"])
        await pilot.press("up", "down", "enter")
        await until(pilot, lambda: names(made) == ["src/util.py", "src/main.py"])
        await pilot.press(*"or @my")
        await until(pilot, lambda: suggested(made)[:1] == ["my plan.md"])
        await until(pilot, lambda: made.conversation.query_one(Suggestions).size.height)
        await pilot.click(Suggestions, offset=(4, 0))
        await until(pilot, lambda: names(made)[-1] == "my plan.md")
        assert prompt.text == "Explain src/util.py and src/main.py or my plan.md "
        await pilot.press(*"@no")
        await until(pilot, lambda: suggested(made))
        await pilot.press("escape", "t", "enter")
        await until(pilot, lambda: made.assistant.asked)
        assert made.assistant.asked[0].endswith("my plan.md @not")


async def test_a_folded_attachment_unfolds_with_a_click_and_a_key(
    stage: Make, history: History
) -> None:
    chat = history.create_chat("title").id
    content, attached = compose("What is it?", [Attachment("notes.txt", 9, "walruses " * 3000)])
    question = history.add_message(chat, None, USER, content, attachments=attached)
    history.add_message(chat, question.id, ASSISTANT, "A list.")
    made = stage()
    async with made.app.run_test(size=SIZE) as pilot:
        await ready(pilot, made)
        made.conversation.open(chat)
        transcript = made.conversation.transcript
        for mark in ("▾", "▸"):
            await until(pilot, lambda: "notes.txt" in shown(made))
            transcript.go_to_start()
            await pilot.pause()
            await pilot.click("Transcript", offset=(4, 0))
            await until(pilot, partial(is_shown, made, f"{mark} notes.txt · 9 bytes"))
            assert ("walruses" in shown(made)) == (mark == "▾")
        transcript.focus()
        await pilot.press("up")
        for mark in ("▾", "▸"):
            await pilot.press("enter")
            await until(pilot, partial(is_shown, made, f"{mark} notes.txt · 9 bytes"))
        await pilot.press("ctrl+t")
        assert made.conversation.prompt.text == "What is it?"
        assert names(made) == ["notes.txt"]
        await pilot.press("escape")
        assert bar(made).chips == ()


async def test_unsent_files_stay_with_their_chat(stage: Make, folder: Path) -> None:
    made = stage(PLAIN)
    async with made.app.run_test(size=SIZE) as pilot:
        await ready(pilot, made)
        await send(pilot, made, "first")
        await until(pilot, lambda: made.assistant.asked and made.conversation.turn is None)
        chat = made.conversation.chat
        bar(made).attach([Path("notes.txt"), Path("picture.png")])
        made.conversation.open(None)
        assert bar(made).chips == (), "left while they are being read"
        await until(pilot, lambda: told(made, "binary"))
        made.conversation.open(chat)
        await until(pilot, lambda: names(made) == ["notes.txt"])
        assert len(bar(made).chips) == 1


@pytest.mark.parametrize("size", SIZES)
def test_chips(stage: Make, folder: Path, snap_compare: Compare, size: tuple[int, int]) -> None:
    made = stage()

    async def act(pilot: Pilot[None]) -> None:
        await ready(pilot, made)
        bar(made).attach([folder / name for name in ("notes.txt", "my plan.md", "src")])
        await until(pilot, lambda: len(names(made)) == 3)
        await type_in(pilot, made, "What is this?")

    assert snap_compare(made.app, terminal_size=size, run_before=act)


@pytest.mark.parametrize("size", SIZES)
def test_paths_after_an_at(
    stage: Make, folder: Path, snap_compare: Compare, size: tuple[int, int]
) -> None:
    made = stage()

    async def act(pilot: Pilot[None]) -> None:
        await ready(pilot, made)
        await pilot.press(*"Explain @")
        await until(pilot, lambda: suggested(made))

    assert snap_compare(made.app, terminal_size=size, run_before=act)


@pytest.mark.parametrize("size", SIZES)
def test_a_question_with_files(
    stage: Make, history: History, snap_compare: Compare, size: tuple[int, int]
) -> None:
    chat = history.create_chat("Walruses").id
    files = [Attachment("notes.txt", 1234, "walrus"), Attachment("src/", 56_789, "pass", 12)]
    content, attached = compose("What is in these files?", files)
    question = history.add_message(chat, None, USER, content, attachments=attached)
    history.add_message(chat, question.id, ASSISTANT, "Walruses.")
    made = stage()

    async def act(pilot: Pilot[None]) -> None:
        await ready(pilot, made)
        made.conversation.open(chat)
        await until(pilot, lambda: "notes.txt" in shown(made))

    assert snap_compare(made.app, terminal_size=size, run_before=act)

"""Export and restore: nothing is lost on the way, and a bad file spoils nothing."""

from __future__ import annotations

import json
import os
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from app.conversation.attachments import Attachment, compose
from app.conversation.export import as_json, as_markdown, write_whole
from app.conversation.restore import restore
from datastores.chats.history import History
from datastores.chats.records import ASSISTANT, STREAMING, SYSTEM, USER, Attached
from datastores.errors import InputError
from tests.app.importing.texts import read

_TEXT = st.text(max_size=30)
_NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
_JSON = st.recursive(
    st.none() | st.booleans() | _NUMBERS | _TEXT,
    lambda below: st.lists(below, max_size=3) | st.dictionaries(_TEXT, below, max_size=3),
    max_leaves=6,
)
_MESSAGE = st.fixed_dictionaries(
    {
        "parent": st.integers(0, 9),
        "role": st.sampled_from([SYSTEM, USER, ASSISTANT]),
        "content": _TEXT,
        "tokens": st.lists(st.integers(0, 2**32 - 1), max_size=4),
        "model": _TEXT,
        "finish": st.sampled_from(["stop", "length", "interrupted", "failed"]),
        "statistics": st.dictionaries(_TEXT, _JSON, max_size=2),
        "attachments": st.lists(_TEXT, max_size=2),
    }
)
_CHAT = st.fixed_dictionaries(
    {
        "title": _TEXT,
        "private": st.booleans(),
        "pinned": st.booleans(),
        "system": _TEXT,
        "sampling": st.sampled_from([{}, {"temperature": 0.5, "seed": 2**64 - 1}]),
        "messages": st.lists(_MESSAGE, max_size=6),
        "active": st.integers(0, 5),
    }
)


@contextmanager
def _opened(path: Path) -> Iterator[History]:
    """A history that does not wait for the disk."""
    with closing(History.open(path)) as history:
        history.store.db.conn.execute("PRAGMA synchronous = OFF")
        yield history


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    with _opened(tmp_path / "history.db") as opened:
        yield opened


@pytest.fixture
def other(tmp_path: Path) -> Iterator[History]:
    with _opened(tmp_path / "other.db") as opened:
        yield opened


def _make(history: History, chats: list[dict[str, Any]]) -> None:
    """Chats as the strategies describe them; `parent` counts among the messages before."""
    for made in chats:
        chat_exports = {key: made[key] for key in ("title", "private", "system", "sampling")}
        chat = history.create_chat(**chat_exports).id
        ids: list[int | None] = [None]
        for said in made["messages"]:
            rest = {key: value for key, value in said.items() if key != "parent"}
            parent = ids[said["parent"] % len(ids)]
            rest["attachments"] = _attached(rest["content"], rest["attachments"])
            ids.append(history.add_message(chat, parent, **rest).id)
        history.pin(chat, made["pinned"])
        if made["active"] % len(ids):
            history.set_active(chat, ids[made["active"] % len(ids)] or 0)


def _attached(content: str, names: list[str]) -> list[Attached]:
    """Attachments of these names somewhere in `content`, in order."""
    half = len(content) // 2
    places = [(0, half), (half, len(content))]
    return [Attached(name, 7, 1, *place) for name, place in zip(names, places, strict=False)]


def _exported(history: History) -> str:
    chats = sorted(history.chats(), key=lambda chat: chat.id)
    return "".join(as_json(history, chats))


def _restored(history: History, content: str, folder: Path) -> tuple[int, int, list[str]]:
    path = folder / "export.json"
    path.write_text(content, encoding="utf-8")
    report = restore(path, history)
    return report.restored, report.present, report.flaws


def _told(chat: dict[str, Any]) -> int:
    """How many messages of a chat are exported: all but empty answers that nothing follows."""
    followed, told = set(), 0
    for place in range(len(chat["messages"]), 0, -1):
        said = chat["messages"][place - 1]
        early = said["role"] == ASSISTANT and said["finish"] in ("interrupted", "failed")
        if place in followed or said["content"] or not early:
            followed.add(said["parent"] % place)
            told += 1
    return told


@given(st.lists(_CHAT, min_size=1, max_size=4))
@settings(max_examples=30)
def test_what_was_exported_comes_back_equal(chats: list[dict[str, Any]]) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        with _opened(folder / "a.db") as history:
            _make(history, chats)
            content = _exported(history)
            assert content.count('"parent":') == sum(map(_told, chats))
        with _opened(folder / "b.db") as other:
            assert _restored(other, content, folder) == (len(chats), 0, [])
            assert _exported(other) == content
            assert json.loads(content)["specchat"] == 1
            assert _restored(other, content, folder) == (0, len(chats), [])
            assert _exported(other) == content


def _sample(history: History) -> int:
    """A chat with two versions of its answer; the older one is being read."""
    chat = history.create_chat("title", system="Be brief.").id
    question = history.add_message(chat, None, USER, "question")
    answer = history.add_message(chat, question.id, ASSISTANT, "```\ncode", finish="interrupted")
    history.add_message(chat, question.id, ASSISTANT, "second answer")
    history.set_active(chat, answer.id)
    return chat


def test_what_was_deleted_since_comes_back_and_the_rest_is_left_alone(
    history: History, tmp_path: Path
) -> None:
    gone, kept = _sample(history), _sample(history)
    content = _exported(history)
    before = history.tree(gone)
    history.delete_chat(gone)
    history.rename(kept, "a new title")
    history.add_message(kept, None, USER, "said since")
    assert _restored(history, content, tmp_path) == (1, 1, [])
    assert [chat.title for chat in history.chats()] == ["a new title", "title"]
    back = history.chats()[1]
    assert [message.content for message in history.tree(back.id)] == [
        message.content for message in before
    ]
    assert [message.content for message in history.thread(back.id)] == ["question", "```\ncode"]


def test_an_answer_still_being_written_is_exported_as_far_as_it_is(
    history: History, other: History, tmp_path: Path
) -> None:
    chat = history.create_chat("t").id
    answer = history.add_message(chat, None, ASSISTANT, "", finish=STREAMING)
    history.extend_message(answer.id, "half", (1, 2), {})
    assert _restored(other, _exported(history), tmp_path) == (1, 0, [])
    [message] = other.tree(1)
    assert (message.content, message.finish) == ("half", "interrupted")


@given(_CHAT, st.data())
@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_chat_that_is_not_as_it_should_be_costs_only_itself(
    history: History, other: History, tmp_path: Path, chat: dict[str, Any], data: st.DataObject
) -> None:
    """Any one value of the file replaced by any other: restored or named, and the rest is there."""
    for old in history.chats():
        history.delete_chat(old.id)
    for old in other.chats():
        other.delete_chat(old.id)
    _make(history, [chat])
    _sample(history)
    content = json.loads(_exported(history))
    place = content["chats"][0]
    if place["messages"] and data.draw(st.booleans()):
        place = data.draw(st.sampled_from(place["messages"]))
    place[data.draw(st.sampled_from(sorted(place)))] = data.draw(_JSON)
    restored, present, flaws = _restored(other, json.dumps(content), tmp_path)
    assert (restored + len(flaws), present) == (2, 0)
    assert all(flaw.startswith("chat 1: ") for flaw in flaws)
    kept = other.chats()
    assert len(kept) == restored
    for one in kept:
        other.thread(one.id)
    assert json.loads(_exported(other))["chats"][-1] == content["chats"][1]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "damaged or truncated JSON"),
        ("{]", "damaged or truncated JSON"),
        ("[]", "not an export of specchat"),
        ('{"specchat": 2, "chats": []}', "version 2, and this specchat reads 1"),
        ('{"specchat": 1, "chats": []}', "holds no chats"),
        ('{"specchat": 1, "chats": ' + "[" * 100_000, "nested more than"),
        ('{"specchat": 1, "chats": [{"title": "t"', "damaged or truncated JSON"),
    ],
)
def test_a_file_that_is_no_export_is_named(
    history: History, tmp_path: Path, content: str, complaint: str
) -> None:
    with pytest.raises(InputError, match=complaint):
        _restored(history, content, tmp_path)
    assert history.chats() == []


def test_a_file_cut_off_in_the_middle_gives_what_came_before(
    history: History, other: History, tmp_path: Path
) -> None:
    _sample(history)
    _sample(history)
    content = _exported(history)
    restored, present, flaws = _restored(other, content[:-30], tmp_path)
    assert (restored, present) == (1, 0)
    assert flaws == [f"the rest: {tmp_path / 'export.json'}: damaged or truncated JSON"]


def test_a_file_that_is_not_there_is_named(history: History, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read .*nothing\.json"):
        restore(tmp_path / "nothing.json", history)


def test_markdown_is_the_thread_as_it_is_read(history: History) -> None:
    chat = history.chat(_sample(history))
    assert "".join(as_markdown(history, [chat])).splitlines()[4:] == [
        "## System prompt",
        "",
        "Be brief.",
        "",
        "## You",
        "",
        "question",
        "",
        "## Assistant (version 1 of 2, interrupted)",
        "",
        "```",
        "code",
        "```",
        "",
    ]


def test_no_export_has_an_answer_without_a_word(history: History) -> None:
    chat = history.create_chat("title").id
    question = history.add_message(chat, None, USER, "question")
    history.add_message(chat, question.id, ASSISTANT, "", finish="interrupted")
    [record] = json.loads(_exported(history))["chats"]
    assert [message["content"] for message in record["messages"]] == ["question"]
    assert record["active"] == 1
    assert "Assistant" not in "".join(as_markdown(history, history.chats()))


def test_markdown_names_what_was_attached_instead_of_repeating_it(history: History) -> None:
    chat = history.create_chat("title").id
    content, attached = compose("What is it?", [Attachment("notes.txt", 9, "walruses")])
    history.add_message(chat, None, USER, content, attachments=attached)
    text = "".join(as_markdown(history, history.chats()))
    assert text.endswith("## You\n\n*Attached: notes.txt*\n\nWhat is it?\n\n")


@pytest.mark.parametrize(
    "changed", [{"end": 99}, {"start": 9, "end": 3}, {"size": -1}, {"name": 3}, {"files": None}]
)
def test_attachments_outside_of_their_message_are_refused(
    history: History, other: History, tmp_path: Path, changed: dict[str, object]
) -> None:
    chat = history.create_chat("title").id
    attached = Attached("notes.txt", 9, 1, 3, 9)
    history.add_message(chat, None, USER, "0123456789", attachments=[attached])
    document = json.loads(_exported(history))
    document["chats"][0]["messages"][0]["attachments"][0].update(changed)
    restored, _, [flaw] = _restored(other, json.dumps(document), tmp_path)
    assert restored == 0
    assert "attachments" in flaw or "is missing or not of type" in flaw


def test_markdown_says_of_an_answer_that_it_failed(history: History) -> None:
    chat = history.create_chat("title").id
    history.add_message(chat, None, ASSISTANT, "half", finish="failed")
    assert "## Assistant (failed)\n\nhalf" in "".join(as_markdown(history, history.chats()))


@pytest.mark.parametrize(
    ("content", "end"),
    [
        ("~~~~ python\nx\n~~~", "~~~\n~~~~"),
        ("```\nx\n```", "x\n```"),
        ("```\n``` no end\n````", "``` no end\n````"),
        ("no code\n", "no code"),
    ],
)
def test_markdown_closes_what_was_left_open(history: History, content: str, end: str) -> None:
    chat = history.create_chat()
    history.add_message(chat.id, None, ASSISTANT, content)
    text = "".join(as_markdown(history, [history.chat(chat.id)]))
    assert text.endswith(f"{end}\n\n")


def test_the_importing_reader_reads_the_export_without_what_is_private(
    history: History, tmp_path: Path
) -> None:
    _sample(history)
    secret = history.create_chat("private", private=True).id
    history.add_message(secret, None, USER, "psst")
    path = tmp_path / "export.json"
    path.write_text(_exported(history))
    [document], skipped = read(path.name, path.read_bytes())
    assert [part.text for part in document.parts] == ["question", "```\ncode", "second answer"]
    assert [one.reason for one in skipped] == ["a private chat"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b'[{"title": "T", "mapping": {}}]', "`specchat import` reads those of others"),
        (b'{"specchat": 1, "chats": [{"title": ' + b"9" * 500_000, "more than 1000 digits"),
        (b'{"specchat": 1, "chats": [' * 300, "nested more than"),
    ],
)
def test_files_of_others_are_refused_in_a_line(
    history: History, tmp_path: Path, content: bytes, reason: str
) -> None:
    path = tmp_path / "export.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=reason):
        restore(path, history)


def test_oddities_of_json_cost_only_the_chat_that_they_are_in(
    history: History, tmp_path: Path
) -> None:
    _sample(history)
    export = json.loads(_exported(history))
    [chat] = export["chats"]
    odd = {**chat, "title": "\udc80", "created": float("nan")}
    path = tmp_path / "export.json"
    path.write_text(json.dumps({**export, "chats": [odd, {**chat, "title": "again \udc80"}]}))
    history.delete_chat(history.chats()[0].id)
    report = restore(path, history)
    assert (report.restored, len(report.flaws)) == (1, 1)
    assert [one.title for one in history.chats()] == ["again \ufffd"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_version_of_any_length_is_told_in_a_line(history: History, tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text(json.dumps({"specchat": "a" * 10_000, "chats": []}))
    with pytest.raises(InputError, match="it has version aaaaa") as told:
        restore(path, history)
    assert len(str(told.value)) < len(str(path)) + 100


@pytest.mark.skipif(sys.platform != "linux", reason="others cannot limit what a process allocates")
def test_a_chat_that_would_fill_the_memory_is_refused(
    history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import resource

    before = resource.getrlimit(resource.RLIMIT_AS)
    monkeypatch.setattr("app.conversation.restore.MAX_CHAT_MEMORY_BYTES", 64 * 2**20)
    path = tmp_path / "large.json"
    path.write_text(f'{{"specchat": 1, "chats": [{{"messages": [{"[]," * 8_000_000}[]]}}]}}')
    with pytest.raises(InputError, match="a chat needs too much memory to read"):
        restore(path, history)
    assert resource.getrlimit(resource.RLIMIT_AS) == before


def test_a_chat_larger_than_any_is_refused_and_those_before_it_are_restored(
    history: History, other: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small, large = _sample(history), history.create_chat("large").id
    history.add_message(large, None, USER, "x" * 3 * 2**20)
    content = "".join(as_json(history, [history.chat(small), history.chat(large)]))
    assert _restored(other, content, tmp_path) == (2, 0, []), "it has less than 64 MiB"
    other.delete_chat(2)
    monkeypatch.setattr("app.conversation.restore.MAX_CHAT_BYTES", 2**20)
    restored, present, [flaw] = _restored(other, content, tmp_path)
    assert (restored, present) == (0, 1)
    assert flaw == f"the rest: {tmp_path / 'export.json'}: an entry larger than 1 MiB"


@pytest.mark.skipif(not hasattr(os, "SEEK_DATA"), reason="the system does not tell of holes")
def test_a_sparse_file_is_read_without_its_holes(history: History, tmp_path: Path) -> None:
    path = tmp_path / "history.db.corrupt-1"
    with closing(sqlite3.connect(path)) as made:
        made.execute("CREATE TABLE chats (id INTEGER PRIMARY KEY)")
    os.truncate(path, 2**40)
    with pytest.raises(InputError, match=r"holds no chats|nothing of it can be read"):
        restore(path, history)


@pytest.mark.parametrize("kind", ["a folder", "a loop", "a device", "nested"])
def test_what_is_no_file_to_restore_is_told_in_a_line(
    kind: str, history: History, tmp_path: Path
) -> None:
    path = tmp_path / "given"
    if kind == "a folder":
        path.mkdir()
    elif kind == "a loop":
        path.symlink_to(path)
    elif kind == "a device":
        path.symlink_to("/dev/zero")
    else:
        path.write_text('{"specchat": 1, "chats": ' + "[" * 100_000 + "]" * 100_000 + "}")
    with pytest.raises(InputError, match=r"not a file|symbolic links|nested more than"):
        restore(path, history)


def test_a_pipe_is_refused_without_waiting(history: History, tmp_path: Path) -> None:
    path = tmp_path / "pipe.json"
    os.mkfifo(path)
    with pytest.raises(InputError, match="it is not a file"):
        restore(path, history)


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_device_is_not_replaced_by_a_file(tmp_path: Path, overwrite: bool) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="is not a file"):
        write_whole(tmp_path / "pipe", ["text"], overwrite=overwrite)
    assert (tmp_path / "pipe").is_fifo()


def test_a_name_too_long_for_any_file_is_said_to_be(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot write .*: File name too long"):
        write_whole(tmp_path / ("a" * 300), ["text"])

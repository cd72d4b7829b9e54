"""Exports of chats: which messages count, in which order, and what broken ones cost."""

from __future__ import annotations

import io
import json
import math
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.importing import json_stream
from app.importing.events import SkippedFile
from app.importing.import_file import ImportFile
from app.importing.json_cleaning import CleanedJson
from app.importing.json_stream import items, records
from datastores.errors import InputError
from datastores.library.documents import CHATS
from datastores.library.library import Library
from tests.app.importing import texts
from tests.app.importing.conftest import Importer
from tests.app.importing.texts import chatgpt_node, read, stored, turns, zipped

HELLO = [("user", "hello"), ("assistant", "hi")]


def test_chatgpt_follows_the_current_node_up_to_the_root() -> None:
    nodes = {
        "root": {"parent": None, "message": None},
        "asked": chatgpt_node("root", "user", "hello"),
        "dropped": chatgpt_node("asked", "assistant", "an answer that was regenerated"),
        "kept": chatgpt_node("asked", "assistant", "hi"),
    }
    for order in (nodes, dict(reversed(nodes.items()))):
        export = [{"title": "t", "mapping": order, "current_node": "kept"}]
        assert turns("conversations.json", export) == [HELLO]


def test_chatgpt_without_a_current_node_takes_the_last_leaf() -> None:
    conversation = texts.chatgpt("t", "hello", "hi")
    del conversation["current_node"]
    conversation["mapping"]["0"]["children"] = ["1"]  # type: ignore[index]
    assert turns("conversations.json", [conversation]) == [HELLO]


@pytest.mark.parametrize(
    "hidden",
    [
        {"author": {"role": "system"}},
        {"author": {"role": "tool", "name": "python"}},
        {"recipient": "python"},
        {"channel": "analysis"},
        {"weight": 0},
        {"metadata": {"is_visually_hidden_from_conversation": True}},
        {"content": {"content_type": "thoughts", "thoughts": [{"content": "hm"}]}},
        {"content": {"content_type": "code", "text": "import os"}},
        {"content": {"content_type": "user_editable_context", "user_profile": "I am"}},
        {"content": {"content_type": "text", "parts": [""]}},
        {"content": {"content_type": "text", "parts": None}},
    ],
)
def test_chatgpt_skips_what_the_person_did_not_see(hidden: dict[str, object]) -> None:
    nodes = {
        "a": chatgpt_node(None, "user", "hello"),
        "b": chatgpt_node("a", "assistant", "unseen", **hidden),
        "c": chatgpt_node("b", "assistant", "hi", channel="final"),
    }
    assert turns("c.json", [{"mapping": nodes, "current_node": "c"}]) == [HELLO]


def test_chatgpt_keeps_text_next_to_pictures_and_drops_marks_of_sources() -> None:
    content = {
        "content_type": "multimodal_text",
        "parts": [
            {"content_type": "image_asset_pointer", "asset_pointer": "file-service://x"},
            {"content_type": "audio_transcription", "text": "spoken"},
            "typed\ue200cite\ue202turn0search1\ue201 and【12†source】 on",
        ],
    }
    nodes = {"a": chatgpt_node(None, "user", content=content)}
    assert turns("c.json", [{"mapping": nodes, "current_node": "a"}]) == [
        [("user", "spoken\n\ntyped and on")]
    ]


def test_chatgpt_names_a_conversation_that_loops_and_reads_the_rest() -> None:
    loop = {"a": chatgpt_node("b", "user", "x"), "b": chatgpt_node("a", "assistant", "y")}
    export = [{"mapping": loop, "current_node": "a"}, texts.chatgpt("fine", "hello", "hi")]
    found, skipped = read("conversations.json", json.dumps(export).encode())
    assert [document.title for document in found] == ["fine"]
    assert skipped == [SkippedFile("conversations.json, chat 1", "its messages form a loop")]


def test_claude_prefers_blocks_to_the_rendered_text() -> None:
    conversation = {
        "uuid": "u",
        "name": "n",
        "chat_messages": [
            {"sender": "human", "text": "hello", "content": []},
            {
                "sender": "assistant",
                "text": "```\nThis block is not supported\n```\n\nhi",
                "content": [
                    {"type": "thinking", "thinking": "hm"},
                    {"type": "tool_use", "name": "t", "input": {}},
                    {"type": "text", "text": "hi"},
                ],
            },
        ],
    }
    assert turns("conversations.json", [conversation]) == [HELLO]
    assert turns("one.json", conversation) == [HELLO]


def test_claude_s_rendered_text_counts_where_blocks_are_empty() -> None:
    chat_exports = [
        {"sender": "human", "text": "hello", "content": [{"type": "text", "text": ""}]},
        {"sender": "assistant", "text": "not supported", "content": [{"type": "tool_use"}]},
        {"sender": "assistant", "text": "hi"},
    ]
    assert turns("c.json", {"uuid": "u", "chat_messages": chat_exports}) == [HELLO]


SHAREGPT = {
    "id": "x",
    "conversations": [
        {"from": "system", "value": "be kind"},
        {"from": "human", "value": "hello"},
        {"from": "gpt", "value": "hi"},
    ],
}
MESSAGES = {
    "messages": [
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": [{"type": "text", "text": "hello"}, {"type": "image_url"}]},
        {"role": "tool", "content": "42"},
        {"role": "assistant", "content": "hi", "tool_calls": []},
    ]
}


@pytest.mark.parametrize("record", [SHAREGPT, MESSAGES])
def test_records_come_alone_in_arrays_and_one_a_line(record: object) -> None:
    assert turns("a.json", record) == [HELLO]
    assert turns("a.json", [record, record]) == [HELLO, HELLO]
    lines = "\n".join(json.dumps(record) for _ in range(3)).encode()
    for name in ("a.jsonl", "a.ndjson", "a.json", "a"):
        found, skipped = read(name, lines)
        assert len(found) == 3
        assert not skipped


@pytest.mark.parametrize(
    "record",
    [
        {"id": 10**30, "score": 1.5, **MESSAGES},
        {"messages": [{"role": "user", "content": [{"type": "input_text", "text": "hello"}]},
                      {"role": "model", "content": [{"type": "output_text", "text": "hi"}]}]},
        {"conversations": [{"role": "User", "content": "hello"}, {"role": "bot", "content": "hi"}]},
    ],
)  # fmt: skip
def test_odd_records_are_read_as_they_are_meant(record: object) -> None:
    assert turns("a.json", [record, record]) == [HELLO, HELLO]
    assert turns("a.jsonl", record) == [HELLO]


def test_lines_with_numbers_that_only_python_writes() -> None:
    line = json.dumps({"score": float("nan"), **MESSAGES}).encode()
    found, skipped = read("a.jsonl", line + b"\n" + line)
    assert (len(found), skipped) == (2, [])


def test_half_a_character_costs_only_itself() -> None:
    for name in ("a.json", "a.jsonl"):
        (document,), _ = read(name, b'{"messages": [{"role": "user", "content": "a \\ud83d b"}]}\n')
        text = document.parts[0].text
        assert (text[:2], text[-2:]) == ("a ", " b")


def test_a_broken_line_costs_only_itself() -> None:
    line = json.dumps(MESSAGES)
    lines = [line, '{"messages": [', "", '{"messages": []}', "[" * 5000 + "]" * 5000, line]
    found, skipped = read("chats.jsonl", "\n".join(lines).encode())
    assert len(found) == 2
    assert [skipped_file.name for skipped_file in skipped] == [
        "chats.jsonl, line 2",
        "chats.jsonl, chat 4",
        "chats.jsonl, line 5",
    ]


def test_specchat_s_own_export_with_all_versions_but_no_private_chat() -> None:
    chats = [
        {
            "title": "t",
            "messages": [
                {"id": 1, "parent": None, "role": "user", "content": "hello"},
                {"id": 2, "parent": 1, "role": "assistant", "content": "hi"},
                {"id": 3, "parent": 1, "role": "assistant", "content": "hey"},
            ],
        },
        {"title": "mine", "private": True, "messages": [{"role": "user", "content": "psst"}]},
    ]
    found, skipped = read("chats.json", json.dumps({"specchat": 1, "chats": chats}).encode())
    assert [[part.text for part in document.parts] for document in found] == [
        ["hello", "hi", "hey"]
    ]
    assert skipped == [SkippedFile("chats.json, chat 2", "a private chat")]


def test_an_export_cut_short_gives_what_came_before(folder: Path, imported: Importer) -> None:
    export = json.dumps([texts.chatgpt(f"chat {n}", "hello", "hi " * n) for n in range(1, 40)])
    (folder / "conversations.json").write_text(export[: len(export) // 2])
    report = imported(folder)
    assert 10 < report.documents < 30
    assert report.skipped == {"damaged or truncated JSON": ["conversations.json"]}
    again = imported(folder)
    assert (again.documents, again.unchanged) == (0, report.documents)
    assert again.skipped == report.skipped
    (folder / "conversations.json").write_text(export)
    whole = imported(folder)
    assert whole.documents + whole.unchanged == 39


def test_an_entry_that_is_too_large_is_not_read_to_its_end() -> None:
    small, large = b'{"a": 1}', b'{"a": "' + b"x" * 10**6 + b'"}'
    stream = io.BytesIO(b"[" + b",".join([small, small, large, small]) + b"]")
    entries = items(stream, "item", limit=2**17)
    assert [next(entries), next(entries)] == [{"a": 1}, {"a": 1}]
    with pytest.raises(InputError, match="an entry larger than"):
        next(entries)
    assert stream.tell() <= 2**18


def test_a_chat_that_is_too_large_costs_only_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_stream, "MAX_ENTRY_BYTES", 2**17)
    large = {"messages": [{"role": "user", "content": "x" * 100}] * 2000}
    found, skipped = read("a.json", json.dumps([MESSAGES, large, MESSAGES, MESSAGES]).encode())
    assert [[part.text for part in one.parts] for one in found] == [["hello", "hi"]] * 3
    assert [one.name for one in skipped] == ["a.json, entry 2"]
    assert skipped[0].reason.startswith("an entry larger than")
    found, skipped = read("a.json", json.dumps({"chats": [MESSAGES, large, MESSAGES]}).encode())
    assert [len(one.parts) < 2000 for one in found] == [True, True]
    assert [one.name for one in skipped] == ["a.json"]


def test_many_small_entries_are_no_large_one() -> None:
    stream = io.BytesIO(b"[" + b",".join([b'{"a": 1}'] * 50_000) + b"]")
    assert len(list(items(stream, "item", limit=2**17))) == 50_000


def test_an_export_in_its_zip_is_its_conversations_only(
    folder: Path, library: Library, imported: Importer
) -> None:
    shards = {
        "conversations-000.json": json.dumps([texts.chatgpt("one", "hello", "hi")]).encode(),
        "conversations-001.json": json.dumps([texts.chatgpt("two", "hello", "hey")]).encode(),
        "chat.html": b"<html>one two</html>",
        "user.json": b'{"email": "me@example.org"}',
    }
    report = imported(zipped(folder / "export.zip", shards))
    assert report.documents == 2
    assert report.skipped == {
        "an extra file of a chat export": ["export.zip/chat.html", "export.zip/user.json"]
    }
    assert stored(library)["two"] == [(CHATS, "user", "hello"), (CHATS, "assistant", "hey")]


KEYS = ["mapping", "current_node", "message", "author", "role", "content", "parts", "parent", "a"]
KEYS += ["recipient", "metadata", "content_type", "chat_messages", "sender", "text", "messages"]
KEYS += ["conversations", "from", "value", "specchat", "chats", "versions", "currentlySelected"]
KEYS += ["fragments", "prompt", "response", "blocks", "messageId", "docs", "internal", "visible"]
KEYS += ["children", "currentId", "attachments", "input", "type", "created_at", "private", "id"]

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(value=JSON, lines=st.booleans())
def test_no_json_breaks_the_reader(value: object, lines: bool) -> None:
    content = b"\n".join([json.dumps(value).encode()] * 2) if lines else json.dumps(value).encode()
    found, skipped = read("any.json", content)
    assert found or skipped


@given(st.lists(JSON, max_size=5))
def test_records_are_what_json_says(values: list[object]) -> None:
    array = texts.import_file("a.json", json.dumps(values).encode())
    expected = [json.loads(json.dumps(value), parse_float=Decimal) for value in values]
    assert _values(array) == expected
    lines = texts.import_file("a.jsonl", b"\n".join(json.dumps(value).encode() for value in values))
    assert _values(lines) == values


def _values(file: ImportFile) -> list[object]:
    return [record.value for record in records(file, lambda _: False, lambda _: False)]  # type: ignore[union-attr]


@given(
    value=st.recursive(
        st.sampled_from([float("nan"), float("inf"), -float("inf"), 1, None, 'NaN, \\"', "\ud800x"])
        | st.text(max_size=3),
        lambda below: st.lists(below, max_size=4) | st.dictionaries(st.text(max_size=2), below),
    ),
    size=st.integers(1, 40),
)
def test_what_python_writes_as_json_is_read_whatever_the_buffer(value: object, size: int) -> None:
    stream = io.BytesIO(json.dumps([value]).encode())
    cleaned = CleanedJson(stream)
    content = b"".join(iter(lambda: cleaned.read(size), b""))
    assert json.loads(content) == [_without_oddities(value)]


def _without_oddities(value: object) -> object:
    match value:
        case float():
            return value if math.isfinite(value) else None
        case str():
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        case list():
            return [_without_oddities(item) for item in value]
        case dict():
            return {_without_oddities(key): _without_oddities(item) for key, item in value.items()}
    return value


def test_a_number_of_thousands_of_digits_is_refused() -> None:
    for name in ("a.json", "conversations.json"):
        found, skipped = read(name, b'[{"n": ' + b"9" * 5000 + b"}]")
        assert (found, [one.reason for one in skipped]) == (
            [],
            ["a number of more than 1000 digits"],
        )


@pytest.mark.parametrize(
    "encoding",
    ["utf-16", "utf-8-sig", "utf-32", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"],
)
def test_exports_may_be_in_utf16_or_have_a_byte_order_mark(encoding: str) -> None:
    found, skipped = read("a.json", json.dumps([MESSAGES], ensure_ascii=False).encode(encoding))
    assert ([[part.text for part in one.parts] for one in found], skipped) == (
        [["hello", "hi"]],
        [],
    )

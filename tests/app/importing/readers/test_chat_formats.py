"""Exports of many programs, in the shape that each writes: the chat, and what is beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from app.importing.events import SkippedFile
from app.importing.readers.chat_messages import without_reasoning
from datastores.library.documents import CHATS, CODE, NOTES
from datastores.library.library import Library
from tests.app.importing.conftest import Importer
from tests.app.importing.texts import chatgpt, chatgpt_node, read, turns, zipped

HELLO = [("user", "hello"), ("assistant", "hi")]
PLAIN = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}]


def _block(text: str) -> list[dict[str, object]]:
    return [{"type": "text", "text": text}]


def _row(number: int, role: str, content: str, **more: object) -> dict[str, object]:
    return {"id": str(number), "convId": "c", "role": role, "content": content, **more}


FORMATS: dict[str, tuple[str, object]] = {
    "OpenAI messages": ("a.json", PLAIN),
    "Open WebUI": (
        "chat-export.json",
        [{"id": "1", "title": "T", "chat": {"title": "T", "models": ["m"], "history": {
            "messages": {
                "a": {"id": "a", "parentId": None, "childrenIds": ["b", "c"], "role": "user",
                      "content": "hello"},
                "b": {"id": "b", "parentId": "a", "childrenIds": [], "role": "assistant",
                      "content": "an answer that was regenerated"},
                "c": {"id": "c", "parentId": "a", "childrenIds": [], "role": "assistant",
                      "content": "hi"},
            }, "currentId": "c"}}}],
    ),
    "LM Studio": (
        "1755000000000.conversation.json",
        {"name": "T", "createdAt": 1, "messages": [
            {"versions": [{"type": "singleStep", "role": "user", "content": _block("dropped")},
                          {"type": "singleStep", "role": "user", "content": _block("hello")}],
             "currentlySelected": 1},
            {"versions": [{"type": "multiStep", "role": "assistant", "steps": [
                {"type": "contentBlock", "content": _block("hm"), "style": {"type": "thinking"}},
                {"type": "debugInfoBlock", "debugInfo": "x"},
                {"type": "contentBlock", "content": _block("hi")}]}], "currentlySelected": 0}]},
    ),
    "llama.cpp": (
        "conversation_c.json",
        {"conv": {"id": "c", "name": "T", "currNode": "2", "lastModified": 1},
         "messages": [_row(0, "system", "", type="root", parent=None),
                      _row(1, "user", "hello", type="text", parent="0", children=["2"], extra=[]),
                      _row(2, "assistant", "hi", type="text", parent="1", thinking="hm")]},
    ),
    "llama.cpp, all": (
        "llama_conversations.json",
        [{"conv": {"id": "c", "name": "T"},
          "messages": [_row(1, "user", "hello"), _row(2, "assistant", "hi")]}],
    ),
    "llama.cpp, database": (
        "llama-webui.json",
        {"formatName": "dexie", "data": {"tables": [{"name": "messages", "rowCount": 2}], "data": [
            {"tableName": "conversations", "rows": [{"id": "c", "name": "T"}, {"id": "d"}]},
            {"tableName": "messages", "rows": [
                _row(1, "user", "hello"), _row(2, "assistant", "hi"),
                {"id": "9", "convId": "d", "role": "system", "content": "be kind"}]}]}},
    ),
    "LibreChat": (
        "T.json",
        {"conversationId": "c", "title": "T", "messages": [
            {"messageId": "1", "sender": "User", "text": "hello", "isCreatedByUser": True},
            {"messageId": "2", "sender": "GPT-4", "text": "", "isCreatedByUser": False,
             "content": [{"type": "think", "think": "hm"}, {"type": "text", "text": "hi"}]}]},
    ),
    "LibreChat, recursive": (
        "T.json",
        {"title": "T", "recursive": True, "messagesTree": [
            {"sender": "User", "text": "hello", "isCreatedByUser": True, "children": [
                {"sender": "Claude", "text": "hi", "isCreatedByUser": False, "children": []}]}]},
    ),
    "BetterChatGPT": (
        "export.json",
        {"version": 1, "folders": {"f": {"id": "f", "name": "a folder"}},
         "chats": [{"id": "c", "title": "T", "messages": PLAIN, "config": {"model": "gpt"}}]},
    ),
    "NextChat": (
        "backup.json",
        {"access-control": {"accessCode": ""}, "chat-next-web-store": {"sessions": [
            {"id": "c", "topic": "T", "mask": {"name": "m", "context": []}, "messages": PLAIN}]}},
    ),
    "TypingMind": (
        "typingmind.json",
        {"data": {"folders": [{"id": "f", "title": "a folder"}],
                  "chats": [{"chatID": "c", "chatTitle": "T", "messages": PLAIN}]}},
    ),
    "Chatbox": (
        "chatbox.json",
        {"configs": {"uuid": "u"}, "chat-sessions-list": [{"id": "c", "name": "T"}],
         "session:c": {"id": "c", "name": "T", "messages": [
             {"role": "user", "contentParts": _block("hello")},
             {"role": "assistant", "contentParts": _block("hi")}]}},
    ),
    "LobeChat": (
        "lobechat.json",
        {"exportType": "sessions", "state": {"topics": [{"id": "t", "title": "T"}],
         "messages": [{**message, "sessionId": "s", "topicId": "t"} for message in PLAIN]
         + [{"role": "user", "content": "", "sessionId": "s", "topicId": None}]}},
    ),
    "HuggingChat": ("a.json", [{"title": "T", "messages": [
        {"from": "system", "content": ""}, {"from": "user", "content": "hello"},
        {"from": "assistant", "content": "hi"}]}]),
    "Grok": (
        "prod-grok-backend.json",
        {"conversations": [{"conversation": {"id": "c", "title": "T"}, "responses": [
            {"response": {"_id": "1", "message": "hello", "sender": "human"}},
            {"response": {"_id": "2", "message": "hi", "sender": "ASSISTANT"}}]}], "projects": []},
    ),
    "DeepSeek": (
        "conversations.json",
        [{"id": "c", "title": "T", "mapping": {
            "root": {"id": "root", "parent": None, "children": ["1"], "message": None},
            "1": {"id": "1", "parent": "root", "children": ["2"], "message": {
                "model": "m", "fragments": [{"type": "REQUEST", "content": "hello"}]}},
            "2": {"id": "2", "parent": "1", "children": [], "message": {
                "model": "m", "fragments": [{"type": "THINK", "content": "hm"},
                                            {"type": "RESPONSE", "content": "hi"}]}}}}],
    ),
    "Gemini API, AI Studio": (
        "T",
        {"runSettings": {"model": "m"}, "name": "T", "chunkedPrompt": {"chunks": [
            {"text": "hello", "role": "user", "tokenCount": 1},
            {"text": "hm", "role": "model", "isThought": True},
            {"role": "model", "parts": [{"text": "hm", "thought": True}, {"text": "hi"}]}],
            "pendingInputs": []}},
    ),
    "VS Code Copilot": (
        "chat.json",
        {"requesterUsername": "me", "title": "T", "requests": [{
            "message": {"text": "hello", "parts": [{"text": "hello", "kind": "text"}]},
            "response": [{"value": "hi", "isTrusted": False}, {"kind": "progress"}]}]},
    ),
    "LangChain": ("a.json", {"name": "T", "messages": [
        {"type": "human", "data": {"content": "hello"}},
        {"type": "ai", "data": {"content": "hi"}}]}),
    "Perplexity": (
        "thread.json",
        {"metadata": {"thread_title": "T"}, "conversations": [
            {"uuid": "1", "query": "hello", "answer": "hi", "sources": []}]},
    ),
    "big-AGI": (
        "conversation.agi.json",
        {"id": "c", "userTitle": "", "autoTitle": "T", "messages": [
            {"id": "1", "role": "user", "fragments": [
                {"ft": "content", "fId": "f", "part": {"pt": "text", "text": "hello"}}]},
            {"id": "2", "role": "assistant", "text": "hi"}]},
    ),
    "Cherry Studio": (
        "data.json",
        {"version": 5, "indexedDB": {
            "topics": [{"id": "t", "name": "T", "messages": [
                {"id": "1", "role": "user", "blocks": ["a"]},
                {"id": "2", "role": "assistant", "blocks": ["b", "c"]}]}],
            "message_blocks": [
                {"id": "a", "messageId": "1", "type": "main_text", "content": "hello"},
                {"id": "b", "messageId": "2", "type": "thinking", "content": "hm"},
                {"id": "c", "messageId": "2", "type": "main_text", "content": "hi"}]}},
    ),
    "OpenAssistant": (
        "T.json",
        {"message_tree_id": "1", "title": "T", "prompt": {
            "text": "hello", "role": "prompter", "replies": [
                {"text": "hi", "role": "assistant", "replies": []}]}},
    ),
    "AnythingLLM": (
        "chats.json",
        {"name": "T", "rows": [{"id": 1, "workspace": "w", "prompt": "hello", "response": "hi"}]},
    ),
    "Continue": (
        "session.json",
        {"sessionId": "c", "title": "T", "history": [
            {"message": {"role": "user", "content": "hello"}, "contextItems": []},
            {"message": {"role": "assistant", "content": "hi"}}]},
    ),
    "text-generation-webui": (
        "20250101.json",
        {"name": "T", "internal": [["hello", "hi"]], "visible": [["hello", "hi"]]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("program", FORMATS)
def test_the_chats_of_other_programs(program: str) -> None:
    name, value = FORMATS[program]
    (found,), skipped = read(name, json.dumps(value).encode())
    assert [(part.role, part.text) for part in found.parts] == HELLO
    assert not skipped
    assert found.title == ("T" if program != "OpenAI messages" else "a 1")


LINES: dict[str, tuple[str, list[object]]] = {
    "OpenAI messages": ("messages.jsonl", list(PLAIN)),
    "Jan": ("messages.jsonl", [
        {"id": "1", "object": "thread.message", "thread_id": "c", "role": role, "content": [
            {"type": "text", "text": {"value": text, "annotations": []}}]}
        for role, text in HELLO]),
    "SillyTavern": ("T.jsonl", [
        {"user_name": "Me", "character_name": "T", "chat_metadata": {}},
        {"name": "Me", "is_user": True, "is_system": False, "mes": "hello"},
        {"name": "T", "is_user": False, "mes": "hi", "swipes": ["hi", "hey"]}]),
    "Claude Code": ("session.jsonl", [
        {"type": "summary", "summary": "T", "leafUuid": "1"},
        {"type": "user", "sessionId": "c", "message": {"role": "user", "content": "hello"}},
        {"type": "assistant", "sessionId": "c", "message": {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "hi"}]}}]),
    "Codex": ("rollout.jsonl", [
        {"type": "session_meta", "payload": {"id": "c"}},
        *({"type": "response_item", "payload": {"type": "message", "role": role, "content": [
            {"type": kind, "text": text}]}}
          for (role, text), kind in zip(HELLO, ("input_text", "output_text"), strict=True))]),
}  # fmt: skip


@pytest.mark.parametrize("program", LINES)
def test_a_message_a_line_makes_one_chat(program: str) -> None:
    name, values = LINES[program]
    (found,), skipped = read(name, "\n".join(map(json.dumps, values)).encode())
    assert [(part.role, part.text) for part in found.parts] == HELLO
    assert not skipped


def test_messages_of_several_chats_in_one_list_are_told_apart() -> None:
    def message(chat: str, role: str, content: str) -> dict[str, object]:
        return {"id": content, "chatId": chat, "role": role, "content": content,
                "contentChunks": None, "createdAt": "2025-08-12T10:00:00.000Z"}  # fmt: skip

    le_chat = [message("1", "user", "hello"), message("1", "assistant", "hi"),
               message("2", "user", "bye")]  # fmt: skip
    assert turns("chat-1.json", le_chat) == [HELLO, [("user", "bye")]]
    table = {"rows": [le_chat[2], *le_chat[:2]], "chats": [{"id": "1", "title": "One"}]}
    found, _ = read("backup.json", json.dumps(table).encode())
    assert {one.title for one in found} == {"backup 1", "One"}


def test_gemini_s_activities_are_questions_with_a_page_as_answer() -> None:
    activities = [
        {"header": "Gemini Apps", "title": "Prompted hello\nthere", "products": ["Gemini Apps"],
         "time": "2026-07-26T06:07:57.773Z", "safeHtmlItem": [{"html": "<p>hi — <b>you</b></p>"}]},
        {"header": "Gemini Apps", "title": "Used an Assistant feature"},
        {"header": "Search", "title": "Searched for hinges"},
        {"header": "Gemini-Apps", "title": "Gefragt: hallo", "safeHtmlItem": [{"html": "ja"}]},
    ]  # fmt: skip
    found, skipped = read("MyActivity.json", json.dumps(activities).encode())
    assert [(one.title, [part.text for part in one.parts]) for one in found] == [
        ("hello (2026-07-26)", ["hello\nthere", "hi — **you**"]),
        ("Gefragt: hallo", ["Gefragt: hallo", "ja"]),
    ]
    assert {one.reason for one in skipped} == {"no messages in it"}


@pytest.mark.parametrize(
    "value",
    [
        {"conversations": {"most": 3, "note": "a heron"}},
        {"messages": {"welcome": "Welcome, heron", "berth": "Berth number"}},
        {"messages": [{"role": "admin", "content": "heron"}, {"level": "info", "text": "x"}]},
        {"specchat": "settings of another program", "chats": "heron"},
        {"mapping": {"key": "heron"}, "current_node": "x"},
        {"chat_messages": "heron"},
        [{"role": "user", "name": "heron"}, {"role": "assistant", "email": "a@example.org"}],
        [{"from": "user", "to": "heron"}],
        [{"question": "Which bird?", "answer": "A heron"}],
        {"type": "module", "name": "heron", "message": "hello"},
        ["heron"],
        "heron",
        [],
    ],
)
def test_json_that_only_looks_like_an_export_is_text(value: object) -> None:
    for name in ("conversations.json", "messages.json", "a.conversation.json"):
        (found,), skipped = read(name, json.dumps(value).encode())
        assert [(part.kind, part.text) for part in found.parts] == [(CODE, json.dumps(value))]
        assert not skipped


@pytest.mark.parametrize("text", ["[ -f x ] && ls\n", "{not json\n", "[[wiki link]] first\n"])
def test_text_that_begins_like_json_is_text(text: str) -> None:
    (found,), skipped = read("note.md", text.encode())
    assert [(part.kind, part.text) for part in found.parts] == [(NOTES, text)]
    assert not skipped


def test_dates_are_days_in_titles_and_unlikely_ones_are_none() -> None:
    def title(**record: object) -> str:
        (found,), _ = read("a.json", json.dumps({"messages": PLAIN, **record}).encode())
        return found.title

    assert title(title="T", create_time=1755000000.5) == "T (2025-08-12)"
    assert title(title="T", created_at="2025-08-12T23:59:59.123456+00:00") == "T (2025-08-12)"
    assert title(createdAt=1755000000000) == "a 1 (2025-08-12)"
    odds: list[object] = [1, 1e300, -5, "yesterday", "", True, None, [], "9999-99-99"]
    for odd in odds:
        assert title(title="T", created_at=odd) == "T"


def _texts(name: str, value: object) -> list[tuple[str, str]]:
    (found,), skipped = read(name, json.dumps(value).encode())
    assert not skipped
    return [(part.kind, part.text) for part in found.parts]


def test_claude_s_attachments_and_artifacts() -> None:
    def said(sender: str, *blocks: object, **more: object) -> dict[str, object]:
        return {"sender": sender, "text": "", "content": list(blocks), **more}

    def wrote(**call: object) -> dict[str, object]:
        return {"type": "tool_use", "name": "artifacts", "input": call}

    minutes = {"file_name": "", "extracted_content": "Minutes: eleven planks."}
    chat = [
        said("human", attachments=[minutes, {"file_name": "x.png"}]),
        said(
            "assistant",
            *_block("Here."),
            wrote(command="create", type="application/vnd.ant.code", content="def gauge(): 1"),
            {"type": "tool_result", "content": _block("OK")},
            wrote(command="update", old_str="1", new_str="2"),
            wrote(command="create", type="text/markdown", title="Plan", content="# Willows"),
            {"type": "tool_use", "name": "bash", "input": {"command": "ls"}},
        ),
        said("human", *_block("Fix it"), attachments=[
            {"file_name": "gauge.py", "extracted_content": "import tide"}]),
    ]  # fmt: skip
    assert _texts("conversations.json", [{"name": "n", "chat_messages": chat}]) == [
        (NOTES, "Minutes: eleven planks."),
        (CHATS, "Here."),
        (CODE, "def gauge(): 1"),
        (NOTES, "2"),
        (NOTES, "# Willows"),
        (CODE, "import tide"),
        (CHATS, "Fix it"),
    ]


def test_claude_s_projects_come_with_the_chats(
    folder: Path, imported: Importer, library: Library
) -> None:
    project = {
        "uuid": "p", "name": "Mill", "prompt_template": "Answer as a miller.",
        "docs": [{"filename": "plan.md", "content": "# Plan"}, {"filename": "a.py", "content": ""}],
    }  # fmt: skip
    chats = [{"name": "Heron", "chat_messages": [{"sender": "human", "text": "Name a heron"}]}]
    members = {
        "conversations.json": json.dumps(chats).encode(),
        "projects.json": json.dumps([project]).encode(),
        "projects/q.json": json.dumps({**project, "name": "Weir", "prompt_template": ""}).encode(),
        "users.json": b"[]",
    }
    report = imported(zipped(folder / "export.zip", members))
    assert report.skipped == {"an extra file of a chat export": ["export.zip/users.json"]}
    titles = {row["title"] for row in library.store.rows("SELECT title FROM documents")}
    assert titles == {"Heron", "Mill: plan.md", "Mill: instructions", "Weir: plan.md"}


def test_chatgpt_s_canvas_is_what_was_written_into_it() -> None:
    def call(kind: str, content: object) -> dict[str, object]:
        return {"recipient": f"canmore.{kind}", "channel": "commentary",
                "content": {"content_type": "code", "text": json.dumps(content)}}  # fmt: skip

    update = {"updates": [{"pattern": ".*", "replacement": "Low tide."}]}
    nodes = {
        "a": chatgpt_node(None, "user", "hello"),
        "b": chatgpt_node(
            "a",
            "assistant",
            **call("create_textdoc", {"type": "code/python", "content": "def t()"}),
        ),
        "c": chatgpt_node("b", "assistant", **call("update_textdoc", update)),
        "d": chatgpt_node("c", "assistant", **call("comment_textdoc", {"comments": []})),
        "e": chatgpt_node("d", "assistant", "hi"),
    }
    assert _texts("c.json", [{"mapping": nodes, "current_node": "e"}]) == [
        (CHATS, "hello"),
        (CODE, "def t()"),
        (NOTES, "Low tide."),
        (CHATS, "hi"),
    ]


def test_chatgpt_s_tree_is_read_without_its_links_as_far_as_they_go() -> None:
    whole = chatgpt("T", "hello", "hi")
    for current in ("gone", None, 7):
        assert turns("c.json", [{**whole, "current_node": current}]) == [HELLO]
    nodes = {
        key: {name: value for name, value in node.items() if name != "children"}
        for key, node in whole["mapping"].items()  # type: ignore[attr-defined]
    }
    for order in (nodes, dict(reversed(nodes.items()))):
        assert turns("c.json", [{"title": "T", "mapping": order}]) == [HELLO]
    parentless = {
        key: {name: value for name, value in node.items() if name != "parent"}
        for key, node in whole["mapping"].items()  # type: ignore[attr-defined]
    }
    parentless["0"]["children"] = ["1"]
    assert turns("c.json", [{**whole, "mapping": parentless}]) == [HELLO]
    broken = {**nodes, "1": {**nodes["1"], "parent": "lost"}}
    assert turns("c.json", [{**whole, "mapping": broken}]) == [HELLO]
    rootless = {"1": nodes["1"], "0": {**nodes["0"], "parent": "above-all"}}
    assert turns("c.json", [{**whole, "mapping": rootless}]) == [HELLO]
    unlinked = {key: {"message": node["message"]} for key, node in nodes.items()}
    assert turns("c.json", [{**whole, "mapping": unlinked}]) == [HELLO]


def test_chatgpt_s_newest_leaf_is_by_time() -> None:
    nodes = {
        "a": chatgpt_node(None, "user", "hello"),
        "new": chatgpt_node("a", "assistant", "hi", create_time=1755000002.0),
        "old": chatgpt_node("a", "assistant", "dropped", create_time=1755000001.0),
    }
    assert turns("c.json", [{"mapping": nodes}]) == [HELLO]


def test_a_file_attached_in_llama_cpp_or_open_webui_is_kept() -> None:
    extra = [{"type": "textFile", "name": "t.py", "content": "import tide"},
             {"type": "imageFile", "name": "p.png", "base64Url": "data:"}]  # fmt: skip
    files = [{"type": "file", "file": {"filename": "n.txt", "data": {"content": "A note."}}}]
    for key, value, text in (("extra", extra, "import tide"), ("files", files, "A note.")):
        chat = {"messages": [{"role": "user", "content": "hello", key: value}]}
        assert [found for _, found in _texts("a.json", chat)] == [text, "hello"]


def test_chatgpt_s_deep_research_is_an_answer() -> None:
    mark = {"is_async_task_result_message": True}
    for metadata, report in ((mark, [("assistant", "# Herons")]), ({}, [])):
        nodes = {
            "a": chatgpt_node(None, "user", "hello"),
            "b": chatgpt_node("a", "tool", "# Herons", metadata=metadata),
        }
        exported = [{"mapping": nodes, "current_node": "b"}]
        assert turns("a.json", exported) == [[("user", "hello"), *report]]


def test_claude_s_memories_and_descriptions_of_projects_are_notes() -> None:
    memories = [
        {
            "conversations_memory": "Keeps a ferry.",
            "project_memories": {"p": "Plans a weir.", "q": ""},
            "account_uuid": "x",
        }
    ]
    found, skipped = read("memories.json", json.dumps(memories).encode())
    texts = [(one.title, part.kind, part.text) for one in found for part in one.parts]
    assert (texts, skipped) == (
        [
            ("Memories: chats", NOTES, "Keeps a ferry."),
            ("Memories: project p", NOTES, "Plans a weir."),
        ],
        [],
    )
    project = {"name": "Mill", "description": "Grinds.", "prompt_template": "", "docs": []}
    assert _texts("p.json", project) == [(NOTES, "Grinds.")]


def test_a_time_that_no_number_holds_is_none() -> None:
    (found,), skipped = read(
        "a.json",
        b'{"created_at": ' + b"9" * 400 + b', "messages": ' + json.dumps(PLAIN).encode() + b"}",
    )
    assert (len(found.parts), skipped) == (2, [])


def test_reasoning_within_a_text_is_left_out() -> None:
    folded = (
        '<details type="reasoning" done="true">\n<summary>Thought</summary>\n> hm\n</details>\n'
    )
    for text in ("<think>\nhm\n</think>\n\nhi", f"{folded}hi", "hi"):
        chat = [PLAIN[0], {"role": "assistant", "content": text}]
        assert turns("a.json", {"messages": chat}) == [HELLO]
    assert turns("a.json", [{"role": "user", "content": "what is </think>?"}]) == [
        [("user", "what is </think>?")]
    ]


class CountedText(str):
    """A text that counts the characters in which something was looked for."""

    searched = 0

    def find(self, *arguments: Any) -> int:
        found = super().find(*arguments)
        self.searched += (found if found >= 0 else len(self)) - arguments[1]
        return found


@pytest.mark.parametrize(
    "fold", ['<details type="reasoning">', "</details>", "<details></details>"]
)
def test_reasoning_that_nothing_closes_is_looked_for_once(fold: str) -> None:
    text = CountedText(fold * 1000 + "hi")
    assert without_reasoning(text) == text
    assert text.searched <= 2 * len(text)


def test_exports_in_windows_1252_are_read() -> None:
    text = "5 € – “naïve café”"
    content = json.dumps({"messages": [{"role": "user", "content": text}]}, ensure_ascii=False)
    for name in ("a.json", "a.jsonl"):
        (found,), skipped = read(name, content.encode("cp1252"))
        assert [part.text for part in found.parts] == [text]
        assert not skipped


def test_a_chat_cut_short_gives_the_messages_before() -> None:
    whole = json.dumps({"title": "T", "messages": PLAIN * 2})
    for name in ("a.json", "conversations.json"):
        (found,), skipped = read(name, whole[: whole.rindex("hi")].encode())
        assert [part.text for part in found.parts] == ["hello", "hi", "hello"]
        assert skipped == [SkippedFile(name, "damaged or truncated JSON")]


def test_one_bad_chat_costs_the_others_nothing() -> None:
    good = {"title": "T", "messages": PLAIN}
    bad = {"title": "B", "messages": [{"role": "tool", "content": "x"}]}
    for value in ([bad, good, 7, good], {"chats": [good, bad, good]}):
        found, _ = read("a.json", json.dumps(value).encode())
        assert [one.title for one in found] == ["T", "T"]
    _, skipped = read("a.json", json.dumps([bad, good]).encode())
    assert skipped == [SkippedFile("a.json, chat 1", "no messages in it")]


def test_a_private_chat_of_specchat_stays_private_in_whatever_order_keys_are() -> None:
    private = {"messages": PLAIN, "private": True, "sampling": {}, "title": "mine"}
    for value in (
        {"chats": [private], "specchat": 1},
        {"specchat": 1, "chats": [private]},
        [private],
        private,
        {"backup": {"mine": private}},
    ):
        found, skipped = read("a.json", json.dumps(value).encode())
        assert "hello" not in str(found)
        assert found or skipped

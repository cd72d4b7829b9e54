"""Chats as files: Markdown to read, JSON to keep and to restore (`app.conversation.restore`).

The JSON holds everything, one chat a line:

    {"specchat": 1, "chats": [
    {"title", "pinned", "private", "system", "sampling", "docs", "created", "updated", "active",
     "messages": [{"id", "parent", "role", "content", "tokens", "model", "tokenizer", "finish",
                   "statistics", "created", "attachments"}, …]},
    …]}

`messages` is the whole tree with all versions, in the order in which they were begun: `id` counts
from 1 within the chat, `parent` is the id of the previous message or null, and `active` is the id
of the message at which the chat is open, or null in an empty chat. `tokens` are the exact ids of
the tokenizer whose fingerprint is `tokenizer`. `attachments` locates the attached files in a
message's `content`: {"name", "size", "files", "start", "end"}, in bytes and characters; it is
absent without files. Times are seconds since 1970, UTC.

The Markdown is the open thread.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from app.conversation.attachments import question_of
from app.conversation.citations import Citation, own_titles, stored_citations, titled
from app.locations import working_folder
from app.sanitise import one_line
from datastores.chats.history import HistoryReader
from datastores.chats.records import (
    ASSISTANT,
    FAILED,
    INTERRUPTED,
    STREAMING,
    USER,
    Chat,
    StoredMessage,
)
from datastores.errors import InputError
from datastores.storage.files import write_atomic
from engines.chat_template.reasoning import split_reasoning

STEM_LENGTH = 60
"""Longest file name made of a title, without its suffix."""


def write_whole(path: Path, pieces: Iterable[str], *, overwrite: bool = False) -> None:
    """Write a file atomically, readable by its owner alone.

    Raises:
        InputError: it cannot be written, is no file, or exists and `overwrite` is false.
    """
    # Not `path.exists()`, which raises OSError for a name that is too long.
    is_file = os.path.isfile(path)
    if os.path.exists(path) and not is_file:
        raise InputError(f"{path} is not a file: choose another name, or print without -o")
    if not overwrite and (is_file or os.path.islink(path)):
        raise InputError(f"{path} already exists: use --force to overwrite it")
    try:
        write_atomic(path, pieces)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from error


def free_path(title: str, suffix: str) -> Path:
    """A path named after `title` that does not exist yet.

    It is in the working directory, or in the home directory if that is not writable.
    """
    folder = working_folder()
    if not os.access(folder, os.W_OK):
        folder = Path.home()
    stem = "-".join(re.findall(r"\w+", title.lower()))[:STEM_LENGTH].strip("-") or "chat"
    path, number = folder / f"{stem}{suffix}", 2
    while path.exists():
        path, number = folder / f"{stem}-{number}{suffix}", number + 1
    return path


VERSION = 1

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")


def as_json(history: HistoryReader, chats: Sequence[Chat]) -> Iterator[str]:
    """The JSON document of `chats`, in pieces."""
    yield f'{{"specchat": {VERSION}, "chats": ['
    for number, chat in enumerate(chats):
        record = chat_record(chat, history.tree(chat.id))
        yield ("," if number else "") + "\n" + json.dumps(record, ensure_ascii=False)
    yield "\n]}\n"


def chat_record(chat: Chat, messages: Sequence[StoredMessage]) -> dict[str, Any]:
    """One chat as in the JSON. An answer still being generated counts as interrupted.

    Answers without a word are left out, unless something follows them.
    """
    parents = {message.id: message.parent for message in messages}
    messages = _without_empty_answers(messages)
    ids = {message.id: number for number, message in enumerate(messages, start=1)}
    active = chat.active
    while active is not None and active not in ids:
        active = parents[active]
    return {
        "title": chat.title,
        "pinned": chat.pinned,
        "private": chat.private,
        "system": chat.system,
        "sampling": dict(chat.sampling),
        "docs": chat.docs,
        "created": chat.created,
        "updated": chat.updated,
        "active": None if active is None else ids[active],
        "messages": [_message_record(message, ids) for message in messages],
    }


def is_empty_answer(message: StoredMessage) -> bool:
    """Whether it is an answer that was stopped or failed before its first word."""
    ended_early = message.finish in (STREAMING, INTERRUPTED, FAILED)
    return message.role == ASSISTANT and not message.content and ended_early


def _without_empty_answers(messages: Sequence[StoredMessage]) -> list[StoredMessage]:
    """A tree without empty answers that have no children."""
    kept: list[StoredMessage] = []
    followed: set[int | None] = set()
    for message in reversed(messages):
        if message.id in followed or not is_empty_answer(message):
            kept.append(message)
            followed.add(message.parent)
    return kept[::-1]


def _message_record(message: StoredMessage, ids: Mapping[int, int]) -> dict[str, Any]:
    files = [asdict(one) for one in message.attachments]
    return {
        "id": ids[message.id],
        "parent": None if message.parent is None else ids[message.parent],
        "role": message.role,
        "content": message.content,
        "tokens": list(message.tokens),
        "model": message.model,
        "tokenizer": message.tokenizer,
        "finish": INTERRUPTED if message.finish == STREAMING else message.finish,
        "statistics": dict(message.statistics),
        "created": message.created,
        **({"attachments": files} if files else {}),
    }


def as_markdown(history: HistoryReader, chats: Sequence[Chat]) -> Iterator[str]:
    """The threads of `chats`, one after another, in pieces."""
    for chat in chats:
        versions = history.versions(chat.id)
        yield f"# {' '.join(chat.title.split()) or 'Untitled'}\n\n*{_date(chat.created)}*\n\n"
        if chat.system:
            yield f"## System prompt\n\n{_with_closed_fence(chat.system)}\n\n"
        thread = history.thread(chat.id)
        titles = own_titles(history, thread)
        for message in thread:
            if is_empty_answer(message):
                continue
            yield f"## {_heading(message, versions.get(message.id, ()))}\n\n"
            for one in message.attachments:
                yield f"*Attached: {' '.join(one.name.split())}*\n\n"
            yield from _text(message)
            yield from _citations(titled(stored_citations(message.statistics), titles))


def _text(message: StoredMessage) -> Iterator[str]:
    """The text; the reasoning before an answer is folded where HTML is rendered."""
    if message.role != ASSISTANT:
        yield f"{_with_closed_fence(question_of(message))}\n\n"
        return
    split = split_reasoning(message.content)
    if split.reasoning:
        reasoning = _with_closed_fence(split.reasoning)
        yield f"<details>\n<summary>Reasoning</summary>\n\n{reasoning}\n\n</details>\n\n"
    if split.answer or not split.reasoning:
        yield f"{_with_closed_fence(split.answer)}\n\n"


def _citations(citations: Sequence[Citation]) -> Iterator[str]:
    """The cited places, numbered."""
    for number, cited in enumerate(citations, start=1):
        place = one_line(cited.place).replace("`", "'")
        yield f"{number}. `{place}`\n"
    if citations:
        yield "\n"


def _heading(message: StoredMessage, versions: Sequence[int]) -> str:
    """The speaker, the version, and how an unfinished answer ended."""
    notes = []
    if versions:
        notes.append(f"version {versions.index(message.id) + 1} of {len(versions)}")
    if message.finish in (STREAMING, INTERRUPTED):
        notes.append("interrupted")
    elif message.finish == FAILED:
        notes.append("failed")
    speaker = "You" if message.role == USER else message.role.capitalize()
    return f"{speaker} ({', '.join(notes)})" if notes else speaker


def _with_closed_fence(text: str) -> str:
    """`text` with an open code block closed."""
    fence = ""
    for line in text.splitlines():
        found = _FENCE.match(line)
        if not found:
            continue
        if not fence:
            fence = found[1]
        elif found[1].startswith(fence) and not found[2].strip():
            fence = ""
    return f"{text.rstrip()}\n{fence}" if fence else text.rstrip()


def _date(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds):%Y-%m-%d %H:%M}"

"""Chats for benchmarks: workloads to answer, and past conversations to replay.

A workload has one chat a line:

    {"id": "…", "messages": [{"role": "user", "content": "…"}, {"role": "assistant", …}]}

Past conversations come from specchat's history, its exports and those of other programs. Private
chats are left out. Refuses to know tokens.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.conversation.restore import ExportedChat, read_export
from app.importing.pipeline import read_documents
from app.importing.readers import chat_exports, make_readers
from app.importing.readers.pdf_html import TextExtractor
from app.importing.source_file import SourceFile
from datastores.chats.history import HistoryReader
from datastores.chats.records import StoredMessage
from datastores.errors import InputError
from datastores.library.documents import CHATS, Document, Part


@dataclass(frozen=True, slots=True)
class Workload:
    """One chat of a workload: its id and the person's messages, in order."""

    id: str
    questions: tuple[str, ...]


def read_workload(path: Path) -> list[Workload]:
    """The chats in `path`: lines of {"id", "messages": [{"role": "user", "content"}, …]}.

    Messages of other roles are left out: the assistant's turns are generated.

    Raises:
        InputError: the file cannot be read, holds no chat, or a line is not of this form.
    """
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the workload {path}: {error}") from error
    chats = [_chat(line, path, number) for number, line in enumerate(lines, 1) if line.strip()]
    if not chats:
        raise InputError(f"the workload {path} holds no chats")
    return chats


def _chat(line: str, path: Path, number: int) -> Workload:
    try:
        record: Any = json.loads(line)
        questions = tuple(
            str(message["content"]) for message in record["messages"] if message["role"] == "user"
        )
        chat = Workload(str(record.get("id", number)), questions)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(
            f'{path}, line {number}: expected {{"id", "messages": [{{"role", "content"}}, …]}}'
        ) from error
    if not chat.questions:
        raise InputError(f"{path}, line {number}: no message of role user")
    return chat


@dataclass(frozen=True, slots=True)
class PastConversation:
    """One chat: its title and all its messages, parents before children."""

    title: str
    messages: Sequence[StoredMessage]


def from_history(history: HistoryReader) -> Iterator[PastConversation]:
    """Every chat that is not private, the oldest first."""
    for chat in sorted(history.chats(), key=lambda chat: chat.id):
        if not chat.private:
            yield PastConversation(chat.title, history.tree(chat.id))


def from_files(paths: Sequence[Path]) -> Iterator[PastConversation]:
    """The chats of exports, in file order, in any format that `specchat import` reads.

    Raises:
        InputError: a file cannot be read, or holds no chats.
    """
    with closing(TextExtractor()) as worker:
        for path in paths:
            found = 0
            for conversation in _from_file(path, worker):
                found += 1
                yield conversation
            if not found:
                raise InputError(f"{path} holds no chats that can be replayed")


def _from_file(path: Path, worker: TextExtractor) -> Iterator[PastConversation]:
    try:
        material = SourceFile(path.name, path.stat().st_size, lambda: path.open("rb"))
        is_own = chat_exports.SPECCHAT.claims(material)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    if is_own:
        # The reader for imports drops token ids.
        for exported in read_export(path):
            if isinstance(exported, ExportedChat) and not exported.chat.private:
                yield PastConversation(exported.chat.title, exported.messages)
        return
    for outcome in read_documents(material, make_readers(worker)):
        if isinstance(outcome, Document):
            parts = [part for part in outcome.parts if part.kind == CHATS]
            if parts:
                yield PastConversation(outcome.title, _messages(parts))


def _messages(parts: Sequence[Part]) -> list[StoredMessage]:
    """Parts as messages, each the child of the previous one."""
    return [
        StoredMessage(
            id=number,
            chat=0,
            parent=number - 1 or None,
            role=part.role,
            content=part.text,
            tokens=(),
            model="",
            tokenizer="",
            finish="stop",
            statistics={},
            created=0.0,
        )
        for number, part in enumerate(parts, start=1)
    ]

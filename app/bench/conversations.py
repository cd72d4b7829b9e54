"""Chats to replay: specchat's own, its exports', and those of other programs' exports.

Owns where they come from. Private chats stay out. Refuses to know tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from app.exported import Exported, read_export
from app.importing.material import Material
from app.importing.readers import make_readers, own
from app.importing.readers.worker import Worker
from app.importing.reading import documents
from datastores.documents import CHATS, Document, Part
from datastores.errors import InputError
from datastores.history_reader import HistoryReader
from datastores.records import Message


@dataclass(frozen=True, slots=True)
class Conversation:
    """One chat: its title and all its messages, parents before children."""

    title: str
    messages: Sequence[Message]


def from_history(history: HistoryReader) -> Iterator[Conversation]:
    """Every chat that is not private, the oldest first."""
    for chat in sorted(history.chats(), key=lambda chat: chat.id):
        if not chat.private:
            yield Conversation(chat.title, history.tree(chat.id))


def from_files(paths: Sequence[Path]) -> Iterator[Conversation]:
    """The chats of exports, in the order of the files; any that `specchat import` understands.

    Raises:
        InputError: a file cannot be read, or holds no chats.
    """
    with closing(Worker()) as worker:
        for path in paths:
            found = 0
            for conversation in _from_file(path, worker):
                found += 1
                yield conversation
            if not found:
                raise InputError(f"{path} holds no chats that can be replayed")


def _from_file(path: Path, worker: Worker) -> Iterator[Conversation]:
    try:
        material = Material(path.name, path.stat().st_size, lambda: path.open("rb"))
        is_own = own.READER.claims(material)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    if is_own:
        # Not through the reader for imports, which has no use for token ids.
        for exported in read_export(path):
            if isinstance(exported, Exported) and not exported.chat.private:
                yield Conversation(exported.chat.title, exported.messages)
        return
    for outcome in documents(material, make_readers(worker)):
        if isinstance(outcome, Document):
            parts = [part for part in outcome.parts if part.kind == CHATS]
            if parts:
                yield Conversation(outcome.title, _messages(parts))


def _messages(parts: Sequence[Part]) -> list[Message]:
    """Parts as messages, each following the one before."""
    return [
        Message(
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

"""Recovers chats from a damaged history, as far as they can be read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from datastores.chats.records import (
    ASSISTANT,
    CHAT_COLUMNS,
    INTERRUPTED,
    MESSAGE_COLUMNS,
    SYSTEM,
    USER,
    Chat,
    StoredMessage,
    chat_from_row,
    message_from_row,
)
from datastores.storage.salvage import DamagedDatabase, open_damaged

ROLES = (SYSTEM, USER, ASSISTANT)
LOST_TITLE = "Recovered chat"
"""Title of a chat whose own row is lost, but not its messages."""

Record = TypeVar("Record", Chat, StoredMessage)


def salvage(path: Path) -> Iterator[tuple[Chat, list[StoredMessage]]]:
    """Every chat of a damaged history with its remaining messages, parents before children.

    Raises:
        InputError: nothing can be read.
        OSError: the file cannot be copied.
    """
    with open_damaged(path) as damaged:
        chats = {one.id: one for one in _records(damaged, "chats", CHAT_COLUMNS, chat_from_row)}
        messages: defaultdict[int, list[StoredMessage]] = defaultdict(list)
        for one in _records(damaged, "messages", MESSAGE_COLUMNS, message_from_row):
            messages[one.chat].append(one)
    for number in sorted(chats.keys() | messages.keys()):
        thread = _connected(messages[number])
        chat = chats.get(number) or _lost_chat(number, thread)
        if chat.active not in {one.id for one in thread}:
            chat = replace(chat, active=thread[-1].id if thread else None)
        yield chat, thread


def _records(
    damaged: DamagedDatabase,
    table: str,
    columns: str,
    record: Callable[[dict[str, Any]], Record],
) -> Iterator[Record]:
    """The rows of `table` that are intact."""
    for row in damaged.rows(table):
        # Histories of earlier versions lack the last columns.
        values = {"docs": "", "attachments": "[]", **row}
        if not isinstance(values.get("created"), float) or values.get("role", USER) not in ROLES:
            continue  # damaged values
        try:
            yield record({name: values[name] for name in columns.split(", ")})
        except (ValueError, TypeError, KeyError, AttributeError):
            continue


def _connected(messages: Sequence[StoredMessage]) -> list[StoredMessage]:
    """`messages` of one chat; one whose parent is lost follows the message before it."""
    known: list[int] = []
    kept: list[StoredMessage] = []
    for message in messages:
        parent = message.parent
        if parent is not None and parent not in known:
            parent = known[-1] if known else None
        kept.append(replace(message, parent=parent, finish=message.finish or INTERRUPTED))
        known.append(message.id)
    return kept


def _lost_chat(number: int, thread: Sequence[StoredMessage]) -> Chat:
    """A chat for messages whose own row is lost; private, since it may have been."""
    first, last = thread[0].created, thread[-1].created
    return Chat(number, LOST_TITLE, False, True, "", {}, None, first, last)

"""Chats of a damaged history, as far as they can be read.

Owns what becomes of a message whose parent or whose chat is lost. Refuses to write a history.
"""

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
"""Of a chat whose own row is lost; its messages are not."""

Record = TypeVar("Record", Chat, StoredMessage)


def salvage(path: Path) -> Iterator[tuple[Chat, list[StoredMessage]]]:
    """Every chat of a damaged history with what is left of its messages, parents before children.

    Raises:
        InputError: nothing of it can be read.
        OSError: it cannot be copied.
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
    """The rows of `table` that are still what they were."""
    for row in damaged.rows(table):
        # Histories of earlier versions lack the last columns.
        values = {"docs": "", "attachments": "[]", **row}
        if not isinstance(values.get("created"), float) or values.get("role", USER) not in ROLES:
            continue  # its values were hit
        try:
            yield record({name: values[name] for name in columns.split(", ")})
        except (ValueError, TypeError, KeyError, AttributeError):
            continue


def _connected(messages: Sequence[StoredMessage]) -> list[StoredMessage]:
    """`messages` of one chat, each whose parent is lost put below the one before it."""
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
    """A chat for messages whose own is lost: private, since it may have been."""
    first, last = thread[0].created, thread[-1].created
    return Chat(number, LOST_TITLE, False, True, "", {}, None, first, last)

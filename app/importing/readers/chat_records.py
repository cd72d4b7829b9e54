"""Finds the chats in a JSON value, whichever program exported it.

Nearly all programs write a chat as a list of messages, or as a tree of messages by id, somewhere in
an object with its title and date. `chat_messages` decides what a message is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from app.importing.json_stream import mapping, sequence, string
from app.importing.readers.chat_messages import is_message, message_parts
from datastores.errors import InputError
from datastores.library.documents import Part

PRIVATE = "a private chat"

_CURRENT_KEYS = ("current_node", "currentId", "currNode", "current_leaf_message_uuid")
_PARENT_KEYS = ("parent", "parentId", "parent_id", "parentMessageId")
_CHILDREN_KEYS = ("children", "childrenIds")
_NESTED_KEYS = ("children", "replies")

_TITLE_KEYS = (
    "title", "name", "chatTitle", "userTitle", "autoTitle", "topic", "thread_title",
    "conversation_title", "character_name", "summary",
)  # fmt: skip
_TIME_KEYS = (
    "created_at", "create_time", "createdAt", "created", "create_date", "inserted_at", "timestamp",
    "time", "date", "send_date", "sent_at", "lastModified", "updated_at", "updatedAt",
)  # fmt: skip
_HEADER_KEYS = ("conversation", "conv", "chat", "metadata", "thread_metadata", "meta", "message")
"""Keys whose value describes the enclosing chat or message."""

_CHAT_ID_KEYS = (
    "convId", "conversation_id", "conversationId", "chatId", "chat_id", "thread_id", "threadId",
    "topicId", "sessionId", "session_id",
)  # fmt: skip
"""Keys of a message that identify its chat, where one list mixes messages of many chats."""

_FIRST_TIME, _LAST_TIME = 946684800, 4102444800
"""The years 2000 to 2100, in seconds; other numbers are not times of chats."""

_MAX_SECONDS = 10**11
"""Times above this are in milliseconds."""


@dataclass(slots=True)
class FoundChat:
    """A chat as it was exported.

    Attributes:
        title: empty if it has none.
        date: the day it began, as `2025-08-12`; empty if unknown.
        parts: the texts of its messages, in order.
    """

    title: str = ""
    date: str = ""
    parts: list[Part] = field(default_factory=list)


def chats_in(value: object) -> Iterator[FoundChat]:
    """All chats in a JSON value that have messages, even messages without text.

    Raises:
        InputError: the messages of a chat form a loop, or it is `PRIVATE`.
    """
    _fill_from_blocks(value)
    for place in _places(value):
        if place.private:
            raise InputError(PRIVATE)
        if isinstance(place.messages, dict):
            yield _chat(place.title, place.date, _path(place.messages, place.current))
            continue
        groups: dict[str, list[Any]] = {}
        for message in place.messages:
            groups.setdefault(chat_id(mapping(message)), []).append(message)
        if len(groups) == 1:
            yield _chat(place.title, place.date, place.messages)
            continue
        titles = dict(_titles(value))
        for key, messages in groups.items():
            yield _chat(titles.get(key, place.title), place.date, messages)


def is_whole(value: Mapping[str, Any]) -> bool:
    """Whether `value`, which contains messages, is all there is of its chats.

    A table of messages that refer to their chats is not: the titles are in another table.
    """
    place = next(_places(value), None)
    if place is None or isinstance(place.messages, dict) or place.title:
        return place is not None
    return not any(chat_id(mapping(message)) for message in place.messages)


def title_of(record: Mapping[str, Any]) -> str:
    """The title of an object or of its description (`_HEADER_KEYS`); empty if there is none."""
    found = (string(value).strip() for value in _described(record, _TITLE_KEYS))
    return next((title for title in found if title), "")


def date_of(record: Mapping[str, Any]) -> str:
    """The day in UTC, as `2025-08-12`; empty if there is none."""
    time = _time(record)
    return datetime.fromtimestamp(time, UTC).date().isoformat() if time else ""


def chat_id(message: Mapping[str, Any]) -> str:
    """The id of the chat that a message belongs to; empty if it names none."""
    return next((found for key in _CHAT_ID_KEYS if (found := _id(message.get(key)))), "")


@dataclass(frozen=True, slots=True)
class _Place:
    """Messages in a JSON value, with the title and date around them.

    Attributes:
        messages: a list, or a tree as nodes by id.
        current: id of the selected leaf of a tree; may be empty.
        private: a private chat exported by specchat; `messages` is empty.
    """

    title: str
    date: str
    messages: Sequence[Any] | Mapping[str, Any] = ()
    current: str = ""
    private: bool = False


def _places(value: object, above: tuple[Mapping[str, Any], ...] = ()) -> Iterator[_Place]:
    """The outermost places of messages in `value`.

    Args:
        above: the objects around `value`, innermost first; they provide missing titles and dates.
    """
    if isinstance(value, list):
        if any(map(is_message, value)):
            yield _place(value, above)
            return
        for child in value:
            yield from _places(child, above)
        return
    if not isinstance(value, dict):
        return
    if value.get("private") is True and "sampling" in value:
        yield _Place("", "", private=True)
        return
    above = (value, *above)
    children = [child for child in value.values() if isinstance(child, dict | list)]
    lists = [child for child in children if isinstance(child, list) and any(map(is_message, child))]
    trees = [child for child in children if isinstance(child, dict) and _is_tree(child)]
    single = [[child] for child in children if is_message(child)]
    for messages in lists or trees or single:
        yield _place(messages, above)
    if not lists and not trees and not single:
        for child in children:
            yield from _places(child, above)


def _place(
    messages: Sequence[Any] | Mapping[str, Any], above: Sequence[Mapping[str, Any]]
) -> _Place:
    title = next((title for record in above if (title := title_of(record))), "")
    date = next((date for record in above if (date := date_of(record))), "")
    record = above[0] if above else {}
    current = next((found for key in _CURRENT_KEYS if (found := _id(record.get(key)))), "")
    return _Place(title, date, messages, current)


def _fill_from_blocks(value: object) -> None:
    """Copy into messages their texts from a separate table, as in Cherry Studio."""
    texts: dict[str, list[dict[str, Any]]] = {}
    messages = []
    for one in _objects(value):
        if "messageId" in one and "content" in one:
            texts.setdefault(_id(one["messageId"]), []).append(one)
        elif "role" in one and "blocks" in one and "content" not in one:
            messages.append(one)
    for message in messages:
        message["content"] = texts.get(_id(message.get("id")), [])


def _objects(value: object) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    for child in (*mapping(value).values(), *sequence(value)):
        yield from _objects(child)


def _is_tree(nodes: Mapping[str, Any]) -> bool:
    return not is_message(nodes) and any(map(is_message, nodes.values()))


def _chat(title: str, date: str, messages: Iterable[Any]) -> FoundChat:
    parts = [part for message in _flat(messages) for part in message_parts(message)]
    return FoundChat(title, date, parts)


def _flat(messages: Iterable[Any]) -> Iterator[Any]:
    """Messages, each followed by those nested in it."""
    for message in messages:
        yield message
        for key in _NESTED_KEYS:
            yield from _flat(sequence(mapping(message).get(key)))


def _path(nodes: Mapping[str, Any], current: str) -> Sequence[Any]:
    """The nodes from the root to `current`, or to the newest leaf if that does not exist.

    All nodes, by time, if they have no links, or if the path ends at a dangling link while there
    are other roots.
    """
    parents = _parents(nodes)
    inner = set(parents.values())
    leaves = [key for key in nodes if key not in inner] or list(nodes)
    newest = max(reversed(leaves), key=lambda key: _time(mapping(nodes[key])))
    key = current if current in nodes else newest
    path = {key: True}
    while key := parents.get(key, ""):
        if key in path:
            raise InputError("its messages form a loop")
        path[key] = key in nodes
    roots = {parents.get(key) for key in nodes if parents.get(key) not in nodes}
    if not parents or (not all(path.values()) and len(roots) > 1):
        return sorted(nodes.values(), key=lambda node: _time(mapping(node)))
    return [nodes[key] for key in reversed(path) if key in nodes]


def _parents(nodes: Mapping[str, Any]) -> dict[str, str]:
    """Key of a node → key of its parent, from the links in either direction."""
    parents: dict[str, str] = {}
    for key, node in nodes.items():
        for name in _CHILDREN_KEYS:
            parents |= {_id(child): key for child in sequence(mapping(node).get(name))}
    for key, node in nodes.items():
        for name in _PARENT_KEYS:
            if parent := _id(mapping(node).get(name)):
                parents[key] = parent
    return parents


def _id(value: object) -> str:
    return str(value) if isinstance(value, str | int) else ""


def _titles(value: object) -> Iterator[tuple[str, str]]:
    for one in _objects(value):
        if "id" in one and (title := title_of(one)):
            yield _id(one["id"]), title


def _time(record: Mapping[str, Any]) -> float:
    """The first time in an object or its description, in seconds since 1970; 0 if unknown."""
    return next((time for value in _described(record, _TIME_KEYS) if (time := _seconds(value))), 0)


def _described(record: Mapping[str, Any], keys: Iterable[str]) -> Iterator[Any]:
    for described in (record, *(mapping(record.get(key)) for key in _HEADER_KEYS)):
        for key in keys:
            if key in described:
                yield described[key]


def _seconds(value: object) -> float:
    """A time as programs write it, in seconds since 1970; 0 for anything else."""
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value.strip())
        except ValueError:
            return 0
        value = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    if not isinstance(value, int | float | Decimal) or not value < 1000 * _LAST_TIME:
        return 0
    seconds = value / 1000 if value > _MAX_SECONDS else value
    return float(seconds) if _FIRST_TIME < seconds < _LAST_TIME else 0

"""Where messages stand in a chat's tree, as queries: for whole rows, or for ids where it says so.

Owns the walks through the tree; `datastores.history` and its reader run them.
"""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter

PATH = """
    WITH RECURSIVE path AS (
        SELECT messages.*, 0 AS depth FROM messages WHERE id = ?
        UNION ALL
        SELECT messages.*, depth + 1 FROM messages JOIN path ON messages.id = path.parent
    )
    SELECT * FROM path ORDER BY depth DESC
"""
"""From the root to one message, oldest first."""

SIBLINGS = """
    SELECT other.* FROM messages AS this JOIN messages AS other
    ON other.chat = this.chat AND other.parent IS this.parent
    WHERE this.id = ? ORDER BY other.id
"""
"""All versions at the place of one message, itself included, oldest first."""

LEAF = """
    WITH RECURSIVE below AS (
        SELECT id, chat FROM messages WHERE id = :message
        UNION ALL
        SELECT messages.id, messages.chat FROM messages
        JOIN below ON messages.chat = below.chat AND messages.parent = below.id
    )
    SELECT max(id) AS leaf FROM below
"""
"""Id of the newest message at or below one message; null where there is no such message."""

IN_VIEW = """
    WITH RECURSIVE path AS (
        SELECT messages.id, messages.parent FROM messages JOIN chats ON chats.active = messages.id
        WHERE chats.id = :chat
        UNION ALL
        SELECT messages.id, messages.parent FROM messages JOIN path ON messages.id = path.parent
    )
    SELECT 1 FROM path WHERE id = :message
"""
"""One row if a message lies on the path at which its chat is being read."""

CHILDREN = "SELECT parent, id FROM messages WHERE chat = ? ORDER BY parent, id"
"""Ids of a chat's messages with those of their parents, siblings together, oldest first."""


def versions(rows: list[dict[str, int | None]]) -> dict[int, tuple[int, ...]]:
    """From rows of `CHILDREN`: for each message that has siblings, all versions at its place."""
    found: dict[int, tuple[int, ...]] = {}
    for _, siblings in groupby(rows, key=itemgetter("parent")):
        ids = tuple(int(row["id"] or 0) for row in siblings)
        if len(ids) > 1:
            found.update(dict.fromkeys(ids, ids))
    return found

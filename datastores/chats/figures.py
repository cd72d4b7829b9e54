"""Renames the stored figures of answers from earlier versions.

`datastores.chats.usage` sums the figures.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sqlite_utils import Database

FORMER_KEYS = {
    "target_calls": "steps",
    "call_tokens": "step_tokens",
    "by_source": "by_origin",
    "drafted_by_source": "drafted_by_origin",
    "sources": "origins",
    "student_version": "draft_model_version",
    "student_compared": "draft_model_compared",
    "student_matched": "draft_model_matched",
    "source": "import_path",
    "student": "draft-model",
}
"""Former key → present name; the last but one is a citation's, the last a draft origin's."""
FORMER_ORIGINS = {"student": "draft-model"}
"""Former → present name of a draft origin in the stored runs of an answer's text."""


def present_figures(figures: Mapping[str, Any]) -> dict[str, Any]:
    """`figures` under their present names."""
    return {FORMER_KEYS.get(key, key): _present(value) for key, value in figures.items()}


def _present(value: Any) -> Any:
    if isinstance(value, dict):
        return present_figures(value)
    if isinstance(value, list):
        return [
            FORMER_ORIGINS.get(one, one) if isinstance(one, str) else _present(one) for one in value
        ]
    return value


def rename_figures(db: Database) -> None:
    """Give the figures of every answer their present names."""
    sql = "SELECT id, statistics FROM messages WHERE statistics <> '{}'"
    for number, stored in db.conn.execute(sql).fetchall():
        try:
            figures = json.loads(stored)
        except ValueError:
            continue  # damaged
        renamed = json.dumps(present_figures(figures))
        db.conn.execute("UPDATE messages SET statistics = ? WHERE id = ?", (renamed, number))

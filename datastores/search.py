"""Finding chats by words in their titles and messages, as fast as one types.

Owns how what is typed becomes a query, and what a hit shows. All versions of all messages are
searched, those of private chats too: the word index is part of the history and feeds nothing else.
Every word must occur, the last one at least by its beginning. What the index cannot find (the
middle of a word, signs, scripts that write words without spaces between them) is looked for letter
by letter.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from secrets import token_hex
from typing import Any

from datastores.excerpts import Excerpt, Span, excerpt
from datastores.history import storable
from datastores.history_reader import HistoryReader

TITLES = 10
"""Hits in titles, which come first, at most: a title mostly repeats its chat's first message."""

_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff]"
)
"""Thai, Lao, Burmese, Khmer, Japanese and Chinese: the index takes a whole clause for a word."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A place at which a chat can be opened.

    Attributes:
        message: where to open it (`History.bring_in_view`); None for a hit in the title.
        title: the chat's.
        role: of the message; empty for a title.
        excerpt: the text around the hit, on one line, hostile as it came.
        created: of the message, or when the chat was last written in; seconds since the epoch.
    """

    chat: int
    message: int | None
    title: str
    role: str
    excerpt: Excerpt
    created: float


def search(history: HistoryReader, typed: str, limit: int = 50) -> list[Hit]:
    """The best `limit` hits: titles first, then messages by relevance (BM25).

    Among 20,000 messages it takes a few milliseconds, and some 50 where the index finds nothing:
    for a thread beside the screen's, over `History.beside`.

    Raises:
        StoreError: the history cannot be read.
    """
    typed = storable(typed).replace("\0", " ")
    words = typed.split()
    if not words:
        return []
    hits = [] if _UNSPACED.search(typed) else _indexed(history, words, typed, limit)
    return hits or _scanned(history, words, limit)


_MARKED = """
    SELECT chat, messages.id AS message, title, role, messages.created,
        highlight(messages_text, 0, :open, :close) AS text
    FROM messages_text JOIN messages ON messages.id = messages_text.rowid
    JOIN chats ON chats.id = chat
    WHERE messages_text MATCH :query ORDER BY {order} LIMIT :limit
"""
_MARKED_TITLES = """
    SELECT chats.id AS chat, NULL AS message, chats.title, '' AS role, updated AS created,
        highlight(chats_text, 0, :open, :close) AS text
    FROM chats_text JOIN chats ON chats.id = chats_text.rowid
    WHERE chats_text MATCH :query ORDER BY rank LIMIT :limit
"""


def _indexed(history: HistoryReader, words: Sequence[str], typed: str, limit: int) -> list[Hit]:
    """Hits of the word indexes."""
    # Nobody who wrote a text could know this mark, so no text can fake one.
    mark = token_hex(8)
    chosen = {"query": _query(words, typed[-1].isspace()), "open": f"<{mark}", "close": f"{mark}>"}
    # Nearly every message has a word with a given first letter: ranking them all says nothing.
    order = "rank" if len(words[-1]) > 1 else "messages_text.rowid DESC"
    rows = history.store.rows(_MARKED_TITLES, {**chosen, "limit": min(TITLES, limit)})
    if len(rows) < limit:
        sql = _MARKED.format(order=order)
        rows += history.store.rows(sql, {**chosen, "limit": limit - len(rows)})
    return [_hit(row, *_unmarked(row.pop("text"), mark)) for row in rows]


def _query(words: Sequence[str], last_is_whole: bool) -> str:
    """The words as FTS5 strings: in quotes nothing is an operator."""
    quoted = ['"' + word.replace('"', '""') + '"' for word in words]
    return " ".join(quoted) + ("" if last_is_whole else "*")


def _unmarked(marked: str, mark: str) -> tuple[str, list[Span]]:
    """The text without its marks, and what stood between them."""
    pieces, spans, length = [], [], 0
    for number, piece in enumerate(re.split(f"<{mark}|{mark}>", marked)):
        if number % 2:
            spans.append((length, length + len(piece)))
        pieces.append(piece)
        length += len(piece)
    return "".join(pieces), spans


_SCANNED = """
    SELECT chat, messages.id AS message, title, role, messages.created, content AS text
    FROM messages JOIN chats ON chats.id = chat
    WHERE finish <> '' AND {conditions} ORDER BY messages.id DESC LIMIT ?
"""
_SCANNED_TITLES = """
    SELECT id AS chat, NULL AS message, title, '' AS role, updated AS created, title AS text
    FROM chats WHERE {conditions} ORDER BY updated DESC LIMIT ?
"""


def _scanned(history: HistoryReader, words: Sequence[str], limit: int) -> list[Hit]:
    """Hits in any place, newest first; capitals count beyond ASCII."""
    likes = ["%" + re.sub(r"([\\%_])", r"\\\1", word) + "%" for word in words]
    rows: list[dict[str, Any]] = []
    for sql, column, most in ((_SCANNED_TITLES, "title", TITLES), (_SCANNED, "content", limit)):
        conditions = " AND ".join([f"{column} LIKE ? ESCAPE '\\'"] * len(likes))
        most = min(most, limit - len(rows))
        rows += history.store.rows(sql.format(conditions=conditions), [*likes, most])
    pattern = re.compile("|".join(map(re.escape, words)), re.IGNORECASE)
    return [
        _hit(row, text, [found.span() for found in pattern.finditer(text)])
        for row in rows
        if (text := row.pop("text")) is not None
    ]


def _hit(row: dict[str, Any], text: str, spans: Sequence[Span]) -> Hit:
    return Hit(**row, excerpt=excerpt(text, spans))

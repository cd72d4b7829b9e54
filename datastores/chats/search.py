"""Finding chats by words in their titles and messages, as fast as one types.

Owns how what is typed becomes a query, and what a hit shows. All versions of all messages are
searched, those of private chats too: the word index is part of the history and feeds nothing else.
Every word must occur, the last one at least by its beginning. What the index cannot find (the
middle of a word, signs, scripts that write words without spaces between them) is looked for letter
by letter.

A stretch of text around what was found in it.

Offsets instead of marks: whoever shows an excerpt sanitises its pieces and styles them.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from secrets import token_hex
from typing import Any

from datastores.chats.history import HistoryReader, storable

Span = tuple[int, int]
"""From the first character to after the last one."""

LENGTH = 120
"""Characters of an excerpt, without its ellipses."""
LEAD = 30
"""Characters before the first find."""
CONSIDERED = 1000
"""Finds among which the stretch to show is chosen."""

_ONE_LINE = str.maketrans(dict.fromkeys("\t\n\v\f\r\x1c\x1d\x1e\x1f\x85\u2028\u2029", " "))


@dataclass(frozen=True, slots=True)
class Excerpt:
    """One line of text and the spans in it that were found, in order, none overlapping."""

    text: str
    spans: tuple[Span, ...]

    def pieces(self) -> Iterator[tuple[str, bool]]:
        """The text in pieces, each with whether it was found."""
        done = 0
        for start, end in self.spans:
            yield self.text[done:start], False
            yield self.text[start:end], True
            done = end
        yield self.text[done:], False


def excerpt(text: str, spans: Sequence[Span]) -> Excerpt:
    """The stretch of `text` that shows the most different ones of `spans`, which are in order."""
    start = _best_start(text, spans[:CONSIDERED])
    first = max(0, min(start - LEAD, len(text) - LENGTH))
    if first:
        # Begin with a word where one begins soon.
        space = text.find(" ", first, start)
        first = space + 1 if space >= 0 else first
    last = min(len(text), first + LENGTH)
    lead, tail = "…" if first else "", "…" if last < len(text) else ""
    shift = len(lead) - first
    kept = tuple(
        (begin + shift, min(end, last) + shift) for begin, end in spans if first <= begin < last
    )
    return Excerpt(lead + text[first:last].translate(_ONE_LINE) + tail, kept)


def _best_start(text: str, spans: Sequence[Span]) -> int:
    """Where the first span begins of those that have the most others beside them.

    Different words count before all: "the" is everywhere, what else was asked for is not.
    """
    ends = [end for _, end in spans]
    best, most = 0, (0, 0)
    for number, (start, _) in enumerate(spans):
        beside = spans[number : max(number + 1, bisect_right(ends, start + LENGTH - LEAD))]
        value = len({text[begin:end].lower() for begin, end in beside}), len(beside)
        if value > most:
            best, most = start, value
    return best


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
        message: where to open it (`History.bring_into_view`); None for a hit in the title.
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

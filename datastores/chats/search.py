"""Search for chats by words in their titles and messages, while the user types.

All versions of all messages of the person's chats are searched, private ones too: the word index is
part of the history and feeds nothing else. Every word must occur, the last one at least as a
prefix, in any equivalent spelling (`datastores.search_form`). What the index cannot find (the
middle of a word, punctuation) is found by scanning the texts.

An excerpt has offsets instead of markup: its pieces are sanitised and styled where they are shown.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from datastores.chats.history import HistoryReader, storable
from datastores.chats.records import ASSISTANT
from datastores.search_form import (
    WORD,
    WORD_CHARACTER,
    FoldedText,
    fold,
    grams,
    split_runs,
    word_form,
)

Readable = Callable[[str], str]
"""Returns an answer's text as it is shown, without the model's special marks."""
Span = tuple[int, int]
"""(index of the first character, index after the last one)."""

EXCERPT_LENGTH = 120
"""Length in characters, without ellipses."""
EXCERPT_LEAD = 30
"""Characters before the first match."""
MAX_CONSIDERED = 1000
"""Matches among which the excerpt is chosen."""

_ONE_LINE = str.maketrans(dict.fromkeys("\t\n\v\f\r\x1c\x1d\x1e\x1f\x85\u2028\u2029", " "))


@dataclass(frozen=True, slots=True)
class Excerpt:
    """One line of text and the matched spans in it, in order, without overlaps."""

    text: str
    spans: tuple[Span, ...]

    def pieces(self) -> Iterator[tuple[str, bool]]:
        """The text in pieces, each with whether it matched."""
        done = 0
        for start, end in self.spans:
            yield self.text[done:start], False
            yield self.text[start:end], True
            done = end
        yield self.text[done:], False


def excerpt(text: str, spans: Sequence[Span]) -> Excerpt:
    """The part of `text` that shows the most distinct `spans`, which must be sorted."""
    start = _best_start(text, spans[:MAX_CONSIDERED])
    first = max(0, min(start - EXCERPT_LEAD, len(text) - EXCERPT_LENGTH))
    if first:
        # Start at a word boundary if there is one nearby.
        space = text.find(" ", first, start)
        first = space + 1 if space >= 0 else first
    last = min(len(text), first + EXCERPT_LENGTH)
    lead, tail = "…" if first else "", "…" if last < len(text) else ""
    shift = len(lead) - first
    kept = tuple(
        (begin + shift, min(end, last) + shift) for begin, end in spans if first <= begin < last
    )
    return Excerpt(lead + text[first:last].translate(_ONE_LINE) + tail, kept)


def _best_start(text: str, spans: Sequence[Span]) -> int:
    """The start of the span that is followed closely by the most distinct spans.

    Distinct words count most: "the" occurs everywhere, the other words of the query do not.
    """
    ends = [end for _, end in spans]
    best, most = 0, (0, 0)
    for number, (start, _) in enumerate(spans):
        near = spans[
            number : max(number + 1, bisect_right(ends, start + EXCERPT_LENGTH - EXCERPT_LEAD))
        ]
        value = len({text[begin:end].lower() for begin, end in near}), len(near)
        if value > most:
            best, most = start, value
    return best


MAX_TITLE_HITS = 10
"""Most hits in titles, which come first: a title often repeats its chat's first message."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A match in a chat.

    Attributes:
        message: where to open the chat (`History.bring_into_view`); None for a hit in the title.
        title: the chat's title.
        role: the message's role; empty for a title.
        excerpt: the text around the hit, on one line, not sanitised.
        created: time of the message, or of the chat's last one; seconds since the epoch.
    """

    chat: int
    message: int | None
    title: str
    role: str
    excerpt: Excerpt
    created: float


def search(
    history: HistoryReader, typed: str, limit: int = 50, readable: Readable = str
) -> list[Hit]:
    """The best `limit` hits: titles first, then messages by relevance (BM25).

    Takes a few milliseconds among 20,000 messages, some 100 if the index finds nothing, and 700 if
    there is no hit: for a background thread, over `History.new_connection`.

    Args:
        readable: converts answers to the text that is excerpted.

    Raises:
        StoreError: the history cannot be read.
    """
    typed = storable(typed).replace("\0", " ")
    words = typed.split()
    if not words:
        return []
    return (
        _indexed(history, words, typed, limit, readable)
        or _scanned(history, words, limit, readable)
        or _scanned(history, words, limit, readable, "fold({column})")
    )


_INDEXED = """
    SELECT chat, messages.id AS message, chats.title, role, messages.created,
        messages.content AS text
    FROM messages_text JOIN messages ON messages.id = messages_text.rowid
    JOIN chats ON chats.id = chat
    WHERE messages_text MATCH :query AND chats.origin = '' ORDER BY {order} LIMIT :limit
"""
_INDEXED_TITLES = """
    SELECT chats.id AS chat, NULL AS message, chats.title, '' AS role, updated AS created,
        chats.title AS text
    FROM chats_text JOIN chats ON chats.id = chats_text.rowid
    WHERE chats_text MATCH :query AND chats.origin = '' ORDER BY rank LIMIT :limit
"""


def _indexed(
    history: HistoryReader, words: Sequence[str], typed: str, limit: int, readable: Readable
) -> list[Hit]:
    """Hits of the word indexes."""
    pieces = list(chain(*map(_searched_pieces, words)))
    if not pieces:
        return []
    last_is_whole = typed[-1].isspace()
    query = " ".join(f'"{piece.query}"' for piece in pieces) + ("" if last_is_whole else "*")
    # Nearly every message has a word with a given first letter, so ranking is pointless.
    order = "rank" if len(pieces[-1].query) > 1 else "messages_text.rowid DESC"
    chosen = {"query": query, "limit": min(MAX_TITLE_HITS, limit)}
    rows = history.store.rows(_INDEXED_TITLES, chosen)
    if len(rows) < limit:
        rows += history.store.rows(
            _INDEXED.format(order=order), {"query": query, "limit": limit - len(rows)}
        )
    ends = [_WORD_END] * len(pieces) if last_is_whole else [*[_WORD_END] * (len(pieces) - 1), _REST]
    patterns = (
        piece.pattern + end if piece.pattern.startswith(_WORD_START) else piece.pattern
        for piece, end in zip(pieces, ends, strict=True)
    )
    pattern = "|".join(patterns)
    # A part of an identifier is also a word of the index.
    anywhere = pattern.replace(_WORD_START, "").replace(_WORD_END, "")
    return [_hit(row, (pattern, anywhere), readable) for row in rows]


@dataclass(frozen=True, slots=True)
class _Piece:
    """A part of a typed word that is looked up separately.

    Attributes:
        query: consecutive words of the index.
        pattern: a regular expression that finds them in a folded text.
    """

    query: str
    pattern: str


_WORD_START = f"(?<!{WORD_CHARACTER})"
_WORD_END, _REST = f"(?!{WORD_CHARACTER})", f"{WORD_CHARACTER}*"


def _searched_pieces(word: str) -> Iterator[_Piece]:
    for piece, is_run in split_runs(fold(word).lower()):
        if is_run:
            yield _Piece(" ".join(grams(word_form(piece))), re.escape(piece))
            continue
        words = WORD.findall(word_form(piece).replace("_", " "))
        if words:
            written = WORD.findall(piece.replace("_", " "))
            pattern = re.escape(piece)
            if written == words:
                pattern = _WORD_START + r"[\W_]+".join(map(re.escape, words))
            yield _Piece(" ".join(words), pattern)


_SCANNED = """
    SELECT chat, messages.id AS message, chats.title, role, messages.created,
        messages.content AS text
    FROM messages JOIN chats ON chats.id = chat
    WHERE finish <> '' AND chats.origin = '' AND {conditions} ORDER BY messages.id DESC LIMIT ?
"""
_SCANNED_TITLES = """
    SELECT id AS chat, NULL AS message, title, '' AS role, updated AS created, title AS text
    FROM chats WHERE origin = '' AND {conditions} ORDER BY updated DESC LIMIT ?
"""


def _scanned(
    history: HistoryReader,
    words: Sequence[str],
    limit: int,
    readable: Readable,
    form: str = "{column}",
) -> list[Hit]:
    """Substring matches, newest first.

    Args:
        form: the scanned SQL expression. Folding all texts takes seven times as long as reading.
    """
    folded = [each for each in (fold(word).lower() for word in words) if each]
    if not folded:
        return []
    sought = words if form == "{column}" else folded
    likes = ["%" + re.sub(r"([\\%_])", r"\\\1", word) + "%" for word in sought]
    rows: list[dict[str, Any]] = []
    for sql, column, most in (
        (_SCANNED_TITLES, "title", MAX_TITLE_HITS),
        (_SCANNED, "content", limit),
    ):
        condition = f"{form.format(column=column)} LIKE ? ESCAPE '\\'"
        conditions = " AND ".join([condition] * len(likes))
        most = min(most, limit - len(rows))
        rows += history.store.rows(sql.format(conditions=conditions), [*likes, most])
    return [_hit(row, ("|".join(map(re.escape, folded)),), readable) for row in rows]


def _hit(row: dict[str, Any], patterns: Sequence[str], readable: Readable) -> Hit:
    """A hit whose spans come from the first of `patterns` that matches its folded text."""
    text = row.pop("text")
    if row["role"] == ASSISTANT:
        text = readable(text)
    return Hit(**row, excerpt=excerpt(text, spans_of(text, patterns)))


def spans_of(text: str, patterns: Sequence[str]) -> list[Span]:
    """The places in `text` that match, folded, the first of `patterns` that matches at all."""
    folded = FoldedText(text)
    found = (list(re.finditer(pattern, folded.text)) for pattern in patterns)
    spans: list[Span] = []
    for each in next(filter(None, found), []):
        start, end = folded.span(*each.span())
        # Two letters of one ligature may both match.
        if start < end and (not spans or start >= spans[-1][1]):
            spans.append((start, end))
    return spans

"""Stored word counts of passages, from which BM25 in memory is built.

Most of the work of such an index is tokenizing the texts, so each passage is counted once, and its
counts are erased with it. A passage with missing or damaged counts is counted when they are needed.

Words are stored as hashes, so that there is no vocabulary to erase forgotten words from.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from threading import Lock

import numpy as np
from numpy.typing import NDArray
from sqlite_utils import Database

from datastores.passages.store import TOKENIZER, PassageStore
from datastores.search_form import index_form
from datastores.storage.integrity import verify_checksum, with_checksum
from datastores.storage.sqlite import memory_database

LOGGER = logging.getLogger("specchat.word_counts")

STORED = np.dtype("<u8")
"""A word of a passage: its hash (48 bits), its count in the heading (6) and in the content (10)."""
CONTENT_BITS, HEADING_BITS = 10, 6
COUNT_BITS = CONTENT_BITS + HEADING_BITS
MAX_IN_CONTENT, MAX_IN_HEADING = (1 << CONTENT_BITS) - 1, (1 << HEADING_BITS) - 1
"""Counts saturate at these values; a chunk of 1,024 characters has at most 512 words."""
FORMAT = f"words of search forms 2 as 48+6+10 bits by {TOKENIZER}"
"""Part of the checksums, so that counts in another format are made again."""
BATCH = 256
"""Passages counted and stored at a time."""

_ENDINGS = ("", "e", "es", "ed", "ing")

Words = NDArray[np.uint64]
"""As `STORED`."""


@dataclass(frozen=True, slots=True)
class PassageWords:
    """The words of some passages.

    Attributes:
        ids: int64 [n], ids of the passages, ascending.
        sizes: int64 [n], number of distinct words of each.
        words: uint64 [sum of sizes], the words of each passage in turn, as `STORED`.
    """

    ids: NDArray[np.int64]
    sizes: NDArray[np.int64]
    words: Words

    @property
    def keys(self) -> Words:
        """The word of each entry, as from `key_of`."""
        return self.words >> np.uint64(COUNT_BITS)

    @property
    def in_heading(self) -> Words:
        """The count of each entry in the heading."""
        return self.words >> np.uint64(CONTENT_BITS) & np.uint64(MAX_IN_HEADING)

    @property
    def in_content(self) -> Words:
        """The count of each entry in the content."""
        return self.words & np.uint64(MAX_IN_CONTENT)


class StoredWords:
    """The word counts of one store's passages. Methods raise StoreError if it cannot be used."""

    def __init__(self, passages: PassageStore) -> None:
        self._passages = passages
        self._store = passages.store

    def missing(self) -> list[int]:
        """The ids of passages without word counts."""
        sql = "SELECT id FROM chunks WHERE id NOT IN (SELECT id FROM words)"
        return [row["id"] for row in self._store.rows(sql)]

    def fill(self) -> Generator[int]:
        """Count the missing passages; yields how many are left.

        May be stopped at any yield; the next call resumes.
        """
        missing = self.missing()
        for start in range(0, len(missing), BATCH):
            yield len(missing) - start
            self._count(missing[start : start + BATCH])

    def load(self, ids: Sequence[int]) -> PassageWords:
        """The words of the passages `ids`, counted now if missing, without removed passages."""
        found = self._stored(ids)
        missing = [number for number in ids if number not in found]
        for start in range(0, len(missing), BATCH):
            found |= self._count(missing[start : start + BATCH])
        order = sorted(found)
        sizes = [len(found[number]) // STORED.itemsize for number in order]
        words = np.frombuffer(b"".join(found[number] for number in order), STORED)
        return PassageWords(np.array(order, np.int64), np.array(sizes, np.int64), words)

    def _stored(self, ids: Sequence[int]) -> dict[int, bytes]:
        """Id → stored words, without damaged ones."""
        # One parameter for all ids, as in the store. The cast is for damaged rows of type text.
        sql = """
            SELECT id, CAST(counts AS BLOB) AS counts FROM words
            WHERE id IN (SELECT value FROM json_each(?))
        """
        found, damaged = {}, 0
        for row in self._store.rows(sql, (json.dumps(list(ids)),)):
            try:
                found[row["id"]] = verify_checksum(_owner(row["id"]), row["counts"])
            except ValueError:
                damaged += 1
        if damaged:
            LOGGER.warning("%s: counting %d damaged passages again", self._store.path, damaged)
        return found

    def _count(self, ids: Sequence[int]) -> dict[int, bytes]:
        """Count and store the words of passages that still exist; returns them by id."""
        passages = self._passages.passages(ids)
        words = count_words([(one.chunk.heading, one.chunk.content) for one in passages])
        counted = {one.id: row.tobytes() for one, row in zip(passages, words, strict=True)}
        with self._store.writing() as db:
            db.conn.executemany(
                "INSERT OR REPLACE INTO words SELECT ?1, ?2"
                " WHERE EXISTS (SELECT 1 FROM chunks WHERE id = ?1)",
                ((id, with_checksum(_owner(id), packed)) for id, packed in counted.items()),
            )
        return counted


def count_words(texts: Sequence[tuple[str, str]]) -> list[Words]:
    """The words of each (heading, content), tokenized as in the store's word index."""
    if not texts:
        return []
    found = count_terms([(index_form(heading), index_form(content)) for heading, content in texts])
    words = np.fromiter(
        (
            key_of(term) << COUNT_BITS
            | min(in_heading, MAX_IN_HEADING) << CONTENT_BITS
            | min(in_content, MAX_IN_CONTENT)
            for _, term, in_heading, in_content in found
        ),
        STORED,
        len(found),
    )
    texts_of = np.fromiter((row[0] for row in found), np.int64, len(found))
    return np.split(words, np.searchsorted(texts_of, np.arange(1, len(texts))))


def keys_in(texts: Sequence[str]) -> list[tuple[int, ...]]:
    """The keys (`key_of`) of the distinct words of each text, given in search form."""
    return [tuple(map(key_of, terms)) for terms in terms_in(texts)]


def terms_in(texts: Sequence[str]) -> list[list[str]]:
    """The distinct words of each text, given in search form, tokenized as in the word index."""
    terms: list[list[str]] = [[] for _ in texts]
    if not texts:
        return terms
    for number, term, _, _ in count_terms([("", text) for text in texts]):
        terms[number].append(term)
    return terms


def surface_forms(stems: Sequence[str]) -> list[str]:
    """A word for each of these stems, such as "database" for "databas".

    Stems for which no word is found, one in thirty, are left out.
    """
    forms = [stem + ending for stem in stems for ending in _ENDINGS]
    found = dict(zip(forms, terms_in(forms), strict=True))
    ended = ([stem + ending for ending in _ENDINGS] for stem in stems)
    fitting = (
        next((form for form in tried if found[form] == [stem]), "")
        for stem, tried in zip(stems, ended, strict=True)
    )
    return [form for form in fitting if form]


@lru_cache(maxsize=1 << 16)
def key_of(term: str) -> int:
    """The 48-bit key of a word; a collision among a million words has a probability of 1 in 560."""
    return int.from_bytes(hashlib.blake2b(term.encode(), digest_size=6).digest(), "little")


def _owner(id: int) -> str:
    return f"{FORMAT}: {id}"


_counting = Lock()


@cache
def _tokenizer() -> Database:
    """An in-memory database with the tokenizer of the store; hold `_counting` to use it."""
    database = memory_database()
    database.executescript(
        f"""
        CREATE VIRTUAL TABLE texts
            USING fts5(heading, content, content='', tokenize="{TOKENIZER}");
        CREATE VIRTUAL TABLE words USING fts5vocab(texts, instance);
        """
    )
    return database


def count_terms(texts: Sequence[tuple[str, str]]) -> list[tuple[int, str, int, int]]:
    """Rows of text number, word, count in the heading and count in the content, for texts as
    (heading, content); words are tokenized as in the store's word index."""
    with _counting:
        connection = _tokenizer().conn
        connection.execute("BEGIN")
        try:
            connection.executemany(
                "INSERT INTO texts (rowid, heading, content) VALUES (?, ?, ?)",
                ((number, *text) for number, text in enumerate(texts)),
            )
            return connection.execute(
                "SELECT doc, term, sum(col = 'heading'), sum(col = 'content')"
                " FROM words GROUP BY doc, term"
            ).fetchall()
        finally:
            connection.execute("ROLLBACK")

"""The words of texts, tokenized and counted as in the passages' word index."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache, lru_cache
from threading import Lock

from sqlite_utils import Database

from datastores.passages.store import TOKENIZER
from datastores.storage.sqlite import memory_database

_ENDINGS = ("", "e", "es", "ed", "ing")


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

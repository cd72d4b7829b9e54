"""Respells a question's words as the passages spell them.

A word that no passage contains may occur as two ("on-line", `max_pool_size`) or joined with the
next one ("lighthouse" for "light house"), with grouped digits, or with two letters for an umlaut.
In Chinese and Japanese, bigrams across two words occur in no passage, but their characters may.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from datastores.search_form import (
    WORD,
    fold,
    identifier_parts,
    is_gram,
    split_runs,
    with_digraphs,
    word_form,
)
from engines.retrieval.question_words import NO_SUBJECT

Frequency = Callable[[str], int]
"""Word → number of passages that contain it; a word with `_` is a phrase."""

MIN_JOINED = 5
"""Shortest word that may be two."""
_DIGRAPH = re.compile("ae|oe|ue|aa")
_PLAIN = {"ae": "a", "oe": "o", "ue": "u", "aa": "a"}
_GAPS = (" ", "-", "\u2010", "\u2011")
"""Separators of two words that a text may write as one."""
_ARTICLES = frozenset("ai")
"""Single letters that are English words."""
_IDEOGRAPH = re.compile("[一-鿿㐀-䶿]")


def respelled(query: str, frequency: Frequency) -> str:
    """`query` with each word that no passage contains respelled as in one, if there is any."""
    pieces = (
        piece if is_run else _respelled(piece, frequency) for piece, is_run in split_runs(query)
    )
    return "".join(pieces)


def _respelled(text: str, frequency: Frequency) -> str:
    found = [(one.span(), one[0]) for one in WORD.finditer(text)]
    unknown = [_is_unknown(word, frequency) for _, word in found]
    changes: dict[tuple[int, int], str] = {}
    for (span, word), is_unknown in zip(found, unknown, strict=True):
        held = filter(frequency, _spellings(word)) if is_unknown else iter(())
        if spelling := next(held, ""):
            changes[span] = spelling
    for (first, second), either in zip(pairwise(found), map(any, pairwise(unknown)), strict=True):
        (start, gap), (resumed, end) = first[0], second[0]
        joined = fold(first[1] + second[1]).lower()
        if either and text[gap:resumed] in _GAPS and frequency(joined):
            changes[start, end] = joined
    return _replaced(text, changes)


def _is_unknown(word: str, frequency: Frequency) -> bool:
    """Whether no passage contains the word as it is; false for identifiers and stop words."""
    form = word_form(fold(word)).lower()
    return "_" not in word and form not in NO_SUBJECT and not frequency(form)


def _replaced(text: str, changes: dict[tuple[int, int], str]) -> str:
    """`text` with some spans replaced; of overlapping spans, the first and then longest wins."""
    pieces, done = [], 0
    for start, end in sorted(changes, key=lambda span: (span[0], -span[1])):
        if start >= done:
            pieces += [text[done:start], changes[start, end]]
            done = end
    return "".join([*pieces, text[done:]])


def _spellings(word: str) -> Iterator[str]:
    """Other spellings of a word, likeliest first."""
    plain = fold(word).lower()
    parts = identifier_parts(word) or re.findall(r"\d+|\D+", plain)
    if len(parts) > 1:
        yield "_".join(parts).lower()
    if with_digraphs(word) != word.lower():
        yield fold(with_digraphs(word))
    if _DIGRAPH.search(plain):
        yield _DIGRAPH.sub(lambda found: _PLAIN[found[0]], plain)
    if plain.isdigit() and len(plain) > 3:
        yield re.sub(r"(?<=\d)(?=(?:\d{3})+$)", "_", plain)
    for end in range(1, len(plain) - 1) if len(plain) >= MIN_JOINED else ():
        if plain[:end] not in _ARTICLES:
            yield f"{plain[:end]}_{plain[end:]}"


def characters_of_unheld(words: Sequence[str], frequency: Frequency) -> list[str]:
    """The ideographs that occur only in bigrams that no passage contains, which span two words.

    Empty if no passage contains any of the bigrams: then nothing but characters is shared.
    """
    held = [word for word in words if is_gram(word) and frequency(word)]
    if not held:
        return []
    unheld = "".join(word for word in words if is_gram(word) and word not in held)
    characters = dict.fromkeys(_IDEOGRAPH.findall(unheld))
    return [one for one in characters if not any(one in word for word in held) and frequency(one)]

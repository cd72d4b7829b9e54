"""CREST by brute force: what the array code must agree with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from hypothesis import strategies as st

from datastores.crest.counting import CountedStrings, count_strings
from datastores.crest.reader import CrestTree
from datastores.crest.texts import TokenText, joined

Path = tuple[int, ...]

texts = st.lists(
    st.tuples(st.lists(st.integers(0, 3), max_size=30), st.integers(0, 2)), max_size=6
).map(lambda given: [text_of(number, *one) for number, one in enumerate(given)])
"""A few texts over few tokens, so that everything repeats."""


def text_of(number: int, tokens: Sequence[int], kind: int = 1) -> TokenText:
    return TokenText(number.to_bytes(8, "big"), tokens, kind)


def counted(
    docs: Sequence[TokenText], depth: int, least: int = 1, tagged: int = 0
) -> CountedStrings:
    """The table of strings, by the array code."""
    with joined(docs) as text:
        return count_strings(text, depth, least, tagged=tagged)


def strings(given: Iterable[TokenText], length: int) -> Counter[Path]:
    """How often each string of `length` tokens occurs."""
    found: Counter[Path] = Counter()
    for one in given:
        tokens = tuple(int(token) for token in one.tokens)
        found.update(tokens[at : at + length] for at in range(len(tokens) - length + 1))
    return found


def tree(given: Sequence[TokenText], ngram: Path, reach: int, most: int) -> dict[Path, int]:
    """The `most` most common paths of at most `reach` tokens after `ngram`, with their counts."""
    paths = {
        string[len(ngram) :]: count
        for length in range(len(ngram) + 1, len(ngram) + reach + 1)
        for string, count in strings(given, length).items()
        if string[: len(ngram)] == ngram
    }
    best = sorted(paths, key=lambda path: (-paths[path], len(path), path))
    return {path: paths[path] for path in best[:most]}


def unfold(entry: CrestTree) -> dict[Path, float]:
    """Every path of a decoded tree, with P(its last token | the rest of it)."""
    paths: dict[int, Path] = {0: ()}
    rows = [0]
    for row in rows:
        for child in range(*entry.followers(row)):
            paths[child] = (*paths[row], entry.tokens[child])
            rows.append(child)
    return {path: entry.probabilities[row] for row, path in paths.items() if row}

"""Building CREST: from documents to pages under a byte budget.

What is built is a function of the documents' contents and the budget alone, whatever their order.
Everything is array work; memory is some 30 bytes for each distinct string that is counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from datastores.crest.counting import Level, TokenDocument, TokenText, count_strings
from datastores.crest.counting import join as join_documents
from datastores.crest.format import (
    KEY_BYTES,
    PAGE_BYTES,
    Entries,
    describe,
    encode,
    fitting,
    join,
    pages,
    rank_tokens,
)
from datastores.crest.selection import (
    ENTRY_BYTES,
    MAX_CONTINUATION,
    NODE_BYTES,
    Floats,
    Nodes,
    candidates,
    estimated_bytes,
    kept,
    top,
    utilities,
)

MAX_NGRAM = 4
"""n-grams of 1 to this many tokens. Longer ones add almost nothing."""
NODES_EACH = 10
"""Nodes of an entry, on average."""
ROOMY = 6
"""Bytes of budget for each token of text above which strings seen only once may find a place."""
FEW = 1 << 21
"""Tokens up to which they are counted at all: they take more memory than all others together."""
CROWDED = 8
"""Tokens of text for each byte of budget above which strings seen thrice or less do not."""
MANY = 1 << 26
"""Tokens above which strings seen only twice are left out: to choose among them takes 10 GiB."""
WIDE = 0.25
HIGHEST = 2.0
"""The right threshold lies between these shares of the first estimate, which knows no limits."""
HALVINGS = 7
"""Of the logarithm of what lies between."""
OVERFULL = 1.02
"""What is too much by the estimate is taken away again, entry by entry."""
TREE_BYTES = 30
"""An n-gram with its tree, on average, where all of its tree is kept."""
ATTEMPTS = 12
"""Looks for a number of n-grams that fills a budget."""
ENOUGH = 0.95
"""Share of a budget at which it counts as filled."""
FIXED = 5 * 4096
"""Bytes of an empty file."""
FILLED = 0.92
"""Share of the file's bytes that are pages of ours; SQLite takes the rest."""


@dataclass(frozen=True, slots=True)
class Counted:
    """What every selection starts from."""

    text: TokenText
    levels: list[Level]


@dataclass(frozen=True, slots=True)
class Built:
    """A store's content.

    Attributes:
        longest: n of the longest n-grams.
        ids: token id of each rank.
        number: pages the n-grams are spread over.
        entries: n-grams kept.
        pages: the pages that are not empty, by number, ascending.
    """

    longest: int
    ids: NDArray[np.uint32]
    number: int
    entries: int
    pages: Iterator[tuple[int, bytes]]


def count(documents: Iterable[TokenDocument], budget: int, longest: int = MAX_NGRAM) -> Counted:
    """Count all strings that a store of `budget` bytes may want."""
    text = join_documents(documents)
    least = least_count(len(text.tokens), budget)
    return Counted(text, count_strings(text, longest + MAX_CONTINUATION, least, tagged=longest))


def least_count(tokens: int, budget: int) -> int:
    """Strings rarer than this are not worth counting under this budget."""
    if tokens <= FEW and tokens * ROOMY <= budget:
        return 1
    if tokens > CROWDED * budget:
        return 4
    return 2 if tokens <= MANY else 3


def build(documents: Iterable[TokenDocument], budget: int, longest: int = MAX_NGRAM) -> Built:
    """The n-grams and nodes of most utility, in at most `budget` bytes of file."""
    return select(count(documents, budget, longest), budget, longest)


def select(counted: Counted, budget: int, longest: int = MAX_NGRAM) -> Built:
    """The best content for `budget` bytes of file."""
    room = max(int((budget - FIXED) * FILLED), 0)
    utility = {length: utilities(counted.levels, length) for length in range(1, longest + 1)}
    low = WIDE * threshold(utility, room)
    found = [candidates(counted.levels, length, levels, low) for length, levels in utility.items()]
    least = _filling(found, low, room * OVERFULL)
    entries, ids = _encoded(counted, [kept(nodes, least) for nodes in found])
    return _built(fitting(entries, room - ids_bytes(ids)), ids, longest)


def _filling(found: Sequence[Nodes], low: float, room: float) -> float:
    """The least utility per byte, `low` or more, at which nodes fill about `room` bytes."""
    high = low / WIDE * HIGHEST
    for _ in range(HALVINGS if low else 0):
        middle = (low * high) ** 0.5
        if sum(estimated_bytes(kept(nodes, middle)) for nodes in found) > room:
            low = middle
        else:
            high = middle
    return low


def paper(counted: Counted, lengths: Sequence[int], number: int) -> Built:
    """The paper's selections: the `number` most common n-grams of each of `lengths`."""
    chosen = [top(counted.levels, length, number) for length in lengths]
    entries, ids = _encoded(counted, chosen)
    return _built(entries, ids, max(lengths))


def paper_within(counted: Counted, lengths: Sequence[int], budget: int) -> Built:
    """The paper's selection with the same number of each n, as large as `budget` allows."""
    room = max(int((budget - FIXED) * FILLED), 0)
    fits = 0
    fails = max(len(counted.levels[length - 1]) for length in lengths) + 1
    number = min(room // (TREE_BYTES * len(lengths)), fails - 1)
    for _ in range(ATTEMPTS):
        chosen = [top(counted.levels, length, number) for length in lengths]
        size = used(*_encoded(counted, chosen))
        if size <= room:
            fits = number
        else:
            fails = number
        if ENOUGH * room <= size <= room or fails - fits <= 1:
            break
        number = int(number * room / size * ENOUGH**0.5) if size else fails
        if not fits < number < fails:
            number = (fits + fails) // 2
    return paper(counted, lengths, fits)


def threshold(utility: Mapping[int, Mapping[int, Floats]], room: int) -> float:
    """Worth of a byte above which the nodes of all n-grams together fill about `room` bytes."""
    parts = [found for levels in utility.values() for found in levels.values()]
    nodes = np.concatenate([*parts, np.empty(0, dtype=np.float32)])
    number = int(room / (NODE_BYTES + ENTRY_BYTES / NODES_EACH))
    if number >= len(nodes):
        return 0.0
    return float(np.partition(nodes, -number - 1)[-number - 1]) / NODE_BYTES


def used(entries: Entries, ids: NDArray[np.uint32]) -> int:
    """Bytes of the entries, with their keys and the token ids."""
    return int(entries.lengths.sum()) + KEY_BYTES * len(entries) + ids_bytes(ids)


def ids_bytes(ids: NDArray[np.uint32]) -> int:
    """Bytes of the token ids as they are stored."""
    return len(ids) * (2 if not len(ids) or int(ids.max()) < 1 << 16 else 4)


def _encoded(counted: Counted, chosen: Sequence[Nodes]) -> tuple[Entries, NDArray[np.uint32]]:
    """The entries of the chosen trees, and the token ids by rank."""
    columns = [describe(counted.levels, nodes) for nodes in chosen]
    ids = rank_tokens(columns)
    parts = [
        encode(counted.text, counted.levels, nodes, column, ids)
        for nodes, column in zip(chosen, columns, strict=True)
    ]
    return join(parts), ids


def _built(entries: Entries, ids: NDArray[np.uint32], longest: int) -> Built:
    number = max(1, int(entries.lengths.sum()) // PAGE_BYTES)
    return Built(longest, ids, number, len(entries), pages(entries, number))

"""Building CREST: from documents to pages under a byte budget.

What is built is a function of the documents' contents and the budget alone, whatever their order.
Everything is array work; memory is some 30 bytes for each distinct string that is counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from datastores.crest_document import Document
from datastores.crest_pack import (
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
from datastores.crest_select import (
    CONTINUATION,
    ENTRY_BYTES,
    NODE_BYTES,
    Floats,
    Nodes,
    kept,
    top,
    worths,
)
from datastores.crest_strings import Level, Text, count_strings
from datastores.crest_strings import join as join_documents

LONGEST = 4
"""n-grams of 1 to this many tokens. Longer ones are worth next to nothing beside these."""
NODES_EACH = 10
"""Nodes of an entry, on average."""
ROOMY = 6
"""Bytes of budget for each token of text above which strings seen only once may find a place."""
FEW = 1 << 21
"""Tokens up to which they are counted at all: they take more memory than all others together."""
CROWDED = 8
"""Tokens of text for each byte of budget above which strings seen thrice or less do not."""
CLOSER = 0.9
"""How far below the estimate the threshold is set: what is too much is taken away again."""
STEEPNESS = 1.5
"""Bytes kept grow about as fast as the threshold, to this power, falls."""
FIXED = 5 * 4096
"""Bytes of an empty file."""
FILLED = 0.92
"""Share of the file's bytes that are pages of ours; SQLite takes the rest."""


@dataclass(frozen=True, slots=True)
class Counted:
    """What every selection starts from."""

    text: Text
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


def count(documents: Iterable[Document], budget: int, longest: int = LONGEST) -> Counted:
    """Count all strings that a store of `budget` bytes may want."""
    text = join_documents(documents)
    least = least_count(len(text.tokens), budget)
    return Counted(text, count_strings(text, longest + CONTINUATION, least, tagged=longest))


def least_count(tokens: int, budget: int) -> int:
    """Strings rarer than this are not worth a place in the budget."""
    if tokens <= FEW and tokens * ROOMY <= budget:
        return 1
    return 2 if tokens <= CROWDED * budget else 4


def build(documents: Iterable[Document], budget: int, longest: int = LONGEST) -> Built:
    """The n-grams and nodes that are worth most, in at most `budget` bytes of file."""
    return select(count(documents, budget, longest), budget, longest)


def select(counted: Counted, budget: int, longest: int = LONGEST) -> Built:
    """The best content for `budget` bytes of file."""
    worth = {length: worths(counted.levels, length) for length in range(1, longest + 1)}
    room = max(int((budget - FIXED) * FILLED), 0)
    least = threshold(worth, room)
    entries, ids = _encoded(counted, _kept(counted, worth, least))
    for closer in (CLOSER, CLOSER, 0.0):
        if least == 0.0 or used(entries, ids) >= room:
            break
        least *= closer * (used(entries, ids) / room) ** STEEPNESS
        entries, ids = _encoded(counted, _kept(counted, worth, least))
    return _built(fitting(entries, room - ids_bytes(ids)), ids, longest)


def paper(counted: Counted, lengths: Sequence[int], number: int) -> Built:
    """The paper's selections: the `number` most common n-grams of each of `lengths`."""
    chosen = [top(counted.levels, length, number) for length in lengths]
    entries, ids = _encoded(counted, chosen)
    return _built(entries, ids, max(lengths))


def threshold(worth: Mapping[int, Mapping[int, Floats]], room: int) -> float:
    """Worth of a byte above which the nodes of all n-grams together fill about `room` bytes."""
    parts = [found for levels in worth.values() for found in levels.values()]
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


def _kept(counted: Counted, worth: Mapping[int, dict[int, Floats]], least: float) -> list[Nodes]:
    return [kept(counted.levels, length, found, least) for length, found in worth.items()]


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

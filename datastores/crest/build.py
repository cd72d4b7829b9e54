"""Building CREST: from documents to pages under a byte budget.

The result is a function of the documents' contents and the budget alone, whatever their order.
Everything is array work; memory is some 30 bytes for each distinct string that is counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

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
    rank_uses,
)
from datastores.crest.selection import (
    ENTRY_BYTES,
    MAX_CONTINUATION,
    NODE_BYTES,
    Floats,
    Nodes,
    candidates,
    estimated_bytes,
    select_nodes,
    utilities,
)

MAX_NGRAM = 4
"""n-grams of 1 to this many tokens. Longer ones add almost nothing."""

SINGLETON_BUDGET = 6
"""Bytes of budget per token of text above which strings that occur once may be kept."""
SINGLETON_TOKENS = 1 << 21
"""Tokens up to which those are counted: they take more memory than all other strings together."""
SMALL_BUDGET = 8
"""Tokens of text per byte of budget above which strings that occur fewer than 4 times are not."""
PAIR_TOKENS = 1 << 26
"""Tokens above which strings that occur twice are not counted: they would take 10 GiB to rank."""

NODES_PER_ENTRY = 10
"""On average."""
LOWEST_SHARE = 0.25
HIGHEST_SHARE = 2.0
"""The threshold is searched between these shares of the first estimate, which knows no limits."""
BISECTIONS = 7
"""On a logarithmic scale."""
OVERFILL = 1.02
"""By the estimate; what is too much is removed again, entry by entry."""
EMPTY_FILE_BYTES = 7 * 4096
USE_BYTES = 4
"""Of the number of nodes that have one token id, where counts are exact."""
FILL_SHARE = 0.92
"""Share of the file's bytes that are pages of ours; SQLite takes the rest."""


@dataclass(frozen=True, slots=True)
class CountedText:
    """What every selection starts from: all strings that occur `least` times or more."""

    text: TokenText
    levels: list[Level]
    least: int


@dataclass(frozen=True, slots=True)
class BuiltStore:
    """A store's content.

    Attributes:
        longest: n of the longest n-grams.
        ids: token id of each rank.
        page_count: pages the n-grams are spread over.
        entry_count: n-grams kept.
        pages: the pages that are not empty, by number, ascending.
        least: occurrences of the rarest strings that were counted, if counts are exact; else 0.
        uses: nodes with each rank, if counts are exact; else empty.
    """

    longest: int
    ids: NDArray[np.uint32]
    page_count: int
    entry_count: int
    pages: Iterator[tuple[int, bytes]]
    least: int = 0
    uses: NDArray[np.uint32] = field(default_factory=lambda: np.zeros(0, dtype=np.uint32))


def count(documents: Iterable[TokenDocument], budget: int, longest: int = MAX_NGRAM) -> CountedText:
    """Count all strings that a store of `budget` bytes may keep."""
    text = join_documents(documents)
    least = least_count(len(text.tokens), budget)
    levels = count_strings(text, longest + MAX_CONTINUATION, least, tagged=longest)
    return CountedText(text, levels, least)


def least_count(tokens: int, budget: int) -> int:
    """Strings rarer than this are not worth counting under this budget."""
    if tokens <= SINGLETON_TOKENS and tokens * SINGLETON_BUDGET <= budget:
        return 1
    if tokens > SMALL_BUDGET * budget:
        return 4
    return 2 if tokens <= PAIR_TOKENS else 3


def build(documents: Iterable[TokenDocument], budget: int, longest: int = MAX_NGRAM) -> BuiltStore:
    """The n-grams and nodes of most utility, in at most `budget` bytes of file."""
    return select(count(documents, budget, longest), budget, longest)


def select(
    counted: CountedText, budget: int, longest: int = MAX_NGRAM, *, exact: bool = False
) -> BuiltStore:
    """The content of most utility for `budget` bytes of file.

    With `exact` counts it takes about a tenth more, and documents can be subtracted from it.
    """
    room = page_room(budget)
    by_length = {length: utilities(counted.levels, length) for length in range(1, longest + 1)}
    low = LOWEST_SHARE * threshold(by_length, room)
    found = [
        candidates(counted.levels, length, levels, low) for length, levels in by_length.items()
    ]
    least = _filling_threshold(found, low, room * OVERFILL)
    chosen = [select_nodes(nodes, least) for nodes in found]
    entries, ids = encode_trees(counted, chosen, exact=exact)
    fits = fitting(entries, room - ids_bytes(ids) - exact * USE_BYTES * len(ids))
    built = paginate(fits, ids, longest)
    if not exact:
        return built
    return replace(built, least=counted.least, uses=rank_uses(fits, len(ids)))


def page_room(budget: int) -> int:
    """Bytes for entries and token ids in a file of `budget` bytes."""
    return max(int((budget - EMPTY_FILE_BYTES) * FILL_SHARE), 0)


def _filling_threshold(found: Sequence[Nodes], low: float, room: float) -> float:
    """The least utility per byte, `low` or more, at which nodes fill about `room` bytes."""
    high = low / LOWEST_SHARE * HIGHEST_SHARE
    for _ in range(BISECTIONS if low else 0):
        middle = (low * high) ** 0.5
        if sum(estimated_bytes(select_nodes(nodes, middle)) for nodes in found) > room:
            low = middle
        else:
            high = middle
    return low


def threshold(by_length: Mapping[int, Mapping[int, Floats]], room: int) -> float:
    """Utility per byte above which the nodes of all n-grams together fill about `room` bytes."""
    parts = [found for levels in by_length.values() for found in levels.values()]
    nodes = np.concatenate([*parts, np.empty(0, dtype=np.float32)])
    number = int(room / (NODE_BYTES + ENTRY_BYTES / NODES_PER_ENTRY))
    if number >= len(nodes):
        return 0.0
    return float(np.partition(nodes, -number - 1)[-number - 1]) / NODE_BYTES


def encoded_bytes(entries: Entries, ids: NDArray[np.uint32]) -> int:
    """Bytes of the entries, with their keys and the token ids."""
    return int(entries.lengths.sum()) + KEY_BYTES * len(entries) + ids_bytes(ids)


def ids_bytes(ids: NDArray[np.uint32]) -> int:
    """Bytes of the token ids as they are stored."""
    return len(ids) * (2 if not len(ids) or int(ids.max()) < 1 << 16 else 4)


def encode_trees(
    counted: CountedText, chosen: Sequence[Nodes], *, exact: bool = False
) -> tuple[Entries, NDArray[np.uint32]]:
    """The entries of the chosen trees, and the token ids by rank."""
    columns = [describe(counted.levels, nodes) for nodes in chosen]
    ids = rank_tokens(columns)
    parts = [
        encode(counted.text, counted.levels, nodes, column, ids, exact=exact)
        for nodes, column in zip(chosen, columns, strict=True)
    ]
    return join(parts), ids


def paginate(entries: Entries, ids: NDArray[np.uint32], longest: int) -> BuiltStore:
    """The store's content, with `entries` spread over pages."""
    number = max(1, int(entries.lengths.sum()) // PAGE_BYTES)
    return BuiltStore(longest, ids, number, len(entries), pages(entries, number))

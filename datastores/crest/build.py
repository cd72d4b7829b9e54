"""Building CREST: from texts to pages under a byte budget.

The result depends only on the set of texts and the budget, not on their order. Everything is array
work on one part of the strings at a time: those that begin with the same tokens. It takes 16 bytes
of memory for each distinct counted string, and the size of the store itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from datastores.crest.columns import Columns, open_columns
from datastores.crest.counting import (
    MAX_TREE_STRINGS,
    CountedStrings,
    Level,
    count_strings,
    parts_of,
)
from datastores.crest.format import (
    KEY_BYTES,
    PAGE_BYTES,
    Entries,
    EntryCollector,
    count_tokens,
    decode,
    describe,
    encode,
    fitting,
    pages,
)
from datastores.crest.selection import (
    ENTRY_BYTES,
    MAX_CONTINUATION,
    NODE_BYTES,
    Nodes,
    candidates,
    depths,
    estimated_bytes,
    select_nodes,
    utilities,
)
from datastores.crest.texts import TokenText, joined
from datastores.pauses import pause_here

MAX_NGRAM = 4
"""Largest n. With 5 and 6, stores of equal size draft as well as with 4: tokens per step differ by
.3 % at most on code and completed functions, and by .5 % on edited files (8, 16 and 64 rows; 16 MB
for 1 to 3 M tokens)."""

SINGLETON_BUDGET = 6
"""Bytes of budget per token of text above which strings that occur once may be kept."""
SINGLETON_TOKENS = 1 << 21
"""Most tokens of text for which these are counted: they take more memory than all other strings."""
SMALL_BUDGET = 8
"""Tokens of text per byte of budget above which only strings that occur 4 times are counted."""

PART_STRINGS = MAX_TREE_STRINGS
"""Strings that are selected from at a time: some 100 bytes each."""

NODES_PER_ENTRY = 10
"""On average."""
LOWEST_SHARE = 0.25
HIGHEST_SHARE = 2.0
"""The threshold is searched between these shares of the first estimate, which ignores limits."""
BISECTIONS = 7
"""Steps of the search, on a logarithmic scale."""
OVERFILL = 1.02
"""Target of the search as a share of the room; the excess is removed again, entry by entry."""
EMPTY_FILE_BYTES = 7 * 4096
USE_BYTES = 4
"""Size of the number of nodes of a token id, in exact stores."""
FILL_SHARE = 0.92
"""Share of the file that is our pages; SQLite takes the rest."""


@dataclass(frozen=True, slots=True)
class BuiltStore:
    """A store's content.

    Attributes:
        longest: largest n of the n-grams.
        ids: token id of each rank.
        page_count: pages the n-grams are spread over.
        entry_count: number of n-grams.
        pages: the non-empty pages by number, ascending.
        least: occurrences of the rarest counted strings, if counts are exact; else 0.
        uses: number of nodes of each rank, if counts are exact; else empty.
    """

    longest: int
    ids: NDArray[np.uint32]
    page_count: int
    entry_count: int
    pages: Iterator[tuple[int, bytes]]
    least: int = 0
    uses: NDArray[np.uint32] = field(default_factory=lambda: np.zeros(0, dtype=np.uint32))


Trees = Iterator[tuple[Sequence[Level], Nodes]]
"""Trees of n-grams of one length each, with the table that their numbers refer to."""


def count(
    texts: Iterable[TokenText],
    budget: int,
    longest: int = MAX_NGRAM,
    folder: Path | None = None,
) -> CountedStrings:
    """Count all strings that a store of `budget` bytes may keep.

    Args:
        folder: for temporary files; None for the system's.

    Raises:
        StoreError: there is no room for them.
    """
    with joined(texts, folder) as text:
        least = least_count(len(text), budget)
        return count_strings(text, longest + MAX_CONTINUATION, least, tagged=longest)


def least_count(tokens: int, budget: int) -> int:
    """Occurrences below which strings are not worth counting under this budget."""
    if tokens <= SINGLETON_TOKENS and tokens * SINGLETON_BUDGET <= budget:
        return 1
    return 4 if tokens > SMALL_BUDGET * budget else 2


def build(texts: Iterable[TokenText], budget: int, longest: int = MAX_NGRAM) -> BuiltStore:
    """The n-grams and nodes of highest utility in a file of at most `budget` bytes."""
    return select(count(texts, budget, longest), budget, longest)


def select(
    counted: CountedStrings,
    budget: int,
    longest: int = MAX_NGRAM,
    *,
    exact: bool = False,
    folder: Path | None = None,
) -> BuiltStore:
    """The content of highest utility for `budget` bytes of file.

    With `exact` counts it takes about a tenth more, and texts can be subtracted from it.

    Args:
        folder: as for `count`.

    Raises:
        StoreError: there is no room for temporary files.
    """
    room = page_room(budget)
    low = LOWEST_SHARE * threshold(counted.levels, longest, room)
    with open_columns(folder) as columns:
        found = StoredNodes(columns)
        for part in parts_of(counted.levels, PART_STRINGS):
            for length in range(1, longest + 1):
                pause_here()
                nodes = candidates(part, length, utilities(part, length), low)
                found.append(select_nodes(nodes, low))
        least = _filling_threshold(found, low, room * OVERFILL)

        def trees() -> Trees:
            stored = iter(found)
            for part in parts_of(counted.levels, PART_STRINGS):
                for _ in range(longest):
                    pause_here()
                    nodes = next(stored)
                    yield part, select_nodes(nodes, least) if least > low else nodes

        entries, ids, uses = encode_trees(trees, columns, exact=exact)
    fits = fitting(entries, room - ids_bytes(ids) - exact * USE_BYTES * len(ids))
    built = paginate(entries, ids, longest, fits)
    if not exact:
        return built
    return replace(built, least=counted.least, uses=_without(uses, entries.take(~fits)))


def page_room(budget: int) -> int:
    """Bytes for entries and token ids in a file of `budget` bytes."""
    return max(int((budget - EMPTY_FILE_BYTES) * FILL_SHARE), 0)


class StoredNodes:
    """Nodes of one part after another, stored in columns, which can be read repeatedly."""

    def __init__(self, columns: Columns) -> None:
        self._spans: list[tuple[int, int, int]] = []
        self._roots, self._depths = columns.new(np.int32), columns.new(np.uint8)
        self._strings, self._utilities = columns.new(np.int32), columns.new(np.float32)

    def append(self, nodes: Nodes) -> None:
        """Append `nodes`."""
        self._spans.append((nodes.length, len(self._roots), len(self._roots) + len(nodes)))
        self._roots.append(nodes.roots)
        self._depths.append(nodes.depths)
        self._strings.append(nodes.strings)
        self._utilities.append(nodes.utilities)

    def __iter__(self) -> Iterator[Nodes]:
        for length, first, last in self._spans:
            pause_here()
            columns = (self._roots, self._depths, self._strings, self._utilities)
            yield Nodes(length, *(column.read(first, last) for column in columns))


def _filling_threshold(found: Iterable[Nodes], low: float, room: float) -> float:
    """The utility per byte, at least `low`, at which nodes fill about `room` bytes."""
    high = low / LOWEST_SHARE * HIGHEST_SHARE
    for _ in range(BISECTIONS if low else 0):
        middle = (low * high) ** 0.5
        if sum(estimated_bytes(select_nodes(nodes, middle)) for nodes in found) > room:
            low = middle
        else:
            high = middle
    return low


def threshold(levels: Sequence[Level], longest: int, room: int) -> float:
    """Utility per byte above which the nodes of all n-grams fill about `room` bytes; at most a
    hundredth too low."""
    number = int(room / (NODE_BYTES + ENTRY_BYTES / NODES_PER_ENTRY))
    lengths = range(1, longest + 1)
    sizes = (len(levels[deep - 1]) for length in lengths for deep in depths(levels, length))
    if number >= sum(sizes):
        return 0.0
    # Non-negative floats sort like their bits, of which the first 16 suffice.
    counts = np.zeros(1 << 16, np.int64)
    for part in parts_of(levels, PART_STRINGS):
        for length in lengths:
            for found in utilities(part, length).values():
                bits = found.view(np.uint32) >> np.uint32(16)
                counts += np.bincount(bits, minlength=len(counts))
    above = np.cumsum(counts[::-1])[::-1]
    lowest = np.flatnonzero(above > number)[-1:].astype(np.uint32) << np.uint32(16)
    return float(lowest.view(np.float32)[0]) / NODE_BYTES


def encoded_bytes(entries: Entries, ids: NDArray[np.uint32]) -> int:
    """Size of the entries, with their keys and the token ids."""
    return int(entries.lengths.sum()) + KEY_BYTES * len(entries) + ids_bytes(ids)


def ids_bytes(ids: NDArray[np.uint32]) -> int:
    """Size of the token ids in the store."""
    return len(ids) * (2 if not len(ids) or int(ids.max()) < 1 << 16 else 4)


def encode_trees(
    trees: Callable[[], Trees], columns: Columns, *, exact: bool = False
) -> tuple[Entries, NDArray[np.uint32], NDArray[np.int64]]:
    """The entries of the trees, the token ids by rank, and the number of nodes of each.

    Args:
        trees: returns the same trees at each call.
    """
    ids, uses = count_tokens(trees())
    collector = EntryCollector(columns.new(np.uint8))
    for levels, nodes in trees():
        collector.add(encode(levels, nodes, describe(levels, nodes), ids, exact=exact))
    return collector.entries(), ids, uses


def _without(uses: NDArray[np.int64], dropped: Sequence[bytes]) -> NDArray[np.uint32]:
    """`uses` without the nodes of `dropped` entries, which are given by their bytes."""
    ranks = Counter(rank for data in dropped for rank in decode(data, range(len(uses))).tokens[1:])
    left = uses.astype(np.uint32)
    for rank, times in ranks.items():
        left[rank] -= times
    return left


def paginate(
    entries: Entries, ids: NDArray[np.uint32], longest: int, kept: NDArray[np.bool_]
) -> BuiltStore:
    """The store's content, with the `kept` entries spread over pages."""
    number = max(1, int(entries.lengths[kept].sum(dtype=np.int64)) // PAGE_BYTES)
    found = pages(entries, kept, number)
    return BuiltStore(longest, ids, number, int(np.count_nonzero(kept)), found)

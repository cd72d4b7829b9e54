"""The papers' methods, to compare with: REST, CREST as published, drafts of a fixed shape.

REST is a suffix array of all tokens (crest.txt, 3.1). Its drafter looks for the last 16 tokens,
then 15, down to 2, and drafts the most common prefixes of what follows the longest match. The
datastore is a folder of two memory-mapped arrays, as in REST. Unlike REST's published code, it does
not truncate ids, and no match crosses from one text into the next, as a separator is stored between
them.

CREST's paper (sections 3.1 and 5.4) keeps the most common n-grams, the same number for each n, and
drafts the tree of the longest match alone. Its trees are encoded, stored and read like specchat's
own, so that only selection and drafting differ.

The papers verify drafts × tokens whatever they cost (DReSD section 5.4: 3 × 20 for greedy answers,
10 × 10 for sampled ones; REST's are about 10 × 6). To compare drafters at one shape, each drafter's
own tree is cut to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import log1p
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from app.bench import extra
from datastores.crest.build import (
    BuiltStore,
    encode_trees,
    encoded_bytes,
    page_room,
    paginate,
)
from datastores.crest.columns import open_columns
from datastores.crest.counting import CountedStrings, Level
from datastores.crest.format import Entries
from datastores.crest.reader import CrestReader
from datastores.crest.selection import Nodes, ancestors, candidates, depths, limit_trees
from datastores.crest.texts import TokenText
from datastores.errors import InputError
from engines.budget.selection import by_probability, prune
from engines.draft_tree import CHATS, DraftTree, root_only
from engines.drafters.ngram_ranking import rank
from engines.drafters.protocol import Drafter
from engines.step import Context, Step

SEPARATOR = 0
"""Ends every text; stored ids are token ids plus one."""

Ids = NDArray[np.uint32]


class RestStore:
    """Tokens and suffix array of one set of texts."""

    def __init__(self, folder: Path) -> None:
        """Open what `write_rest` wrote into `folder`."""
        width = 2 if (folder / "tokens.u16").exists() else 4
        tokens = folder / f"tokens.u{8 * width}"
        self._files = (tokens, folder / "suffixes.i32")
        if not tokens.stat().st_size:
            self._tokens = np.empty(0, dtype=f"<u{width}")
            self._suffixes = np.empty(0, dtype="<i4")
        else:
            self._tokens = np.memmap(tokens, dtype=f"<u{width}", mode="r")
            self._suffixes = np.memmap(self._files[1], dtype="<i4", mode="r")

    def size(self) -> int:
        """Bytes on disk."""
        return sum(file.stat().st_size for file in self._files)

    def __len__(self) -> int:
        """Positions, separators included."""
        return len(self._suffixes)

    def find(self, context: Sequence[int], within: tuple[int, int]) -> tuple[int, int]:
        """The range of the suffix array, within another, whose suffixes begin with `context`."""
        wanted = [token + 1 for token in context]
        first = self._bisect(wanted, *within, after=False)
        return first, self._bisect(wanted, first, within[1], after=True)

    def continuations(self, found: tuple[int, int], skip: int, length: int, most: int) -> Ids:
        """Continuations of the suffixes in `found`, or `most` evenly spaced ones, after `skip`
        tokens.

        Returns uint32 [matches, length] in ascending order, token ids plus one; from the end of a
        text on, `SEPARATOR`.
        """
        first, last = found
        rows = np.unique(np.linspace(first, last - 1, min(most, last - first)).astype(np.int64))
        positions = self._suffixes[rows].astype(np.int64)[:, None] + (skip + np.arange(length))
        inside = positions < len(self._tokens)
        ids = np.where(inside, self._tokens[np.where(inside, positions, 0)], SEPARATOR)
        ended = np.logical_or.accumulate(ids == SEPARATOR, axis=1)
        return np.where(ended, SEPARATOR, ids).astype(np.uint32)

    def _bisect(self, wanted: list[int], low: int, high: int, *, after: bool) -> int:
        """First suffix in [low, high) that begins with more than `wanted`, or not less than it."""
        tokens, suffixes, length = self._tokens, self._suffixes, len(wanted)
        while low < high:
            middle = (low + high) // 2
            position = int(suffixes[middle])
            begins = tokens[position : position + length].tolist()
            if begins < wanted or (after and begins == wanted):
                low = middle + 1
            else:
                high = middle
        return low


def write_rest(folder: Path, texts: Iterable[TokenText], width: int = 4) -> None:
    """Write a store into `folder`, which must exist and be empty, with 4 or 2 bytes for each id.

    Raises:
        InputError: an id does not fit into `width` bytes.
    """
    divsufsort = extra("pydivsufsort").divsufsort
    parts: list[NDArray[np.uint64]] = [np.empty(0, dtype=np.uint64)]
    for text in texts:
        parts += [np.asarray(text.tokens, dtype=np.uint64) + np.uint64(1), np.zeros(1, "<u8")]
    tokens = np.concatenate(parts)
    if len(tokens) and int(tokens.max()) >= 1 << 8 * width:
        raise InputError(f"token id {int(tokens.max()) - 1} does not fit into {width} bytes")
    stored = tokens.astype(f"<u{width}")
    suffixes = divsufsort(stored) if len(stored) else np.empty(0, dtype=np.int32)
    stored.tofile(folder / f"tokens.u{8 * width}")
    suffixes.astype("<i4").tofile(folder / "suffixes.i32")


MAX_MATCH_TOKENS = 16
MIN_MATCH_TOKENS = 2
MAX_MATCHES = 5000
MAX_CONTINUATION = 10
MAX_NODES = 64
"""The paper's settings (section 5.1)."""


class RestDrafter:
    """A drafter over one suffix array."""

    name = "rest"
    top_tokens_needed = 0

    def __init__(self, store: RestStore, continuation: int = MAX_CONTINUATION) -> None:
        """Draft from `store`, at most `continuation` tokens deep."""
        self._store = store
        self._continuation = continuation

    def begin(self, context: Context) -> None:
        """Nothing to do: lookups are independent."""

    def propose(self, context: Context, limit: int) -> DraftTree:
        """The most common prefixes of the continuations of the longest match."""
        length, found = self._longest(context.tokens[-MAX_MATCH_TOKENS:])
        if not length:
            return root_only(context.root)
        ids = self._store.continuations(found, length, self._continuation, MAX_MATCHES)
        return _tree(context.root, ids, min(limit, MAX_NODES))

    def observe(self, step: Step) -> None:
        """Nothing to learn: the store is fixed."""

    def _longest(self, context: list[int]) -> tuple[int, tuple[int, int]]:
        """Length and range of the longest match; length 0 if there is none."""
        best, found = 0, (0, len(self._store))
        for length in range(MIN_MATCH_TOKENS, len(context) + 1):
            first, last = self._store.find(context[-length:], (0, len(self._store)))
            if first == last:
                break
            best, found = length, (first, last)
        return best, found


def _tree(root: int, ids: Ids, limit: int) -> DraftTree:
    """The `limit` most common prefixes of the rows of `ids`, which are in ascending order.

    Among equals the shorter comes first, then the lower tokens.
    """
    starts = np.ones(ids.shape, dtype=np.bool_)
    starts[1:] = np.logical_or.accumulate(ids[1:] != ids[:-1], axis=1)
    runs = np.cumsum(starts, axis=0)
    columns, firsts = np.nonzero((starts & (ids != SEPARATOR)).T)
    counts = _run_lengths(starts)[columns, firsts]
    tree = root_only(root)
    rows: dict[tuple[int, int], int] = {(-1, 0): 0}
    sizes = [len(ids)]
    for chosen in np.lexsort((firsts, columns, -counts))[:limit].tolist():
        column, first = int(columns[chosen]), int(firsts[chosen])
        parent = rows[column - 1, int(runs[first, column - 1]) if column else 0]
        sizes.append(int(counts[chosen]))
        chance, support = sizes[-1] / sizes[parent], log1p(sizes[parent])
        row = tree.add(parent, int(ids[first, column]) - 1, CHATS, chance, support)
        rows[column, int(runs[first, column])] = row
    return tree


def _run_lengths(starts: NDArray[np.bool_]) -> NDArray[np.int64]:
    """For each column and row: rows until the next start in that column. Shape [columns, rows]."""
    rows = np.arange(len(starts))
    following = np.full((starts.shape[1], len(starts) + 1), len(starts))
    following[:, :-1] = np.where(starts.T, rows, len(starts))
    following = np.minimum.accumulate(following[:, ::-1], axis=1)[:, ::-1]
    return following[:, 1:] - rows


TREE_BYTES = 30
"""Average size of an n-gram with its tree, if the whole tree is kept."""
MAX_ATTEMPTS = 12
"""Attempts to find the number of n-grams that fills a budget."""
FILLED_SHARE = 0.95
"""Share of a budget from which it counts as filled."""


def select_most_common(counted: CountedStrings, lengths: Sequence[int], number: int) -> BuiltStore:
    """The `number` most common n-grams of each of `lengths`."""
    entries, ids = _most_common_trees(counted, lengths, number)
    return paginate(entries, ids, max(lengths), np.ones(len(entries), np.bool_))


def _most_common_trees(
    counted: CountedStrings, lengths: Sequence[int], number: int
) -> tuple[Entries, NDArray[np.uint32]]:
    chosen = [most_common(counted.levels, length, number) for length in lengths]
    with open_columns() as columns:
        entries, ids, _ = encode_trees(
            lambda: ((counted.levels, nodes) for nodes in chosen), columns
        )
    return entries, ids


def select_within(counted: CountedStrings, lengths: Sequence[int], budget: int) -> BuiltStore:
    """The most common n-grams of `lengths`, the same number of each, that fit into `budget`
    bytes."""
    room = page_room(budget)
    fits = 0
    fails = max(len(counted.levels[length - 1]) for length in lengths) + 1
    number = min(room // (TREE_BYTES * len(lengths)), fails - 1)
    for _ in range(MAX_ATTEMPTS):
        size = encoded_bytes(*_most_common_trees(counted, lengths, number))
        if size <= room:
            fits = number
        else:
            fails = number
        if FILLED_SHARE * room <= size <= room or fails - fits <= 1:
            break
        number = int(number * room / size * FILLED_SHARE**0.5) if size else fails
        if not fits < number < fails:
            number = (fits + fails) // 2
    return select_most_common(counted, lengths, fits)


def most_common(levels: Sequence[Level], length: int, number: int) -> Nodes:
    """The `number` most common n-grams of one length, their trees selected by prefix counts.

    Ties are broken by the order of tokens.
    """
    level = levels[length - 1]
    wanted = np.zeros(len(level), dtype=np.bool_)
    wanted[np.argsort(-level.counts, kind="stable")[:number]] = True
    roots = ancestors(levels, length)
    counts = {
        deep: np.where(wanted[roots[deep]], levels[deep - 1].counts, -1).astype(np.float32)
        for deep in depths(levels, length)
    }
    return limit_trees(candidates(levels, length, counts, 0.0))


class LongestMatch:
    """The paper's way of drafting: the tree of the longest n-gram found, the others ignored."""

    name = "crest"
    top_tokens_needed = 0

    def __init__(self, reader: CrestReader) -> None:
        self._reader = reader

    def begin(self, context: Context) -> None:
        """Reopen the store if it was replaced."""
        self._reader.refresh()

    def propose(self, context: Context, limit: int) -> DraftTree:
        """The most common paths of the longest match."""
        return rank(self._reader.lookup(context.tokens)[:1], context.tokens, limit)

    def observe(self, step: Step) -> None:
        """Nothing to learn: the store is built from finished answers."""


OVERSAMPLING = 4
"""The drafter is asked for this multiple of the shape's rows, to choose from."""


@dataclass(frozen=True, slots=True)
class DraftShape:
    """At most `drafts` leaves of a tree, with paths of at most `length` tokens."""

    drafts: int
    length: int

    def __str__(self) -> str:
        return f"{self.drafts}x{self.length}"

    @property
    def rows(self) -> int:
        """Most draft tokens; fewer if drafts share a prefix."""
        return self.drafts * self.length


class ShapedDrafter:
    """A drafter whose drafts are cut to a shape."""

    def __init__(self, drafter: Drafter, shape: DraftShape) -> None:
        self.name = drafter.name
        self.top_tokens_needed = drafter.top_tokens_needed
        self._drafter = drafter
        self._shape = shape

    def begin(self, context: Context) -> None:
        """A new answer starts."""
        self._drafter.begin(context)

    def propose(self, context: Context, limit: int) -> DraftTree:
        """The drafter's likeliest paths, cut to the shape, whatever `limit` is."""
        return cut(self._drafter.propose(context, OVERSAMPLING * self._shape.rows), self._shape)

    def observe(self, step: Step) -> None:
        """Pass the step on to the drafter."""
        self._drafter.observe(step)


def cut(tree: DraftTree, shape: DraftShape) -> DraftTree:
    """Rows of `tree` in order of their paths' probability, while they fit into `shape`."""
    paths = tree.probabilities.copy()
    for row in range(1, len(tree)):
        paths[row] *= paths[tree.parents[row]]
    depths, leaves = tree.depths(), 0
    kept: list[int] = []
    open_at, tips = {0}, set[int]()
    for row in by_probability(tree, paths, chains_only=False):
        parent = tree.parents[row]
        lengthens = parent in tips
        if parent not in open_at or depths[row] > shape.length:
            continue
        if not lengthens and leaves == shape.drafts:
            continue
        leaves += not lengthens
        tips.discard(parent)
        tips.add(row)
        open_at.add(row)
        kept.append(row)
    return prune(tree, kept)

"""Looking n-grams up in CREST, on the decoding thread.

A lookup is one statement that reads, for each n, a small page of each tier by primary key. The
pages of a small tier, such as one of recent chats, are all held in memory instead; apart from that,
memory does not grow with the store. The reader has a bounded cache of decoded trees that join both
tiers (`JoinedEntry`). It sees commits of other connections at the next `refresh`, or within
`LOOKUPS_PER_REFRESH` lookups.

Two joined tiers draft as well as one rebuilt store: 1.852 and 1.855 tokens per step with 64 rows,
1.842 with the base tier alone (Llama-3.1-8B, 486 k tokens of history in it and 30 k in the delta).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

from datastores.crest.format import CrestEntry, decode, find, hashes, place
from datastores.crest.store import unpack_ids
from datastores.storage.integrity import damage_error, translate_errors
from datastores.storage.reader import StoreReader

MAX_CACHED_ENTRIES = 4096
"""Most decoded trees, of some 2 KiB each."""
CACHE_KIB = 8 * 1024
"""SQLite's own page cache for this connection."""
MAX_RESIDENT_PAGES = 2048
"""A tier of at most this size is held in memory, in up to 0.7 MB: between two passes of a model,
reading pages takes 0.13 ms a lookup; reading all of these at once takes 2 ms."""
LOOKUPS_PER_REFRESH = 16
"""Lookups between two checks for commits, which are statements of their own."""


@dataclass(frozen=True, slots=True)
class Tier:
    """One tier, as needed to find and decode its entries.

    Attributes:
        resident: all its pages by number; None if they are read one by one.
    """

    longest: int
    pages: int
    entries: int
    ids: list[int]
    resident: dict[int, bytes] | None


class CrestReader(StoreReader):
    """The reading side of one store."""

    def __init__(self, path: Path) -> None:
        self._cache: dict[int, CrestTree | None] = {}
        self._tiers: dict[str, Tier] = {}
        self._longest = 0
        self._lookups = 0
        super().__init__(path)

    def refresh(self) -> None:
        """Notice commits, and another file in place of the store."""
        super().refresh()
        with translate_errors(self.path):
            self._notice_commits()

    @property
    def entries(self) -> int:
        """Number of n-grams in the store."""
        self.refresh()
        return sum(tier.entries for tier in self._tiers.values())

    def lookup(self, context: Sequence[int]) -> list[CrestTree]:
        """The trees of the n-grams that end `context`, the longest n first."""
        self._lookups += 1
        with translate_errors(self.path):
            if self._lookups % LOOKUPS_PER_REFRESH == 0:
                self._notice_commits()
            if len(self._cache) > MAX_CACHED_ENTRIES:
                self._cache.clear()
            keys = self._cached(context)
        cache = self._cache
        return [entry for key in reversed(keys) if (entry := cache[key]) is not None]

    def _cached(self, context: Sequence[int]) -> list[int]:
        """The hashes of the n-grams that end `context`, after reading them into the cache."""
        while True:
            keys = hashes(context, self._longest)
            missing = [key for key in keys if key not in self._cache]
            try:
                if missing:
                    self._fetch(missing)
            except IndexError as error:
                # Or these are pages of a commit that was not noticed yet.
                if not self._notice_commits():
                    raise damage_error(self.path, "an n-gram without an end") from error
            else:
                return keys

    def _begin(self) -> None:
        self._version = -1
        # A flipped bit can turn a BLOB into TEXT that is not valid UTF-8.
        self._connection.text_factory = bytes
        self._connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        self._notice_commits()

    def _notice_commits(self) -> bool:
        """Reload the tiers after a commit; returns whether there was one."""
        version = self._connection.execute("PRAGMA data_version").fetchone()[0]
        if version == self._version:
            return False
        self._tiers = {
            table: Tier(row[0], row[1], row[2], unpack_ids(row[3]), self._resident(table, row[1]))
            for table, tier in (("delta_pages", "delta"), ("pages", "tiers"))
            for row in self._connection.execute(f"SELECT longest, pages, entries, ids FROM {tier}")
            if row[2]
        }
        self._longest = max((tier.longest for tier in self._tiers.values()), default=0)
        self._cache.clear()
        self._version = version
        return True

    def _resident(self, table: str, pages: int) -> dict[int, bytes] | None:
        """All pages of a small tier; None for a large one."""
        if pages > MAX_RESIDENT_PAGES:
            return None
        return dict(self._connection.execute(f"SELECT number, entries FROM {table}").fetchall())

    def _fetch(self, keys: Sequence[int]) -> None:
        """Read the entries of `keys` into the cache."""
        found: dict[int, list[CrestTree]] = {key: [] for key in keys}
        tiers = list(self._tiers.values())
        places = [[place(key, tier.pages) for key in keys] for tier in tiers]
        pages = self._pages([[number for number, _ in wanted] for wanted in places])
        for tier, wanted, held in zip(tiers, places, pages, strict=True):
            for key, (number, mark) in zip(keys, wanted, strict=True):
                page = held.get(number)
                if page is not None and (data := find(page, mark)):
                    found[key].append(decode(data, tier.ids))
        for key, entries in found.items():
            self._cache[key] = reduce(JoinedEntry, entries) if entries else None

    def _pages(self, numbers: Sequence[Sequence[int]]) -> list[dict[int, bytes]]:
        """For each tier, at least its pages with these `numbers`, by number.

        Those on disk are read in one statement: between two passes of a model, each further
        statement takes 0.05 ms.
        """
        pages = [tier.resident or {} for tier in self._tiers.values()]
        read = [index for index, tier in enumerate(self._tiers.values()) if tier.resident is None]
        if read:
            tables = list(self._tiers)
            marks = ",".join("?" * len(numbers[0]))
            sql = " UNION ALL ".join(
                f"SELECT {index}, number, entries FROM {tables[index]} WHERE number IN ({marks})"
                for index in read
            )
            wanted = [number for index in read for number in numbers[index]]
            for index, number, page in self._connection.execute(sql, wanted):
                pages[index][number] = page
        return pages


class JoinedEntry:
    """The tree of one n-gram from both tiers: all their nodes, with summed counts.

    It equals the tree counted over the texts of both, as far as each tier keeps its strings, and
    up to the rounding of counts to half octaves. The children of a row are joined on demand: a
    draft visits a few rows of trees that may have hundreds.

    Attributes:
        count, kind, tokens, probabilities: as in `CrestEntry`, for the rows known so far.
    """

    count: float
    kind: int

    def __init__(self, one: CrestTree, other: CrestTree) -> None:
        self.count = one.count + other.count
        self.kind = (one if one.count >= other.count else other).kind
        self.tokens = [0]
        self.probabilities = [1.0]
        self._one, self._other = one, other
        # Row and occurrences of each node in both trees; 0 occurrences if it is not in that one.
        self._origins = [(0, one.count, 0, other.count)]
        self._followers: dict[int, tuple[int, int]] = {}

    def followers(self, row: int) -> tuple[int, int]:
        """Rows [first, last) of a row's children."""
        if row not in self._followers:
            self._followers[row] = self._join(*self._origins[row])
        return self._followers[row]

    def _join(self, row: int, times: float, other_row: int, other_times: float) -> tuple[int, int]:
        """Join the children of a node, given by its row and occurrences in both trees."""
        below = {token: (child, n, 0, 0.0) for token, child, n in _children(self._one, row, times)}
        for token, child, n in _children(self._other, other_row, other_times):
            first, occurrences, _, _ = below.get(token, (0, 0.0, 0, 0.0))
            below[token] = (first, occurrences, child, n)
        start, total = len(self.tokens), times + other_times
        self.tokens += below
        self.probabilities += [(n + m) / total for _, n, _, m in below.values()]
        self._origins += below.values()
        return start, len(self.tokens)


CrestTree = CrestEntry | JoinedEntry


def _children(tree: CrestTree, row: int, count: float) -> Iterator[tuple[int, int, float]]:
    """Token, row and occurrences of each child of a row that occurred `count` times."""
    for child in range(*tree.followers(row)) if count else ():
        yield tree.tokens[child], child, count * tree.probabilities[child]

"""The stores that `bench crest` compares, each built from the same history.

What the paper compares (crest.txt, section 5): REST of all the history and of parts of it (figures
6 and 7); the most common n-grams of one n (figure 8) and of all n up to some maximum, equally many
of each (figure 9), drafted from by the longest match. Beside them specchat's own selection, at the
same sizes. The paper's trees are packed as specchat's are, so that only the selections differ.

Owns the list and the files. Refuses to know what is replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

from datastores.crest import SHORT, CrestStore
from datastores.crest_build import LONGEST as OWN_LONGEST
from datastores.crest_build import Built, Counted, count, paper_within, select
from datastores.crest_document import Document
from datastores.rest import RestStore, write_rest
from engines.drafters.rest import LONGEST as REST_LONGEST

LONGEST = 5
"""The paper's largest n."""
SHARES = (16, 4)
"""REST is also built of one in so many messages."""

PROMPT, RECYCLE, REST, RANKED, LONGEST_MATCH, ALL = (
    "prompt",
    "recycle",
    "rest",
    "ranked",
    "longest",
    "all",
)
"""Ways of drafting."""


@dataclass(frozen=True, slots=True)
class Case:
    """One store and one way of drafting from it.

    Attributes:
        method: prompt, recycle, rest, crest or all, as reported.
        selection: what the store holds, for people.
        way: one of the ways of drafting.
        path: the store's file or folder; None where there is none.
        sizes: bytes on disk, by the name of what is counted; REST has two.
        entries: n-grams of a CREST store, positions of a suffix array.
        longest: n of the longest n-grams looked up.
        seconds: to build it, tokenising aside.
    """

    method: str
    selection: str
    way: str
    path: Path | None = None
    sizes: tuple[tuple[str, int], ...] = (("", 0),)
    entries: int = 0
    longest: int = 0
    seconds: float = 0.0


def cases(folder: Path, history: Sequence[Document], sizes: Sequence[int]) -> Iterator[Case]:
    """Build every store in `folder`, one after the other; each is yielded as it stands.

    Every n of the paper's figures is tried at the second to fourth of `sizes`.
    """
    yield Case("prompt", "this chat", PROMPT)
    yield Case("recycle", "this chat", RECYCLE)
    for share in (*SHARES, 1):
        # Messages are told apart by digests: each share is a random one.
        part = [one for one in history if one.identity[0] % share == 0]
        yield _rest(folder, part, share)
    started = perf_counter()
    counted = count(history, max(sizes), LONGEST)
    builder = Builder(folder, counted, history, perf_counter() - started)
    for size in sizes:
        own = builder.own(size)
        yield own
        yield replace(own, method="all", way=ALL)
        if own.sizes[0][1] > size // 2:
            yield from _papers(builder, size, figures=size in (sizes[1:4] or sizes))


def _papers(builder: Builder, size: int, *, figures: bool) -> Iterator[Case]:
    """The paper's selections of one size: longest match, and ranked as specchat does."""
    ours = builder.paper(f"equal t, n<={OWN_LONGEST}", size, range(1, OWN_LONGEST + 1))
    yield ours
    yield replace(ours, way=LONGEST_MATCH)
    for longest in range(1, LONGEST + 1) if figures else ():
        if longest != OWN_LONGEST:
            upto = builder.paper(f"equal t, n<={longest}", size, range(1, longest + 1))
            yield replace(upto, way=LONGEST_MATCH)
        if longest > 1:
            single = builder.paper(f"top t, n={longest}", size, (longest,))
            yield replace(single, way=LONGEST_MATCH)


def _rest(folder: Path, history: Sequence[Document], share: int) -> Case:
    """REST, as large as its files are with four bytes for each id, and with two if they suffice."""
    sizes, seconds = [], 0.0
    small = max((int(max(one.tokens)) for one in history if len(one.tokens)), default=0) < 65535
    for width in (2, 4) if small else (4,):
        place = folder / f"rest-{share}-{width}"
        place.mkdir()
        started = perf_counter()
        write_rest(place, history, width)
        seconds = perf_counter() - started
        sizes.append((f"{width}-byte ids", RestStore(place).size()))
    selection = "all" if share == 1 else f"1/{share} of the messages"
    positions = len(RestStore(place))
    return Case("rest", selection, REST, place, tuple(sizes), positions, REST_LONGEST, seconds)


class Builder:
    """Makes CREST stores of what was counted once."""

    def __init__(
        self, folder: Path, counted: Counted, history: Sequence[Document], seconds: float
    ) -> None:
        """Build in `folder`; `seconds` were spent on counting."""
        self._folder = folder
        self._counted = counted
        self._shorts = {document.identity[:SHORT] for document in history}
        self._seconds = seconds
        self._number = 0

    def own(self, size: int) -> Case:
        """specchat's selection."""
        return self._case("worth", size, lambda room: select(self._counted, room, OWN_LONGEST))

    def paper(self, selection: str, size: int, lengths: Sequence[int]) -> Case:
        """The paper's, from n-grams of `lengths`."""
        return self._case(selection, size, lambda room: paper_within(self._counted, lengths, room))

    def _case(self, selection: str, size: int, build: Callable[[int], Built]) -> Case:
        """A store of at most `size` bytes as specchat keeps it, with what is kept of documents."""
        self._number += 1
        path = self._folder / f"crest-{self._number}.db"
        started = perf_counter()
        built = build(size - SHORT * len(self._shorts))
        with closing(CrestStore.open(path, size)) as store:
            store.replace(built, self._shorts)
        seconds = self._seconds + perf_counter() - started
        used = sum(file.stat().st_size for file in self._folder.glob(f"{path.name}*"))
        return Case(
            "crest", selection, RANKED, path, (("", used),), built.entries, built.longest, seconds
        )

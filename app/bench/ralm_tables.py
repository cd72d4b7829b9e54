"""The methods of `bench ralm`, and the paper's tables that compare them (RaLMSpec, section 6)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from app.bench.paper_stride import MAX_ACCURACY, PaperStride
from app.cli.output import table
from engines.ralm.guess_accuracy import PRIOR_ACCURACY
from engines.ralm.scheduler import (
    PAPER_STRIDE,
    FixedStride,
    OptimalStride,
    StrideScheduler,
)
from engines.ralm.speculative import PREFETCH, PREFETCH_FAR


@dataclass(frozen=True, slots=True)
class RalmMethod:
    """How passages are chosen.

    Attributes:
        speculates: false for RaLMSeq, which ignores the rest.
        prefetch: passages of each query put into the cache.
        stride: fixed speculation stride; 0 for OS3.
        papers: whether OS3 is the paper's own; otherwise ours.
        prior_accuracy: the accuracy that OS3 assumes at first.
    """

    speculates: bool = True
    prefetch: int = 1
    stride: int = PAPER_STRIDE
    asynchronous: bool = False
    papers: bool = False
    prior_accuracy: float = PRIOR_ACCURACY

    @property
    def name(self) -> str:
        """As in the paper's tables: RaLMSpec+P(20)SA; a fixed stride that is not 3 follows: s=8."""
        if not self.speculates:
            return "RaLMSeq"
        parts = f"P({self.prefetch})" if self.prefetch > 1 else ""
        parts += "" if self.stride else f"S({MAX_ACCURACY})" if self.papers else "S"
        parts += "A" if self.asynchronous else ""
        name = f"RaLMSpec+{parts}" if parts else "RaLMSpec"
        return f"{name} s={self.stride}" if self.stride not in (0, PAPER_STRIDE) else name

    def scheduler(self) -> StrideScheduler:
        """A fresh one."""
        if self.stride:
            return FixedStride(self.stride)
        if self.papers:
            return PaperStride(asynchronous=self.asynchronous)
        return OptimalStride(asynchronous=self.asynchronous, prior_accuracy=self.prior_accuracy)


SEQUENTIAL = RalmMethod(speculates=False)
FULL = RalmMethod(prefetch=PREFETCH, stride=0, asynchronous=True)
PLAIN = "none"
"""The name of the set without drafters."""
SUBSETS = {
    ("P" * prefetches + "S" * schedules + "A" * overlaps): RalmMethod(
        prefetch=PREFETCH if prefetches else 1,
        stride=0 if schedules else PAPER_STRIDE,
        asynchronous=overlaps,
    )
    for prefetches, schedules, overlaps in product((False, True), repeat=3)
}
"""By the letters of what is switched on."""


@dataclass(frozen=True, slots=True)
class PaperTable:
    """A table of the paper.

    Attributes:
        figure: key of `app.bench.ralm.summarise` that its cells show.
        columns: methods by heading.
    """

    figure: str
    columns: Mapping[str, RalmMethod]


TABLES = {
    "1": PaperTable(
        "speedup",
        {f"RaLMSpec+{letters}".rstrip("+"): SUBSETS[letters] for letters in ("", *"PSA", "PSA")},
    ),
    "2": PaperTable(
        "speedup",
        {
            method.name: method
            for letters in ("P", "PSA")
            for prefetch in (PREFETCH, PREFETCH_FAR)
            for method in [replace(SUBSETS[letters], prefetch=prefetch)]
        },
    ),
    "4": PaperTable(
        "seconds",
        {
            "B": SEQUENTIAL,
            **{letters: SUBSETS[letters] for letters in (*"PSA", "PS", "SA", "PA", "PSA")},
        },
    ),
    "5": PaperTable(
        "seconds",
        {
            **{f"S={stride}": RalmMethod(stride=stride) for stride in (1, 2, 4, 8, 16)},
            "OS3": SUBSETS["S"],
            f"OS3, γ≤{MAX_ACCURACY}": RalmMethod(stride=0, papers=True),
        },
    ),
    "full": PaperTable("speedup", {FULL.name: FULL}),
}
"""By number: every subset of P, S and A as speed-ups (1) and seconds (4), prefetch sizes (2), and
strides, with 1, 16 and the paper's bound on γ added (5); the best method alone."""

Figures = Sequence[Mapping[str, object]]


def paper_tables(figures: Figures, names: Sequence[str]) -> Iterator[str]:
    """The chosen tables, with a row for each set of drafters.

    Args:
        figures: of `app.bench.ralm.summarise`.
    """
    cells = {(row["method"], row["drafters"]): row for row in figures}
    sets = list(dict.fromkeys(row["drafters"] for row in figures))
    for name in filter(str.isdigit, names):
        shown = TABLES[name]
        head = f"table {name}: {shown.figure}"
        rows = [
            {
                head: drafters,
                **{
                    label: cells[method.name, drafters][shown.figure]
                    for label, method in shown.columns.items()
                },
            }
            for drafters in sets
            if all((method.name, drafters) in cells for method in shown.columns.values())
        ]
        if rows:
            yield table(rows, {head: "", **dict.fromkeys(shown.columns, ".2f")})

"""What the names of GGUF files tell: the parts of one model, how it is quantised, what to call it.

Functions of names, for folders here and repositories elsewhere alike. Opens no file.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

SUFFIX = ".gguf"

_PART = re.compile(r"(?P<stem>.+)-(?P<part>\d{5})-of-(?P<parts>\d{5})", re.DOTALL)
_COMPANION = re.compile(r"(?i)(?<![a-z])(mmproj|imatrix)(?![a-z])")
_QUANTISATION = re.compile(
    r"(?i)(?<![a-z0-9])"
    r"((?:UD-)?(?:I?Q\d(?:_(?:K|XXS|XS|NL|S|M|L|XL|\d))*|TQ[12]_0|BF16|F16|F32|(?:MX|NV)FP4))"
    r"(?![a-z0-9])"
)


@dataclass(frozen=True, slots=True)
class Bundle:
    """The files of one model, by their names.

    Attributes:
        stem: the name without the number of the part and the suffix, folders included.
        files: names as they were given, in the order of the parts.
        missing: parts that were not given.
    """

    stem: str
    files: tuple[str, ...]
    missing: int

    @property
    def quantisation(self) -> str:
        """How the weights are stored, such as `Q4_K_M`, if the file's name tells; else empty."""
        return quantisation(PurePosixPath(self.stem).name)


def quantisation(name: str) -> str:
    """The quantisation named last in `name`, in capitals; empty where there is none."""
    found = _QUANTISATION.findall(name)
    return str(found[-1]).upper() if found else ""


def bundles(names: Iterable[str]) -> list[Bundle]:
    """Put the parts among GGUF file names, folders separated by `/`, together.

    Left out: other suffixes, and what goes with a model (image projectors, importance matrices).
    """
    parts: dict[tuple[str, int], dict[int, str]] = {}
    for name in sorted(names):
        stem, part, count = _split(name)
        if name.lower().endswith(SUFFIX) and not _COMPANION.search(PurePosixPath(stem).name):
            parts.setdefault((stem, count), {})[part] = name
    return [
        Bundle(stem, tuple(given[part] for part in sorted(given)), count - len(given))
        for (stem, count), given in parts.items()
    ]


def tags(found: Sequence[Bundle]) -> list[str]:
    """The shortest name of each bundle that tells it from the others beside it.

    The quantisation, else the file's name, else its path.
    """
    names = [PurePosixPath(bundle.stem).name for bundle in found]
    kinds, counts = Counter(bundle.quantisation for bundle in found), Counter(names)
    return [
        bundle.quantisation
        if bundle.quantisation and kinds[bundle.quantisation] == 1
        else (name if counts[name] == 1 else bundle.stem)
        for bundle, name in zip(found, names, strict=True)
    ]


def _split(name: str) -> tuple[str, int, int]:
    """(stem, number of the part, number of parts)."""
    stem = name[: -len(SUFFIX)]
    match = _PART.fullmatch(stem)
    if match and 1 <= int(match["part"]) <= int(match["parts"]):
        return match["stem"], int(match["part"]), int(match["parts"])
    return stem, 1, 1

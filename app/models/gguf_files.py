"""GGUF files by their names: the parts of one model, its quantisation, and its name.

Functions of names serve folders on this machine and repositories on the hub. No file is opened.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from engines.llama.gguf import HEADS_NAME

GGUF_SUFFIX = ".gguf"

_PART = re.compile(r"(?P<stem>.+)-(?P<part>\d{5})-of-(?P<parts>\d{5})", re.DOTALL)
_COMPANION = re.compile(r"(?i)(?<![a-z])(mmproj|imatrix)(?![a-z])")
_QUANTISATION = re.compile(
    r"(?i)(?<![a-z0-9])"
    r"((?:UD-)?(?:I?Q\d(?:_(?:K|XXS|XS|NL|S|M|L|XL|\d))*|TQ[12]_0|BF16|F16|F32|(?:MX|NV)FP4))"
    r"(?![a-z0-9])"
)


@dataclass(frozen=True, slots=True)
class PartGroup:
    """The files of one model, by their names.

    Attributes:
        stem: the name with its folders, without the number of the part and the suffix.
        files: the given names, in the order of the parts.
        missing: number of parts that were not given.
    """

    stem: str
    files: tuple[str, ...]
    missing: int

    @property
    def quantisation(self) -> str:
        """The quantisation, such as `Q4_K_M`; empty if the file's name has none."""
        return quantisation(PurePosixPath(self.stem).name)


def quantisation(name: str) -> str:
    """The last quantisation in `name`, in upper case; empty if there is none."""
    found = _QUANTISATION.findall(name)
    return str(found[-1]).upper() if found else ""


def group_parts(names: Iterable[str]) -> list[PartGroup]:
    """Group GGUF file names, with folders separated by `/`, by model.

    Other files and companions of models (image projectors, importance matrices, prediction heads)
    are left out.
    """
    parts: dict[tuple[str, int], dict[int, str]] = {}
    for name in sorted(names):
        stem, part, count = _split(name)
        if name.lower().endswith(GGUF_SUFFIX) and not _is_companion(PurePosixPath(stem).name):
            parts.setdefault((stem, count), {})[part] = name
    return [
        PartGroup(stem, tuple(given[part] for part in sorted(given)), count - len(given))
        for (stem, count), given in parts.items()
    ]


def _is_companion(stem: str) -> bool:
    return bool(_COMPANION.search(stem) or HEADS_NAME.search(stem))


def tags(found: Sequence[PartGroup]) -> list[str]:
    """A unique name for each group: the quantisation, else the file's name, else its path."""
    names = [PurePosixPath(group.stem).name for group in found]
    kinds, counts = Counter(group.quantisation for group in found), Counter(names)
    return [
        group.quantisation
        if group.quantisation and kinds[group.quantisation] == 1
        else (name if counts[name] == 1 else group.stem)
        for group, name in zip(found, names, strict=True)
    ]


def _split(name: str) -> tuple[str, int, int]:
    """Stem, number of the part, and number of parts."""
    stem = name[: -len(GGUF_SUFFIX)]
    match = _PART.fullmatch(stem)
    if match and 1 <= int(match["part"]) <= int(match["parts"]):
        return match["stem"], int(match["part"]), int(match["parts"])
    return stem, 1, 1


GIVEN_BY_PATH = "a file"
"""The place of a model that was given by its path."""
MAX_DEPTH = 8
"""Levels of folders that are searched."""


@dataclass(frozen=True, slots=True)
class ModelCandidate:
    """A probable model, whose file was not opened.

    Attributes:
        name: the name that a person types.
        place: the program it belongs to.
        files: its parts in order; the first is the one to open.
        missing: number of missing parts.
    """

    name: str
    place: str
    files: tuple[Path, ...]
    missing: int = 0


@dataclass(frozen=True, slots=True)
class SkippedModel:
    """A folder or manifest that could not be read, and why."""

    path: Path
    reason: str


def models_in_folder(folder: Path, place: str) -> Iterator[ModelCandidate | SkippedModel]:
    """The models below `folder`, as `FOLDERS:QUANTISATION`; those in `folder` itself by file."""
    by_folder: dict[Path, list[Path]] = {}
    for found in gguf_files(folder):
        if isinstance(found, SkippedModel):
            yield found
        else:
            by_folder.setdefault(found.parent, []).append(found)
    for parent, files in by_folder.items():
        if parent == folder:
            yield from candidates_of(folder, files, place, "")
        else:
            yield from candidates_of(parent, files, place, parent.relative_to(folder).as_posix())


def candidates_of(root: Path, files: list[Path], place: str, name: str) -> Iterator[ModelCandidate]:
    """The models among `files` below `root`, as `name:tag`; as their stems if `name` is empty."""
    found = group_parts(file.relative_to(root).as_posix() for file in files)
    for group, tag in zip(found, tags(found), strict=True):
        paths = tuple(root / file for file in group.files)
        yield ModelCandidate(f"{name}:{tag}" if name else group.stem, place, paths, group.missing)


def model_parts(path: Path) -> tuple[Path, ...]:
    """All files of the model that `path` belongs to; a folder stands for itself."""
    if path.is_dir():
        return (path,)
    siblings = list_folder(path.parent)
    names = [] if isinstance(siblings, SkippedModel) else [file.name for file in siblings]
    groups = (group.files for group in group_parts(names) if path.name in group.files)
    return tuple(path.parent / name for name in next(groups, (path.name,)))


def gguf_files(folder: Path) -> Iterator[Path | SkippedModel]:
    """Every GGUF file below `folder`, by name; links are followed, each folder is visited once."""
    yield from _walk(folder, MAX_DEPTH, set())


def list_folder(folder: Path) -> list[Path] | SkippedModel:
    """The entries of `folder`, by name; empty if there is no such folder."""
    try:
        with os.scandir(folder) as entries:
            return sorted(Path(entry.path) for entry in entries)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        return SkippedModel(folder, error.strerror or str(error))


def _walk(folder: Path, depth: int, entered: set[tuple[int, int]]) -> Iterator[Path | SkippedModel]:
    entries = list_folder(folder)
    if isinstance(entries, SkippedModel):
        yield entries
        return
    if not entries or not depth or not _enter(folder, entered):
        return
    for path in entries:
        if path.name.startswith("."):
            continue
        # os.path returns False for a broken link or a loop, where pathlib raises.
        if os.path.isdir(path):
            yield from _walk(path, depth - 1, entered)
        elif path.name.lower().endswith(GGUF_SUFFIX) and os.path.isfile(path):
            yield path


def _enter(folder: Path, entered: set[tuple[int, int]]) -> bool:
    """Record a visit of the folder; False if it was visited before, under any path."""
    status = folder.stat()
    identity = (status.st_dev, status.st_ino)
    known = identity in entered
    entered.add(identity)
    return not known

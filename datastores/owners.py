"""Owners: the chat and the documents that a recorded text or answer belongs to.

What belongs to several, as an answer from notes to its chat and to the documents it was given, is
erased with any of them. Its owner is their names joined by a space, the chat first; no name has a
space.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable


def joined(owners: Iterable[str]) -> str:
    """The owner that stands for all `owners`."""
    return " ".join(dict.fromkeys(owners))


def each(owner: str) -> list[str]:
    """The owners that `owner` stands for."""
    return owner.split(" ")


def belongs(recorded: str, owner: str) -> bool:
    """Whether what was recorded under `recorded` is erased with `owner`: with everything that
    `owner` stands for."""
    return set(each(owner)) <= set(each(recorded))


def is_lapsed(recorded: str, prefixes: tuple[str, ...], wanted: Collection[str]) -> bool:
    """Whether one of the owners of `recorded` begins with one of `prefixes` and is not `wanted`."""
    return any(one.startswith(prefixes) and one not in wanted for one in each(recorded))

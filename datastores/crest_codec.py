"""The bytes of CREST: how trees become entries and entries become pages.

An entry is the tree of continuations of one n-gram. Its nodes stand in level order, so that parents
come before their children and no mask or parent list has to be kept:

    entry   head node…
    head    1 byte: kind of source (3 bits), count of the n-gram (5 bits, in half octaves)
            1 byte: children of the root
    node    1 byte: P(node | its parent) in half octaves (4 bits), number of children (4 bits; 15:
            the number follows in a byte of its own)
            1–5 bytes: token, as its rank among the store's tokens by frequency, 7 bits to a byte
    (and a zero byte where needed to make the length even)

Entries share pages of some hundred bytes, so that the key of an entry costs two bytes and not the
sixteen of a row of its own. The page of an n-gram follows from its hash, and within the page two
more bytes of the hash tell entries apart:

    page    1 byte: number of entries; then 2 bytes each, the marks, ascending; 1 byte each, half
            the lengths; then the entries

A lookup that meets a wrong entry by chance (one in some thousands) gets a bad draft, no bad answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MASK = (1 << 64) - 1
MULTIPLIER = 0xD6E8FEB86659FD93
SEED = 0x9E3779B97F4A7C15

MARK_BITS = 16
MOST_ENTRIES = 255
"""Entries on one page."""
MANY = 15
"""In a node's byte: the number of children follows."""

Bytes = NDArray[np.uint8]
Wide = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Entry:
    """The tree of one n-gram, in level order; row 0 is the n-gram itself.

    Attributes:
        count: how often the n-gram occurred, to within a fifth.
        kind: the kind of source most of its occurrences came from.
        tokens: token id of each row; the root's is 0 and means nothing.
        chances: P(row | its parent occurred), of all occurrences; 1 for the root.
        children: rows [first, last) of each row's children.
    """

    count: float
    kind: int
    tokens: list[int]
    chances: list[float]
    children: list[tuple[int, int]]


def hashes(context: Sequence[int], longest: int) -> list[int]:
    """The hashes of the last 1, 2, … `longest` tokens of `context`, as far as it has them."""
    value, result = SEED, []
    for token in context[: -longest - 1 : -1]:
        value = ((value ^ token) * MULTIPLIER) & MASK
        value ^= value >> 29
        result.append(value)
    return result


def hash_columns(columns: Sequence[NDArray[np.uint32]]) -> Wide:
    """The hashes of many n-grams of one length; column i holds their i-th tokens."""
    value = np.full(len(columns[0]), SEED, dtype=np.uint64)
    for column in reversed(columns):
        value = (value ^ column.astype(np.uint64)) * np.uint64(MULTIPLIER)
        value ^= value >> np.uint64(29)
    return value


def place(value: int, pages: int) -> tuple[int, int]:
    """Page and mark of the n-gram whose hash is `value`, in a store of so many pages."""
    return (value >> MARK_BITS) % pages, value & (1 << MARK_BITS) - 1


def count_level(counts: NDArray[np.int32]) -> NDArray[np.int64]:
    """Counts in half octaves, 0 to 31: 1, 1.4, 2, 2.8, 4…"""
    levels: NDArray[np.int64] = np.rint(2 * np.log2(counts)).astype(np.int64)
    return levels.clip(0, 31)


def chance_level(chances: NDArray[np.float64]) -> NDArray[np.int64]:
    """Probabilities in half octaves, 0 to 15: 1, 0.7, 0.5, 0.35…"""
    levels: NDArray[np.int64] = np.rint(-2 * np.log2(chances)).astype(np.int64)
    return levels.clip(0, 15)


COUNTS = tuple(2.0 ** (level / 2) for level in range(32))
CHANCES = tuple(2.0 ** (-level / 2) for level in range(16))


def decode(data: bytes, ids: Sequence[int]) -> Entry:
    """The tree in `data`; `ids` gives the token id of each rank. IndexError if it is damaged."""
    head = data[0]
    tokens, chances = [0], [1.0]
    children = [(1, 1 + data[1])]
    at, last = 2, 1 + data[1]
    while len(tokens) < last:
        node = data[at]
        byte = data[at + 1]
        at += 2
        number = node & 15
        if number == MANY:
            number, byte = byte, data[at]
            at += 1
        rank = byte & 127
        shift = 7
        while byte > 127:
            byte = data[at]
            at += 1
            rank |= (byte & 127) << shift
            shift += 7
        tokens.append(ids[rank])
        chances.append(CHANCES[node >> 4])
        children.append((last, last + number))
        last += number
    return Entry(COUNTS[head & 31], head >> 5, tokens, chances, children)


def find(page: bytes, mark: int) -> bytes:
    """The entry with `mark` on `page`; empty if there is none."""
    number = page[0]
    wanted = mark.to_bytes(2, "little")
    last = 1 + 2 * number
    at = page.find(wanted, 1, last)
    while at >= 0 and not at & 1:
        at = page.find(wanted, at + 1, last)
    if at < 0:
        return b""
    index = at >> 1
    start = last + number + 2 * sum(page[last : last + index])
    return page[start : start + 2 * page[last + index]]

"""Counts what a regular expression costs: the characters that a backtracking matcher looks at.

A small matcher over the parse tree of `re`, in the order in which `re` itself tries things. It
knows what the patterns of `datastores.redaction` are made of, and raises on anything else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

_PARSER = import_module("re._parser")
_ASCII_WORD = re.compile(r"\w")
_SPACE = re.compile(r"\s")
_WIDTH_ONE = {"LITERAL", "NOT_LITERAL", "IN", "ANY"}

Node = tuple[Any, Any]


class StepCounter:
    """One pattern over one text.

    Attributes:
        steps: characters looked at so far.
    """

    def __init__(self, pattern: re.Pattern[str], text: str) -> None:
        self.steps = 0
        self._text = text
        self._nodes: Sequence[Node] = _PARSER.parse(pattern.pattern, pattern.flags).data
        self._any_case = bool(pattern.flags & re.IGNORECASE)

    def search_all(self) -> list[tuple[int, int]]:
        """The spans of all matches, as `finditer` finds them."""
        found, at = [], 0
        while at <= len(self._text):
            end = next(self._ends(self._nodes, at), -1)
            if end >= 0:
                found.append((at, end))
            at = end if end > at else at + 1
        return found

    def _ends(self, nodes: Sequence[Node], at: int) -> Iterator[int]:
        """Where `nodes` may end if they begin at `at`, in the order in which they are tried."""
        if not nodes:
            yield at
            return
        for end in self._ends_of(nodes[0], at):
            yield from self._ends(nodes[1:], end)

    def _ends_of(self, node: Node, at: int) -> Iterator[int]:
        kind, value = str(node[0]), node[1]
        if kind in _WIDTH_ONE:
            if self._fits(node, at):
                yield at + 1
        elif kind == "AT":
            yield from [at] * self._is_boundary(str(value), at)
        elif kind == "SUBPATTERN":
            yield from self._ends(value[3].data, at)
        elif kind == "BRANCH":
            for branch in value[1]:
                yield from self._ends(branch.data, at)
        elif kind in ("ASSERT", "ASSERT_NOT"):
            yield from [at] * (self._looks(value, at) == (kind == "ASSERT"))
        elif kind in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            low, high, inner = value
            yield from self._repeated(kind, low, high, inner, at)
        else:
            raise NotImplementedError(kind)

    def _looks(self, value: tuple[int, Any], at: int) -> bool:
        """Whether what is looked for ahead, or behind, is there."""
        direction, nodes = value
        width = nodes.getwidth()[1] if direction < 0 else 0
        return at >= width and next(self._ends(nodes.data, at - width), -1) >= 0

    def _repeated(self, kind: str, low: int, high: int, inner: Any, at: int) -> Iterator[int]:
        ends = [at]
        while len(ends) <= high:
            end = next(self._ends(inner.data, ends[-1]), -1)
            if end <= ends[-1]:
                break
            ends.append(end)
            if kind == "MIN_REPEAT" and len(ends) - 1 > low:
                yield ends[-2]
        ends = ends[low:]
        if kind == "MIN_REPEAT":
            yield from ends[-1:]
        elif kind == "MAX_REPEAT":
            yield from reversed(ends)
        else:
            yield from ends[-1:]

    def _fits(self, node: Node, at: int) -> bool:
        if at >= len(self._text):
            return False
        self.steps += 1
        own = self._text[at]
        cases = {own, own.lower(), own.upper()} if self._any_case else {own}
        return any(_is_one(node, case) for case in cases)

    def _is_boundary(self, kind: str, at: int) -> bool:
        assert kind == "AT_BOUNDARY", kind
        sides = (self._text[max(0, at - 1) : at], self._text[at : at + 1])
        before, after = (bool(_ASCII_WORD.match(side)) for side in sides)
        return before != after


def _is_one(node: Node, character: str) -> bool:
    """Whether a node of width one fits."""
    kind, value = str(node[0]), node[1]
    match kind:
        case "LITERAL":
            return character == chr(value)
        case "NOT_LITERAL":
            return character != chr(value)
        case "ANY":
            return character != "\n"
        case "RANGE":
            return bool(value[0] <= ord(character) <= value[1])
        case "CATEGORY":
            category = _SPACE if str(value) == "CATEGORY_SPACE" else _ASCII_WORD
            return bool(category.match(character))
        case "IN":
            negated = str(value[0][0]) == "NEGATE"
            return negated != any(_is_one(one, character) for one in value[negated:])
    raise NotImplementedError(kind)

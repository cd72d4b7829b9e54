"""Questions that have nothing to do with a terminal, and the answers that say so.

Owns the form of ``material/outside.txt``: templates with slots, so that a few hundred lines make
many thousand questions, and nonsense that no line holds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from assets.recipe import read_lines

_SLOT = re.compile(r"\{(\w+)\}")
_KEYS = ("asdfghjkl", "qwertyuiop", "zxcvbnm", "1234567890", "!?#", "aeiou")
_NONSENSE_SHARE = 0.06


@dataclass(frozen=True)
class Outside:
    """Templates of questions, what fills their slots, and answers that fit all of them."""

    templates: Sequence[str]
    slots: Mapping[str, Sequence[str]]
    answers: Sequence[str]

    def question(self, rng: Random) -> str:
        """A question outside the subject, or nonsense."""
        if rng.random() < _NONSENSE_SHARE:
            return _nonsense(rng)
        template = rng.choice(self.templates)
        text = _SLOT.sub(lambda match: rng.choice(self.slots[match[1]]), template)
        return text[:1].upper() + text[1:] if rng.random() < 0.4 else text

    def answer(self, rng: Random) -> str:
        """One of the answers."""
        return rng.choice(self.answers)


def read_outside() -> Outside:
    """The hand-written questions and answers."""
    lines = read_lines("outside.txt")
    slots = {}
    for line in lines:
        if line.startswith("@"):
            name, _, values = line[1:].partition(":")
            slots[name] = [value.strip() for value in values.split(",")]
    answers = [line[2:] for line in lines if line.startswith("= ")]
    templates = [line for line in lines if not line.startswith(("@", "= "))]
    return Outside(templates, slots, answers)


def _nonsense(rng: Random) -> str:
    """What a cat types: letters of one row of the keyboard, in one to four words."""
    words = []
    for _ in range(rng.randint(1, 4)):
        row = rng.choice(_KEYS)
        words.append("".join(rng.choice(row) for _ in range(rng.randint(2, 9))))
    return " ".join(words)

"""Questions unrelated to the terminal, and the refusals that answer them.

They come from ``material/outside.txt``, in part as templates with slots, so that each line makes
many questions; nonsense is generated.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from random import Random

from assets.recipe import read_lines

_SLOT = re.compile(r"\{(\w+)\}")
_KEYS = ("asdfghjkl", "qwertyuiop", "zxcvbnm", "1234567890", "!?#", "aeiou")
_NONSENSE_SHARE = 0.06
_TEMPLATE_SHARE = 0.5
"""The share of questions with slots, which are fewer than those without and bring more words."""


@dataclass(frozen=True)
class Outside:
    """Questions with and without slots, the slots' values, and answers that fit any question."""

    templates: Sequence[str]
    sentences: Sequence[str]
    slots: Mapping[str, Sequence[str]]
    answers: Sequence[str]

    def question(self, rng: Random) -> str:
        """A question outside the subject, or nonsense."""
        if rng.random() < _NONSENSE_SHARE:
            return _nonsense(rng)
        template = rng.choice(self.templates if rng.random() < _TEMPLATE_SHARE else self.sentences)
        text = _SLOT.sub(lambda match: rng.choice(self.slots[match[1]]), template)
        return text[:1].upper() + text[1:] if rng.random() < 0.4 else text

    def answer(self, rng: Random) -> str:
        """One of the answers."""
        return rng.choice(self.answers)


@cache
def read_outside() -> Outside:
    """Read the hand-written questions and answers."""
    lines = read_lines("outside.txt")
    slots = {}
    for line in lines:
        if line.startswith("@"):
            name, _, values = line[1:].partition(":")
            slots[name] = [value.strip() for value in values.split(",")]
    answers = [line[2:] for line in lines if line.startswith("= ")]
    questions = [line for line in lines if not line.startswith(("@", "= "))]
    templates = [line for line in questions if _SLOT.search(line)]
    sentences = [line for line in questions if not _SLOT.search(line)]
    return Outside(templates, sentences, slots, answers)


def _nonsense(rng: Random) -> str:
    """Letters of one keyboard row, in one to four words."""
    words = []
    for _ in range(rng.randint(1, 4)):
        row = rng.choice(_KEYS)
        words.append("".join(rng.choice(row) for _ in range(rng.randint(2, 9))))
    return " ".join(words)

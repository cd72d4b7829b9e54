"""Word translations from texts to questions, such as "delete" for "remove".

A line of the file is a word of questions: `delet 412 delet:3100 remov:2200`. First comes its share
of all words in questions, in millionths; then words of texts, each with the probability that a
question about a text with that word uses the first word for it, in ten-thousandths. Words are
stems, as in the word index. `assets/recipe` learns them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from datastores.errors import StoreError
from datastores.passages.word_counts import key_of

TRANSLATIONS_FILE = "word-translations.txt"
"""The shipped file in `assets`."""
COMMENT = "#"
HEADING = (
    "Words of questions, their share in millionths, "
    "and words of texts that they stand for, with their chances in ten-thousandths."
)
SHARES, CHANCES = 1_000_000, 10_000
"""The units of the numbers in the file."""


@dataclass(frozen=True, slots=True)
class Translation:
    """A word of questions.

    Attributes:
        share: its share of all words in questions.
        chances: key (`word_counts.key_of`) of a text's word → probability of this word in a
            question about it.
    """

    share: float = 0.0
    chances: Mapping[int, float] = field(default_factory=dict)


class Translations:
    """The translations of a file; a line is parsed when its word is looked up, as few are."""

    def __init__(self, lines: Mapping[str, str] | None = None, path: Path = Path()) -> None:
        """Args:
        lines: word of questions → the rest of its line.
        path: their file, for errors.
        """
        self._lines = lines or {}
        self._path = path

    @classmethod
    def read(cls, path: Path) -> Translations:
        """Read the file `path`.

        Raises:
            StoreError: it cannot be read.
        """
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, ValueError) as error:
            raise _damaged(path, error) from error
        split = (line.partition(" ") for line in lines if not line.startswith(COMMENT))
        return cls({word: rest for word, _, rest in split}, path)

    def of(self, word: str) -> Translation:
        """The translation of a stem; empty if it is unknown.

        Raises:
            StoreError: its line is malformed.
        """
        line = self._lines.get(word)
        if line is None:
            return Translation()
        try:
            share, *others = line.split()
            pairs = (each.rpartition(":") for each in others)
            chances = {key_of(other): int(chance) / CHANCES for other, _, chance in pairs}
            return Translation(int(share) / SHARES, chances)
        except ValueError as error:
            raise _damaged(self._path, error) from error

    def expansions(self, word: str, limit: int) -> list[str]:
        """The `limit` words of texts that `word`, a stem, stands for most often, without itself."""
        entries = self._lines.get(word, "").split()[1:]
        others = (entry.rpartition(":")[0] for entry in entries)
        return [other for other in others if other != word][:limit]


def _damaged(path: Path, error: Exception) -> StoreError:
    return StoreError(f"{path} is damaged ({error}): reinstall specchat")


def to_lines(words: Iterable[tuple[str, float, Mapping[str, float]]]) -> dict[str, str]:
    """Word → the rest of its line, from each stem, its share and its chances, likeliest first.

    Chances that round to 0 are left out, and so are words without others.
    """
    lines = {}
    for word, share, chances in sorted(words):
        rounded = ((other, round(CHANCES * chance)) for other, chance in chances.items())
        entries = [f"{other}:{chance}" for other, chance in rounded if chance]
        if entries:
            lines[word] = " ".join((str(round(SHARES * share)), *entries))
    return lines


def write_translations(path: Path, lines: Mapping[str, str]) -> None:
    """Write the lines from `to_lines`."""
    text = [f"{COMMENT} {HEADING}", *(f"{word} {line}" for word, line in lines.items())]
    path.write_text("\n".join(text) + "\n", encoding="utf-8")

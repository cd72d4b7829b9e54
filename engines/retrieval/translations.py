"""Which words of questions stand for which words of texts: "delete" for "remove".

Owns the file in which the translation probabilities are kept, a word of questions a line:
`delet 412 delet:3100 remov:2200`. First its share of all words in questions, in millionths; then
words of texts, each with the chance that a question about a text with that word uses the first word
for it, in ten-thousandths. Words are stems, as in the word index. Refuses to know how they are
learned (`assets/recipe`) and how they add up to a score (`question_likelihood`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from datastores.errors import StoreError
from datastores.passages.word_counts import key_of

TRANSLATIONS_FILE = "word-translations.txt"
"""Of the shipped ones, in `assets`."""
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
        share: of all words in questions.
        chances: by key (see `word_counts.key_of`) of a text's word, the chance of this word in a
            question for it.
    """

    share: float = 0.0
    chances: Mapping[int, float] = field(default_factory=dict)


class Translations:
    """The known ones, by word. A line is parsed when its word is asked for: few of them are."""

    def __init__(self, lines: Mapping[str, str] | None = None, path: Path = Path()) -> None:
        """Args:
        lines: by word of questions the rest of its line.
        path: of the file that they are from.
        """
        self._lines = lines or {}
        self._path = path

    @classmethod
    def read(cls, path: Path) -> Translations:
        """Those in the file `path`.

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
        """The translation of a stem; one without chances if it is unknown.

        Raises:
            StoreError: its line has another form.
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

    def expansions(self, word: str, most: int) -> list[str]:
        """The words of texts that `word`, a stem, stands for most often; itself left out."""
        entries = self._lines.get(word, "").split()[1:]
        others = (entry.rpartition(":")[0] for entry in entries)
        return [other for other in others if other != word][:most]


def _damaged(path: Path, error: Exception) -> StoreError:
    return StoreError(f"{path} is damaged ({error}): reinstall specchat")


def to_lines(words: Iterable[tuple[str, float, Mapping[str, float]]]) -> dict[str, str]:
    """Words in the file's form: each given as a stem, its share and the chances, the most frequent
    pairs first. Chances that round to nothing are left out, and words that have no others."""
    lines = {}
    for word, share, chances in sorted(words):
        rounded = ((other, round(CHANCES * chance)) for other, chance in chances.items())
        entries = [f"{other}:{chance}" for other, chance in rounded if chance]
        if entries:
            lines[word] = " ".join((str(round(SHARES * share)), *entries))
    return lines


def write_translations(path: Path, lines: Mapping[str, str]) -> None:
    """Write what `to_lines` made."""
    text = [f"{COMMENT} {HEADING}", *(f"{word} {line}" for word, line in lines.items())]
    path.write_text("\n".join(text) + "\n", encoding="utf-8")

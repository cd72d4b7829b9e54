"""Words that ask for others: who writes "delete" may mean a text that says "remove".

Owns the file in which they are kept, one word a line: `delet remov:22 rm:10`, a question's word and
the words of texts that answer it, in the form of the word index (stems), each with the chance in
percent that it is what was asked for. Refuses to know how they are learned (`assets/recipe`) and
what they are worth for a ranking (`reranking`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from datastores.errors import StoreError
from datastores.passages.word_counts import key_of

ASSOCIATIONS_FILE = "word-associations.txt"
"""Of the shipped ones, in `assets`."""
COMMENT = "#"


@dataclass(frozen=True, slots=True)
class Associations:
    """Associated words by the key of a question's word; see `word_counts.key_of`.

    The words are stems, their weights between 0 and 1.
    """

    by_key: Mapping[int, Mapping[str, float]] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Associations:
        """Those in the file `path`.

        Raises:
            StoreError: it cannot be read, or has another form.
        """
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
            words = (line.split() for line in lines if line and not line.startswith(COMMENT))
            return cls({key_of(word): _weights(others) for word, *others in words})
        except (OSError, ValueError) as error:
            raise StoreError(f"{path} is damaged ({error}): reinstall specchat") from error

    def of(self, key: int) -> Mapping[str, float]:
        """The words associated with the word `key`."""
        return self.by_key.get(key, {})


def _weights(entries: Iterable[str]) -> dict[str, float]:
    pairs = (entry.rpartition(":") for entry in entries)
    return {word: int(percent) / 100 for word, _, percent in pairs}


def write_associations(path: Path, heading: str, words: Mapping[str, Mapping[str, float]]) -> None:
    """Write `words` (stems, with the weights of others, best first) below `heading`, in the file's
    form."""
    lines = [f"{COMMENT} {heading}"]
    for word, others in sorted(words.items()):
        entries = (f"{other}:{round(100 * weight)}" for other, weight in others.items())
        lines.append(" ".join((word, *entries)))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")

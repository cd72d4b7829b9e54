"""What was imported, with what is known of it beside the library: its tokens and when it came."""

from __future__ import annotations

from collections import defaultdict
from contextlib import closing
from dataclasses import dataclass

from app.importing.session import ImportRecord, read_imports
from app.indexing.corpus_index import token_counts
from app.locations import Locations
from datastores.library.documents import Source
from datastores.library.library import Library

CHARACTERS = 4
"""Of a token, roughly, where no tokenizer was asked yet."""


@dataclass(frozen=True, slots=True)
class ListedSource:
    """A source.

    Attributes:
        tokens: of its texts, each counted once; a guess from their length unless `counted`.
        note: when it was imported last; None where that is not known.
    """

    source: Source
    tokens: int
    counted: bool
    note: ImportRecord | None

    @property
    def whole(self) -> bool:
        """Whether the last import of it came to its end, as far as is known."""
        return self.source.whole and (self.note is None or self.note.whole)


def listed(locations: Locations, tokenizer: str = "") -> list[ListedSource]:
    """All sources by their paths, with the tokens of the tokenizer with this fingerprint.

    Raises:
        StoreError: a store cannot be opened.
    """
    counts = token_counts(locations, tokenizer) if tokenizer else {}
    notes = read_imports(locations.imported)
    texts: defaultdict[str, list[bytes]] = defaultdict(list)
    with closing(Library.open(locations.library)) as library:
        sources = library.sources()
        for path, digest in library.source_texts():
            texts[path].append(digest)
    return [_listed(one, texts[one.path], counts, notes.get(one.path)) for one in sources]


def _listed(
    source: Source, texts: list[bytes], counts: dict[bytes, int], note: ImportRecord | None
) -> ListedSource:
    counted = all(text in counts for text in texts)
    tokens = sum(counts[text] for text in texts) if counted else source.characters // CHARACTERS
    return ListedSource(source, tokens, counted, note)

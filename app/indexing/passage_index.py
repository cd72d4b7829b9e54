"""The library as passages: updated, searched, and mapped back to files.

The passages are updated by the difference of keys, so that a changed file costs only that file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import cache
from importlib.resources import files
from pathlib import Path

from app.indexing.document_chunks import chunks_of, document_name
from app.locations import Locations, make_folder
from datastores.library.library import Library
from datastores.passages.chunks import HEADING_SEPARATOR, Chunk, split
from datastores.passages.store import PassageStore
from datastores.storage.integrity import discard_quarantined
from engines.retrieval.bm25 import Bm25Retriever
from engines.retrieval.dense import DenseRetriever
from engines.retrieval.excerpts import MIN_FIT, excerpts
from engines.retrieval.protocol import QuestionModel, ScoredPassage
from engines.retrieval.question_likelihood import AskedQuestion
from engines.retrieval.reranking import Reranker
from engines.retrieval.translations import TRANSLATIONS_FILE, Translations

MAX_PER_DOCUMENT = 2
"""Most passages of one document among the results: a third one adds little."""
OVERFETCH = 4
"""Candidates per requested passage: more, so that long documents do not dominate; not all, since
among many some share words with any question by coincidence."""
MAX_CHAT_CHUNKS = 32
"""Most chunks of a chat that are compared with passages."""
SHARING_FIT = 1.6
"""Minimum fit of a passage that shares rare words with a question, if only one item is kept: a
small model takes that item for the answer. Of 705 questions on other subjects, .925 find nothing in
7,225 tldr pages (.914 without this); of 150 about these pages, .933 find the right one (.94)."""


class Gate(Enum):
    """Which of the ranked passages are kept."""

    ALL = auto()
    MATCHING = auto()
    """Those that share a word with the query or fit it, and do not score much lower than the best.
    """
    LEADING = auto()
    """Those that may answer the query, and do not score much lower than the best."""
    RELEVANT = auto()
    """Those that fit the query, and share its words not by coincidence only."""


@dataclass(frozen=True, slots=True)
class FoundPassage:
    """A passage and where it was imported from.

    Attributes:
        file: the name of `import_path` itself, or a name within it.
        title: title of the document.
        text: key of the document in the library.
        part: number of the document's part (a chat's message), from 0.
        score: comparable within one search only.
        nearness_fit: contribution of embedding similarity to the fit.
        excerpt: the part of the content that is kept; empty for all of it.
        fit: fit of the excerpt; see `AskedQuestion.fit`.
        import_name: what the person calls the import.
        kind: of the document, as in `datastores.library.documents`.
    """

    import_path: str
    file: str
    title: str
    text: bytes
    part: int
    chunk: Chunk
    score: float
    nearness_fit: float = 0.0
    excerpt: str = ""
    fit: float = 0.0
    import_name: str = ""
    kind: str = ""

    @property
    def quoted(self) -> str:
        """The text that a model is given."""
        return self.excerpt or self.chunk.content

    @property
    def source(self) -> str:
        """Where it stands, in words for a model: the file, and the headings, of which the first may
        be its name; not sanitised."""
        name, _, rest = self.chunk.heading.partition(HEADING_SEPARATOR)
        heading = rest if name == Path(self.file).stem else self.chunk.heading
        return HEADING_SEPARATOR.join(filter(None, (self.file, heading)))

    @property
    def path(self) -> Path:
        """The file on disk, which may no longer exist."""
        import_path = Path(self.import_path)
        return import_path if import_path.name == self.file else import_path / self.file


def update(library: Library, passages: PassageStore) -> Generator[int]:
    """Make `passages` hold exactly the texts of `library`; yields how many are left to add.

    May be stopped at any yield; the next call resumes.

    Raises:
        StoreError: a store cannot be read or written.
    """
    present, known = names_of(library), passages.names()
    gone = known.items() - present.items()
    if gone:
        passages.remove(key for key, _ in gone)
    missing = sorted(present.items() - known.items())
    for done, (key, name) in enumerate(missing):
        yield len(missing) - done
        passages.add(key, chunks_of(library.read(key), name), name)


def names_of(library: Library) -> dict[bytes, str]:
    """The key and the name of each text, as in a store of passages that is up to date.

    Raises:
        StoreError: the library cannot be read.
    """
    return {key: document_name(file, title) for key, (file, title) in library.titles().items()}


def open_passages(locations: Locations) -> PassageStore:
    """The passages of the person's library; a damaged store is replaced by an empty one.

    Raises:
        StoreError: the store cannot be opened.
    """
    make_folder(locations.projections)
    opened = PassageStore.open(locations.passages)
    discard_quarantined(opened.store.path)
    return opened


def find(
    library: Library,
    passages: PassageStore,
    query: str,
    limit: int,
    import_paths: frozenset[str] = frozenset(),
    *,
    gate: Gate = Gate.ALL,
    chat: Sequence[str] = (),
    dense: DenseRetriever | None = None,
    model: QuestionModel | None = None,
    items: int = 0,
) -> list[FoundPassage]:
    """The best `limit` passages for `query`, at most `MAX_PER_DOCUMENT` of one document.

    Args:
        import_paths: only passages of these imports; empty for all.
        chat: texts of the chat that may answer the query themselves. Passages that explain its
            words less well are only `LEADING` if they are `RELEVANT`.
        dense: also ranks passages that have a vector by embedding similarity.
        model: reranks the best passages and items; None to rank by their words alone.
        items: number of list items to keep, 0 for everything. A passage without a list is one item,
            and a passage without a kept item is left out. With `dense` the items are taken from the
            first `items` passages; without it, `RELEVANT` ones have to fit.

    Raises:
        ModelError: `model` cannot evaluate them.
        StoreError: a store cannot be read.
    """
    retriever = Bm25Retriever(passages)
    texts = (
        {key for path, key in library.import_texts() if path in import_paths}
        if import_paths
        else None
    )
    reranker = Reranker(retriever, translations(), query, texts, model, dense)
    candidates = reranker.search(limit * OVERFETCH)
    if gate is Gate.RELEVANT:
        sharing_fit = SHARING_FIT if items else 0.0
        candidates = reranker.relevant(candidates[: limit * OVERFETCH], sharing_fit)
    elif gate is Gate.LEADING:
        candidates = reranker.leading(candidates, _chunks_of(chat))
    elif gate is Gate.MATCHING:
        candidates = reranker.matching(candidates)
    if dense is not None:
        limit = min(limit, items or limit)
    found = [
        replace(one, nearness_fit=reranker.nearness_fit(id))
        for id, one in _selected(library, candidates, limit, import_paths)
    ]
    if not items:
        return found
    # The passages nearest by embedding may share no word with the question.
    by_words = gate is Gate.RELEVANT and dense is None
    return _excerpted(found, reranker.question, items, MIN_FIT if by_words else 0.0)


def _chunks_of(chat: Sequence[str]) -> list[Chunk]:
    """The last chunks of a chat's texts; without its marks, code counts like prose."""
    return [chunk for text in chat for chunk in split(text.replace("`", ""))][-MAX_CHAT_CHUNKS:]


def _excerpted(
    found: Sequence[FoundPassage], question: AskedQuestion, items: int, min_fit: float
) -> list[FoundPassage]:
    kept = excerpts([one.chunk for one in found], question, items, min_fit)
    return [
        replace(passage, excerpt=each.text, fit=each.fit + passage.nearness_fit)
        for each in kept
        for passage in [found[each.passage]]
    ]


@cache
def translations() -> Translations:
    """The shipped word translations; see `assets.recipe.translations`.

    Raises:
        StoreError: the file is missing or damaged.
    """
    return Translations.read(Path(str(files("assets") / TRANSLATIONS_FILE)))


def _selected(
    library: Library, ranked: Iterable[ScoredPassage], limit: int, import_paths: frozenset[str]
) -> Iterator[tuple[int, FoundPassage]]:
    """The first `limit` passages that still exist, at most `MAX_PER_DOCUMENT` of each text, with
    their ids."""
    counts: Counter[bytes] = Counter()
    for scored in ranked:
        passage = scored.passage
        found = locate(library, scored, import_paths)
        if found is None or counts[passage.text] == MAX_PER_DOCUMENT:
            continue
        counts[passage.text] += 1
        yield passage.id, found
        if counts.total() == limit:
            return


def locate(
    library: Library, scored: ScoredPassage, import_paths: frozenset[str] = frozenset()
) -> FoundPassage | None:
    """Where a passage was imported from; None if it no longer exists.

    Args:
        import_paths: only these imports count; empty for any.

    Raises:
        StoreError: the library cannot be read.
    """
    passage = scored.passage
    places = library.places(passage.text)
    chosen = (one for one in places if not import_paths or one.import_path in import_paths)
    place = next(chosen, None)
    if place is None:
        return None
    return FoundPassage(
        place.import_path,
        place.file,
        place.title,
        passage.text,
        passage.part,
        passage.chunk,
        scored.score,
        import_name=place.import_name,
        kind=place.kind,
    )


def forget_passages(locations: Locations) -> None:
    """Erase the passages of texts that the library no longer has, or has under another name.

    Raises:
        StoreError: a store cannot be written, or another process keeps reading an older state.
    """
    if not locations.passages.exists():
        return
    with (
        closing(Library.open(locations.library)) as library,
        closing(open_passages(locations)) as passages,
    ):
        gone = passages.names().items() - names_of(library).items()
        passages.remove(key for key, _ in gone)

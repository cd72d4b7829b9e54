"""The drafting stores of one tokenizer: the corpus as token ids, and CREST built from them.

The stores are updated by the difference between their keys and those of the corpus. It covers all
that was added or removed since the last run, in the library or in chats, by another process or
before a kill, and `run` works through it in slices. `app.indexing.indexer` decides when to run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from app.locations import Locations, make_folder
from datastores.chats.history import History
from datastores.chats.records import PROGRAMS
from datastores.corpus import Corpus, CorpusText, is_message
from datastores.crest.store import MAX_DELTA_TOKENS, CrestStore
from datastores.crest.texts import TokenText
from datastores.errors import StoreError
from datastores.library.documents import CHATS, CODE, NOTES, SHELL
from datastores.library.library import Library
from datastores.pauses import pause_here
from datastores.storage.files import WorkLock
from datastores.storage.integrity import discard_quarantined
from datastores.token_cache import TokenCache, TokenizedText, TokenSpan
from engines import draft_tree
from engines.target import Vocabulary

KINDS = {
    CHATS: draft_tree.CHATS.bit_length() - 1,
    NOTES: draft_tree.NOTES.bit_length() - 1,
    CODE: draft_tree.CODE.bit_length() - 1,
    SHELL: draft_tree.CODE.bit_length() - 1,
    PROGRAMS: draft_tree.PROGRAMS.bit_length() - 1,
}
"""Kind of text → its number in CREST: the bit position of the draft origin that it counts as."""

MAX_ENCODE_CHARACTERS = 2**16
"""Characters tokenized in one call, which takes many times their memory."""
SLICE_CHARACTERS = 2**20
"""Characters tokenized between two writes, about a second's work."""

TOKENS_FILE = "tokens.db"
CREST_FILE = "crest.db"
LOCK_FILE = "work.lock"
SUFFIX_SHARE = 4
"""One in this many of the bytes are for the suffix index, the others for CREST, to which they make
no difference: from 2.6 M tokens of code it drafts as well in 7.5 MB as in 11.3."""
LOCK_TIMEOUT_S = 60.0
"""Time that deleting a text waits for a process that is indexing."""


@dataclass(frozen=True, slots=True)
class IndexingProgress:
    """Progress of a run.

    Attributes:
        done, total: number of texts tokenized, and to tokenize.
        tokens: number of tokens in the texts tokenized by this run.
        imports: whether imported texts are among them; else they are chats.
        building: whether all texts are tokenized and CREST is being built.
        seconds_left: None while unknown.
    """

    done: int
    total: int
    tokens: int
    imports: bool
    building: bool = False
    seconds_left: float | None = None


class CorpusIndex:
    """The stores of one tokenizer, and the corpus they are built from. For one thread.

    Attributes:
        lock: must be held to call `learn` or `run`.
    """

    def __init__(
        self,
        corpus: Corpus,
        cache: TokenCache,
        crest: CrestStore,
        vocabulary: Vocabulary,
        lock: WorkLock,
        suffix_bytes: int,
    ) -> None:
        """Args:
        suffix_bytes: most bytes of the suffix index, which is part of `cache`.
        """
        self.corpus = corpus
        self.lock = lock
        self._cache = cache
        self._crest = crest
        self._vocabulary = vocabulary
        self._suffix_bytes = suffix_bytes

    def is_due(self) -> bool:
        """Whether `run` has anything to do. Reads every key, so not for the interface's thread."""
        difference = self.corpus.difference(self._cache.keys())
        if difference.added or difference.removed or self._cache.index_due():
            return True
        return bool(self._missing(dict(span_ids(self._cache))))

    def learn(self, keys: Sequence[bytes]) -> bool:
        """Add the few newly stored texts under `keys`; False if CREST needs a `run` for them."""
        read = ((key, self.corpus.read(key)) for key in keys)
        texts = [tokenize_text(key, found, self._vocabulary) for key, found in read if found]
        late = self._cache.index_due()
        self._cache.write(texts)
        if not late:  # what is left of an import may take a while
            self._cache.index_next(self._suffix_bytes)
        return self._crest.update([one for text in texts for one in token_texts(text)])

    def run(self, *, settle: bool = False) -> Generator[IndexingProgress]:
        """Bring the stores up to date; after an interruption the next run resumes.

        A few texts are added to CREST's delta at a cost proportional to them. With `settle` CREST
        is rebuilt if anything was added, so that it depends on the texts alone, not on their order.
        """
        spans = remove_deleted(self.corpus, self._cache, self._crest)
        added = self.corpus.difference(self._cache.keys()).added
        last = IndexingProgress(0, len(added), 0, _has_imports(added))
        for last in self._tokenize(added):
            yield last
        while self._cache.index_due():
            pause_here()
            self._cache.index_next(self._suffix_bytes)
            yield last
        if added:
            spans = dict(span_ids(self._cache))
        missing = self._missing(spans)
        settle = settle and bool(missing or self._crest.has_pending())
        if missing or settle:
            imports = _has_imports(missing) or (settle and bool(self.corpus.library.digests()))
            yield replace(last, imports=imports, building=True)
            self._build(missing, settle)

    def merge_due(self) -> bool:
        """Whether enough was added since the last rebuild to rebuild CREST when idle."""
        return self._crest.merge_due()

    def _tokenize(self, keys: Sequence[bytes]) -> Iterator[IndexingProgress]:
        """Tokenize the texts under `keys` in slices, each written in one transaction."""
        batch: list[TokenizedText] = []
        imports = _has_imports(keys)
        characters = tokens = 0
        for number, key in enumerate(keys, start=1):
            pause_here()
            parts = self.corpus.read(key)
            if parts:
                batch.append(tokenize_text(key, parts, self._vocabulary))
            characters += sum(len(part.text) for part in parts)
            if characters >= SLICE_CHARACTERS or number == len(keys):
                self._cache.write(batch)
                tokens += sum(text.tokens for text in batch)
                yield IndexingProgress(number, len(keys), tokens, imports)
                batch, characters = [], 0

    def _missing(self, spans: Mapping[bytes, bytes]) -> list[bytes]:
        """Keys of the tokenized texts, among `spans`, that CREST lacks wholly or in part."""
        return sorted({spans[unknown] for unknown in self._crest.unknown(spans)})

    def _build(self, missing: Sequence[bytes], settle: bool) -> None:
        """Bring CREST up to date with the token cache."""
        if settle or not self._crest.update(list(self._delta(missing))):
            self._crest.rebuild(self._spans(self._cache.keys()))

    def _delta(self, keys: Sequence[bytes]) -> Iterator[TokenText]:
        """The spans of the texts under `keys`, until they exceed CREST's delta."""
        tokens = 0
        for text in self._spans(keys):
            yield text
            tokens += len(text.tokens)
            if tokens > MAX_DELTA_TOKENS:
                return

    def _spans(self, keys: Sequence[bytes]) -> Iterator[TokenText]:
        for text in self._cache.read(keys):
            pause_here()
            yield from token_texts(text)


def _has_imports(keys: Iterable[bytes]) -> bool:
    return any(not is_message(key) for key in keys)


def span_id(key: bytes, number: int) -> bytes:
    """The id in CREST of span `number` of the text under `key`."""
    return hashlib.sha256(number.to_bytes(4, "little") + key).digest()


def token_texts(text: TokenizedText) -> Iterator[TokenText]:
    """The spans of a text, each a separate text to CREST."""
    for number, span in enumerate(text.spans):
        yield TokenText(span_id(text.key, number), span.tokens, span.kind)


def tokenize_text(key: bytes, parts: Sequence[CorpusText], vocabulary: Vocabulary) -> TokenizedText:
    """The token ids of `parts`; stored ids are reused if this tokenizer made them."""
    spans = []
    for part in parts:
        if part.tokens and part.tokenizer == vocabulary.fingerprint:
            tokens = np.array(part.tokens, dtype=np.uint32)
        else:
            # Piece by piece into arrays: a list of Python integers takes nine times the memory.
            pieces = [np.empty(0, np.uint32)]
            for piece in split_text(part.text):
                pause_here()
                pieces.append(np.array(vocabulary.encode(piece), np.uint32))
            tokens = np.concatenate(pieces)
        spans.append(TokenSpan(KINDS[part.kind], tokens))
    return TokenizedText(key, tuple(spans))


def split_text(text: str, size: int = MAX_ENCODE_CHARACTERS) -> Iterator[str]:
    """`text` in pieces of at most `size` characters, split after line ends where possible."""
    start = 0
    while start < len(text):
        end = start + size
        if end < len(text):
            end = text.rfind("\n", start, end) + 1 or end
        yield text[start:end]
        start = end


def crest_path(locations: Locations, tokenizer: str) -> Path:
    """The path of the CREST store for the tokenizer with this fingerprint."""
    return locations.projections / tokenizer / CREST_FILE


def tokens_path(locations: Locations, tokenizer: str) -> Path:
    """The path of the token cache, with its suffix index, for the tokenizer with this
    fingerprint."""
    return locations.projections / tokenizer / TOKENS_FILE


def token_counts(locations: Locations, tokenizer: str) -> dict[bytes, int]:
    """Number of tokens by key, for the texts tokenized with this tokenizer (a fingerprint).

    Raises:
        StoreError: the store cannot be opened.
    """
    path = tokens_path(locations, tokenizer)
    if not path.exists():
        return {}
    with closing(TokenCache.open(path)) as cache:
        discard_quarantined(cache.store.path)
        return cache.token_counts()


@contextmanager
def open_index(
    locations: Locations, vocabulary: Vocabulary, budget_bytes: int
) -> Iterator[CorpusIndex]:
    """The index for one tokenizer, over connections of its own.

    Raises:
        StoreError: a store cannot be opened.
    """
    folder = locations.projections / vocabulary.fingerprint
    make_folder(folder)
    with _corpus(locations) as corpus, _stores(folder, budget_bytes) as (cache, crest):
        lock = WorkLock(folder / LOCK_FILE)
        yield CorpusIndex(corpus, cache, crest, vocabulary, lock, budget_bytes // SUFFIX_SHARE)


def forget_removed_texts(locations: Locations, budget_bytes: int) -> None:
    """Erase what is no longer in the corpus from every tokenizer's stores.

    If CREST cannot subtract it, it is emptied, and the next `run` with that tokenizer rebuilds it.

    Raises:
        StoreError: a store cannot be written, or another process keeps reading an older state of it
            or updating it.
    """
    folders = [file.parent for file in sorted(locations.projections.glob(f"*/{TOKENS_FILE}"))]
    with _corpus(locations) as corpus:
        for folder in folders:
            # The holder of the lock may have deleted text in memory.
            with _held(folder / LOCK_FILE), _stores(folder, budget_bytes) as (cache, crest):
                remove_deleted(corpus, cache, crest)


@contextmanager
def _held(path: Path) -> Iterator[None]:
    """Hold a lock that others release after a short time, or when it is claimed."""
    lock = WorkLock(path)
    if not lock.claim(LOCK_TIMEOUT_S):
        raise StoreError(
            f"{path.parent} is in use by another specchat, so deleted text is still in it: try"
            " again when that one is done"
        )
    try:
        yield
    finally:
        lock.release()


def remove_deleted(corpus: Corpus, cache: TokenCache, crest: CrestStore) -> dict[bytes, bytes]:
    """Remove what is no longer in the corpus from the stores; returns the remaining `span_ids`."""
    removed = corpus.difference(cache.keys()).removed
    crest.forget([one for text in cache.read(removed) for one in token_texts(text)])
    # Spans that a damaged cache has lost belong to no text.
    spans = dict(span_ids(cache, frozenset(removed)))
    crest.retain(spans)
    # Last, so that the next call repeats all of this if it is interrupted.
    cache.forget(removed)
    return spans


def span_ids(
    cache: TokenCache, without: frozenset[bytes] = frozenset()
) -> Iterator[tuple[bytes, bytes]]:
    """The id of every span in `cache` and its text's key, except for texts in `without`."""
    for key, spans in cache.span_counts():
        if key not in without:
            for number in range(spans):
                yield span_id(key, number), key


@contextmanager
def _corpus(locations: Locations) -> Iterator[Corpus]:
    with (
        closing(Library.open(locations.library)) as library,
        closing(History.open(locations.history)) as history,
    ):
        yield Corpus(library, history)


@contextmanager
def _stores(folder: Path, budget_bytes: int) -> Iterator[tuple[TokenCache, CrestStore]]:
    crest_bytes = budget_bytes - budget_bytes // SUFFIX_SHARE
    with (
        closing(TokenCache.open(folder / TOKENS_FILE)) as cache,
        closing(CrestStore.open(folder / CREST_FILE, crest_bytes)) as crest,
    ):
        for store in (cache.store, crest.store):
            discard_quarantined(store.path)
        yield cache, crest

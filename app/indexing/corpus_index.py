"""One tokenizer's view of the corpus, for drafting: its texts as token ids, and the CREST of them.

Text is the truth; this follows it. Whatever came or went since the last time, in the library or in
chats, by another process or before a kill, shows as a difference of keys, and `run` works it off in
slices. Owns what is done in which order. Refuses to know threads, screens and when it is time.

Passages as token ids, and as the documents CREST is built from.

Owns how long texts are cut for a tokenizer, and what a passage is called in CREST.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep

import numpy as np

from app.locations import Locations, make_folder
from datastores.chats.history import History
from datastores.corpus import Corpus, CorpusText
from datastores.crest.counting import TokenDocument
from datastores.crest.store import MAX_DELTA_TOKENS, CrestStore
from datastores.errors import StoreError
from datastores.library.documents import CHATS, CODE, NOTES, SHELL
from datastores.library.library import Library
from datastores.storage.files import WorkLock
from datastores.storage.sqlite import Store
from datastores.token_cache import TokenCache, TokenizedText, TokenSpan
from engines import draft_tree
from engines.target import Vocabulary

KINDS = {
    CHATS: draft_tree.CHATS.bit_length() - 1,
    NOTES: draft_tree.NOTES.bit_length() - 1,
    CODE: draft_tree.CODE.bit_length() - 1,
    SHELL: draft_tree.CODE.bit_length() - 1,
}
"""Kind of text → its number in CREST: the place of the bit of the source that is credited."""

PIECE = 2**16
"""Characters given to a tokenizer at once; it takes many times their memory."""


def identity_of(key: bytes, number: int) -> bytes:
    """Of passage `number` of the text under `key`."""
    return hashlib.sha256(number.to_bytes(4, "little") + key).digest()


def documents(text: TokenizedText) -> Iterator[TokenDocument]:
    """The passages of a text, as CREST wants them."""
    for number, span in enumerate(text.spans):
        yield TokenDocument(identity_of(text.key, number), span.tokens, span.kind)


def tokenised(key: bytes, passages: Sequence[CorpusText], vocabulary: Vocabulary) -> TokenizedText:
    """The token ids of `passages`; those that were kept, where this tokenizer made them."""
    spans = []
    for passage in passages:
        if passage.tokens and passage.tokenizer == vocabulary.fingerprint:
            tokens = list(passage.tokens)
        else:
            pieces = (vocabulary.encode(piece) for piece in pieces_of(passage.text))
            tokens = [token for piece in pieces for token in piece]
        spans.append(TokenSpan(KINDS[passage.kind], np.array(tokens, dtype=np.uint32)))
    return TokenizedText(key, tuple(spans))


def pieces_of(text: str, size: int = PIECE) -> Iterator[str]:
    """`text` in pieces of at most `size` characters, cut where lines end if they do."""
    start = 0
    while start < len(text):
        end = start + size
        if end < len(text):
            end = text.rfind("\n", start, end) + 1 or end
        yield text[start:end]
        start = end


SLICE = 2**20
"""Characters tokenised between two writes: about a second's work."""
SETTLED_TOKENS = 2**21
"""Up to so many tokens in all, a person who waits for it gets everything settled: some seconds."""
TOKENS = "tokens.db"
CREST = "crest.db"
LOCK = "work.lock"
WANTED = ".wanted"
"""Ends the name of the file, beside the lock, that is touched by whoever cannot wait for it."""
PATIENCE, AGAIN = 60.0, 0.05
"""Seconds to wait at most for whoever is at work where something must be forgotten, and between two
looks."""


@dataclass(frozen=True, slots=True)
class IndexingProgress:
    """How far a run has come.

    Attributes:
        done, total: texts tokenised, and all that have to be.
        tokens: in the texts tokenised by this run.
        building: whether the texts are tokenised and CREST is being built of them.
    """

    done: int
    total: int
    tokens: int
    building: bool = False


class CorpusIndex:
    """The stores of one tokenizer, and what they are made from. For one thread.

    Attributes:
        corpus: the texts.
        lock: to be held by whoever calls `learn` or `run`.
    """

    def __init__(
        self,
        corpus: Corpus,
        cache: TokenCache,
        crest: CrestStore,
        vocabulary: Vocabulary,
        lock: WorkLock,
    ) -> None:
        self.corpus = corpus
        self.lock = lock
        self._cache = cache
        self._crest = crest
        self._vocabulary = vocabulary

    def wanted(self) -> int:
        """Changes when somebody cannot wait for the lock: whoever holds it gives way."""
        try:
            return self.lock.path.with_suffix(WANTED).stat().st_mtime_ns
        except FileNotFoundError:
            return 0

    def is_due(self) -> bool:
        """Whether `run` has anything to do. Reads every key: for the background."""
        difference = self.corpus.difference(self._cache.keys())
        return bool(difference.added or difference.removed or self._missing())

    def learn(self, keys: Sequence[bytes]) -> bool:
        """Take in the few texts under `keys`, just written; false where `run` is due instead."""
        read = ((key, self.corpus.read(key)) for key in keys)
        texts = [tokenised(key, found, self._vocabulary) for key, found in read if found]
        self._cache.write(texts)
        return self._crest.update([one for text in texts for one in documents(text)])

    def run(self, *, settle: bool = False) -> Generator[IndexingProgress]:
        """Do all that is due. Stopped at any moment, the next run goes on from there.

        What is little is put beside what CREST has settled; with `settle` all of it is settled, so
        that the store depends on the texts alone, not on how they came.
        """
        subtract(self.corpus, self._cache, self._crest)
        added = self.corpus.difference(self._cache.keys()).added
        last = IndexingProgress(0, len(added), 0)
        for last in self._tokenise(added):
            yield last
        if missing := self._missing():
            yield IndexingProgress(last.done, last.total, last.tokens, building=True)
            self._build(missing, settle)

    def _tokenise(self, keys: Sequence[bytes]) -> Iterator[IndexingProgress]:
        """Tokenise the texts under `keys` in slices, each of which is written as a whole."""
        batch: list[TokenizedText] = []
        characters = tokens = 0
        for number, key in enumerate(keys, start=1):
            passages = self.corpus.read(key)
            if passages:
                batch.append(tokenised(key, passages, self._vocabulary))
            characters += sum(len(passage.text) for passage in passages)
            if characters >= SLICE or number == len(keys):
                self._cache.write(batch)
                tokens += sum(text.tokens for text in batch)
                yield IndexingProgress(number, len(keys), tokens)
                batch, characters = [], 0

    def _missing(self) -> list[bytes]:
        """Keys of the tokenised texts of which CREST has not seen everything."""
        owners = dict(identities(self._cache))
        return sorted({owners[unknown] for unknown in self._crest.unknown(owners)})

    def _build(self, missing: Sequence[bytes], settle: bool) -> None:
        """Bring CREST up to the cache."""
        at_once = settle and self._cache.total_tokens() <= SETTLED_TOKENS
        if at_once or not self._crest.update(list(self._few(missing))):
            self._crest.rebuild(self._documents(self._cache.keys()))

    def _few(self, keys: Sequence[bytes]) -> Iterator[TokenDocument]:
        """The documents of the texts under `keys`, or enough of them to be too many."""
        tokens = 0
        for document in self._documents(keys):
            yield document
            tokens += len(document.tokens)
            if tokens > MAX_DELTA_TOKENS:
                return

    def _documents(self, keys: Sequence[bytes]) -> Iterator[TokenDocument]:
        for text in self._cache.read(keys):
            yield from documents(text)


def told_of_damage(aside: Path) -> str:
    """What a person is told whose library was damaged and is now at `aside`."""
    return f"a damaged library was set aside as {aside}: import your texts again"


def crest_path(locations: Locations, tokenizer: str) -> Path:
    """Where the CREST of the tokenizer with this fingerprint is, or will be."""
    return locations.projections / tokenizer / CREST


def token_counts(locations: Locations, tokenizer: str) -> dict[bytes, int]:
    """The tokens of each text that is tokenised for the tokenizer with this fingerprint, by key.

    Raises:
        StoreError: the store cannot be opened.
    """
    path = locations.projections / tokenizer / TOKENS
    if not path.exists():
        return {}
    with closing(TokenCache.open(path)) as cache:
        discard_damaged(cache.store)
        return cache.token_counts()


@contextmanager
def opened(
    locations: Locations, vocabulary: Vocabulary, budget_bytes: int
) -> Iterator[CorpusIndex]:
    """The projection for one tokenizer, over connections of its own.

    Raises:
        StoreError: a store cannot be opened.
    """
    folder = locations.projections / vocabulary.fingerprint
    make_folder(folder)
    with _corpus(locations) as corpus, _stores(folder, budget_bytes) as (cache, crest):
        yield CorpusIndex(corpus, cache, crest, vocabulary, WorkLock(folder / LOCK))


def forget_everywhere(locations: Locations, budget_bytes: int) -> None:
    """Take what is no longer in the corpus out of every tokenizer's stores, for good.

    What CREST cannot subtract it drops; it is rebuilt by the next `run` with that tokenizer.

    Raises:
        StoreError: a store cannot be written, or another process keeps an older state of it or is
            at work on it, and does not give way.
    """
    folders = [file.parent for file in sorted(locations.projections.glob(f"*/{TOKENS}"))]
    with _corpus(locations) as corpus:
        for folder in folders:
            # Whoever works on it may hold in memory what must go.
            with _held(folder / LOCK), _stores(folder, budget_bytes) as (cache, crest):
                subtract(corpus, cache, crest)


@contextmanager
def _held(path: Path) -> Iterator[None]:
    """Hold a lock that others hold for moments, or until they see that it is wanted."""
    lock, since = WorkLock(path), monotonic()
    if not lock.acquire():
        path.with_suffix(WANTED).touch()
    while not lock.acquire():
        if monotonic() - since > PATIENCE:
            raise StoreError(
                f"{path.parent} is at work in another specchat, so what was deleted is still in it:"
                " do this again when that is done"
            )
        sleep(AGAIN)
    try:
        yield
    finally:
        lock.release()


def subtract(corpus: Corpus, cache: TokenCache, crest: CrestStore) -> None:
    """Take what is no longer in the corpus out of the stores made from it."""
    gone = corpus.difference(cache.keys()).removed
    left = identities(cache, frozenset(gone))
    crest.retain([identity for identity, _ in left])
    # Last: as long as the cache knows of it, the next call does all of this again.
    cache.forget(gone)


def identities(
    cache: TokenCache, without: frozenset[bytes] = frozenset()
) -> Iterator[tuple[bytes, bytes]]:
    """Of every passage in `cache`, and its text's key; texts under keys in `without` left out."""
    for key, passages in cache.passage_counts():
        if key not in without:
            for number in range(passages):
                yield identity_of(key, number), key


@contextmanager
def _corpus(locations: Locations) -> Iterator[Corpus]:
    with (
        closing(Library.open(locations.library)) as library,
        closing(History.open(locations.history)) as history,
    ):
        yield Corpus(library, history)


@contextmanager
def _stores(folder: Path, budget_bytes: int) -> Iterator[tuple[TokenCache, CrestStore]]:
    with (
        closing(TokenCache.open(folder / TOKENS)) as cache,
        closing(CrestStore.open(folder / CREST, budget_bytes)) as crest,
    ):
        for store in (cache.store, crest.store):
            discard_damaged(store)
        yield cache, crest


def discard_damaged(store: Store) -> None:
    """Delete what was set aside as damaged: it can be made again, and may hold what must go."""
    if store.quarantined is not None:
        for part in store.path.parent.glob(f"{store.quarantined.name}*"):
            part.unlink()

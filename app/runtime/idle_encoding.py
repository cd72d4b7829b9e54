"""Idle encoding: fills the dense index with the states of texts that the model did not generate.

Generated answers already have states; all other texts need passes of their own: questions, imported
texts, and chats with another model. The index is also cleared of what library and history no longer
hold. Others can take the model's lock (`Engine.busy`) between any two passes.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial

from app.conversation.context_window import blocks, shown_messages
from app.conversation.imported_texts import ImportedTexts
from app.conversation.privacy import CHAT_PREFIX, TEXT_PREFIX, owner_of_chat, owner_of_text
from app.engine.engine import Engine
from app.indexing.corpus_index import tokens_path
from app.locations import Locations
from datastores.chats.history import History
from datastores.chats.records import LOOPED, PERSON, Chat
from datastores.corpus import is_message
from datastores.dense.index import DenseIndex
from datastores.dense.worker import DenseWorker
from datastores.library.library import Library
from datastores.owners import each
from datastores.redaction import redact
from datastores.token_cache import TokenCache
from engines.state_encoding import encode_backlog, waited

BATCH_TOKENS = 2**15
"""Tokens of imported texts that are added to the index and encoded at a time."""
MAX_POSITIONS = 10_000_000
"""Positions up to which imported texts are added; the index takes 90 bytes of memory for each."""
MIN_NOTICED_TOKENS, MIN_NOTICED_PASSAGES = 2_000, 20
"""Progress is not shown for fewer tokens to encode, or passages to embed."""


@dataclass(frozen=True, slots=True)
class EncodingProgress:
    """Number of tokens encoded, or passages embedded.

    Attributes:
        imports: whether imported texts are among them.
        noticed: whether it takes long enough to be shown.
        seconds_left: None while unknown.
    """

    done: int
    total: int
    imports: bool
    noticed: bool
    seconds_left: float | None = None


@dataclass(frozen=True, slots=True)
class _NewText:
    """An imported text that the index lacks."""

    key: bytes
    tokens: int


def encode_when_idle(
    engine: Engine, locations: Locations, history: History, *, texts: bool
) -> Generator[EncodingProgress | None]:
    """Encode all that the dense index of `engine` lacks, in slices of some hundredths of a second.

    Yields None while there is nothing to report. If it is closed, the next call continues the work.

    Args:
        texts: whether to look for added and removed texts and chats, at a cost for each of them.

    Raises:
        StoreError: a store cannot be read or written.
        ModelError: the model cannot evaluate a text.
    """
    worker = engine.resources.dense
    if worker is None:
        return
    new: list[_NewText] = []
    if texts:
        yield from waited(worker.request(DenseIndex.reconcile), None)
        yield from _update_chats(engine, worker, history)
        compare = partial(_compare, locations=locations, tokenizer=engine.vocabulary.fingerprint)
        new = yield from waited(worker.request(compare), None)
    yield from _encode(engine, worker, locations, new)


def embed_when_idle(imports: ImportedTexts) -> Generator[EncodingProgress | None]:
    """Embed the passages that have no vector yet, if there is an embedding model.

    Another thread embeds; yields as `encode_when_idle` does.

    Raises:
        StoreError: the store cannot be read or written.
    """
    if imports.embedding is None or imports.empty:
        return
    begun: int | None = None
    for progress in imports.embedding.embed():
        if progress is None:
            yield None
            continue
        begun = progress.done if begun is None else begun
        noticed = progress.total - begun >= MIN_NOTICED_PASSAGES
        yield EncodingProgress(progress.done, progress.total, imports=True, noticed=noticed)


def _encode(
    engine: Engine, worker: DenseWorker, locations: Locations, new: list[_NewText]
) -> Generator[EncodingProgress | None]:
    """Encode what is in the index, then `new` texts in batches."""
    status = yield from waited(worker.request(DenseIndex.status), None)
    positions, done = status.positions, status.keys + status.held
    total = positions + sum(text.tokens for text in new)
    noticed, imports = total - done >= MIN_NOTICED_TOKENS, bool(new)
    while True:
        encoded = done
        for positions_done in engine.exclusively(encode_backlog(engine.target, worker)):
            if positions_done is not None:
                encoded = done + positions_done
            yield EncodingProgress(min(encoded, total), total, imports, noticed)
        done = encoded
        batch = list(_batch(new)) if positions < MAX_POSITIONS else []
        if not batch:
            return
        del new[: len(batch)]
        positions += sum(text.tokens for text in batch)
        add = partial(
            _add, locations=locations, tokenizer=engine.vocabulary.fingerprint, texts=batch
        )
        yield from waited(worker.request(add), None)


def _batch(new: Sequence[_NewText]) -> Iterator[_NewText]:
    """The first texts up to `BATCH_TOKENS`, at least one."""
    tokens = 0
    for text in new:
        yield text
        tokens += text.tokens
        if tokens >= BATCH_TOKENS:
            return


def _update_chats(
    engine: Engine, worker: DenseWorker, history: History
) -> Generator[EncodingProgress | None]:
    """Add chats that the index lacks, and forget those that are gone."""
    known = yield from waited(worker.request(partial(_owners, prefix=CHAT_PREFIX)), None)
    chats = [chat for chat in history.all_chats() if not chat.private]
    offered = {owner_of_chat(history.name, chat.id): chat for chat in chats}
    for owner in known - offered.keys():
        yield from waited(worker.request(partial(DenseIndex.forget, owner=owner)), None)
    for owner in offered.keys() - known:
        tokens = _tokens_of(engine, history, offered[owner])
        if tokens:
            add = partial(DenseIndex.add_text, owner=owner, tokens=tokens)
            yield from waited(worker.request(add), None)


def _tokens_of(engine: Engine, history: History, chat: Chat) -> list[int]:
    """A chat as the model sees it; nothing if it holds a secret or a loop, or is a program's, of
    which the questions are not stored."""
    if chat.origin != PERSON:
        return []
    thread = history.path(chat.active) if chat.active is not None else []
    texts = [chat.system, *(message.content for message in thread)]
    if not thread or any(redact(text)[1] for text in texts):
        return []
    if any(message.finish == LOOPED for message in thread):
        return []
    messages = shown_messages(engine.vocabulary, chat.system, thread)
    return [token for part in blocks(engine, messages) for token in engine.render(part)]


def _owners(index: DenseIndex, prefix: str) -> set[str]:
    """Every owner that begins with `prefix`, of texts that it shares too."""
    owners = (owner for recorded in index.owners("") for owner in each(recorded))
    return {owner for owner in owners if owner.startswith(prefix)}


def _compare(index: DenseIndex, locations: Locations, tokenizer: str) -> list[_NewText]:
    """Forget texts that left the library; returns tokenized ones that the index lacks."""
    path = tokens_path(locations, tokenizer)
    if not path.exists():
        return []
    with closing(Library.open(locations.library)) as library:
        offered = set(library.digests())
    for owner in _owners(index, TEXT_PREFIX) - {owner_of_text(key) for key in offered}:
        index.forget(owner)
    known = index.owners(TEXT_PREFIX)
    with closing(TokenCache.open(path)) as cache:
        counts = cache.token_counts()
    return [
        _NewText(key, tokens)
        for key, tokens in sorted(counts.items())
        if key in offered and not is_message(key) and owner_of_text(key) not in known
    ]


def _add(
    index: DenseIndex, locations: Locations, tokenizer: str, texts: Sequence[_NewText]
) -> None:
    """Add texts to the index, except those forgotten meanwhile."""
    with (
        closing(TokenCache.open(tokens_path(locations, tokenizer))) as cache,
        closing(Library.open(locations.library)) as library,
    ):
        for text in cache.read(text.key for text in texts):
            spans = [span.tokens.tolist() for span in text.spans]
            index.add_texts(owner_of_text(text.key), spans)
            if not library.read(text.key):
                index.forget(owner_of_text(text.key))

"""What the model reads when it is idle, so that dense drafting knows it: imported texts, and chats.

Answers bring their states along; everything else has to be read for them: what was asked, imported
texts, and all chats once more for a model that did not write them. Owns what is read, in which
order, and that the index holds nothing that library and history do not offer. Refuses to know
threads, screens and when it is time: whoever drives the generator lets the person go first.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from app.conversation.privacy import CHAT_PREFIX, TEXT_PREFIX, chat_source, text_source
from app.engine.engine import Engine
from app.indexing.corpus_index import TOKENS_FILE
from app.locations import Locations
from datastores.chats.history import History
from datastores.chats.records import Chat
from datastores.corpus import is_message
from datastores.dense.recorder import DenseRecorder
from datastores.dense.worker import DenseWorker
from datastores.library.library import Library
from datastores.redaction import redact
from datastores.token_cache import TokenCache
from engines.chat_template.prompt_builder import Message
from engines.state_encoding import SLICE, encode_backlog

PORTION = 2**15
"""Tokens of imported texts that are put into the index at a time; what is in it is read first."""
MOST_POSITIONS = 10_000_000
"""Positions up to which imported texts are read: the index takes 90 bytes of memory for each."""
WORTH_SAYING = 2_000
"""Tokens to be read below which it is done before a person has noticed."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class EncodingProgress:
    """How far reading has come, in tokens.

    Attributes:
        imports: whether imported texts are among them.
        renewing: whether what was read before is read again, for better keys.
        noticed: whether it takes so long that a person should be told.
    """

    done: int
    total: int
    imports: bool
    renewing: bool
    noticed: bool


@dataclass(frozen=True, slots=True)
class _Text:
    """An imported text that the index lacks."""

    key: bytes
    tokens: int


def read_when_idle(
    engine: Engine, locations: Locations, history: History, *, texts: bool
) -> Generator[EncodingProgress | None]:
    """Read all that the dense index of `engine` lacks, in slices of some hundredths of a second.

    Yields None while there is nothing to tell. Left at any yield, it is taken up by the next call.

    Args:
        texts: whether texts and chats that came or went are looked for, which takes longer the more
            there are.

    Raises:
        StoreError: a store cannot be read or written.
        ModelError: the model cannot evaluate a text.
    """
    keeper = engine.stores.dense
    if keeper is None:
        return
    unread: list[_Text] = []
    if texts:
        yield from _answered(keeper.request(DenseRecorder.reconcile))
        yield from _read_chats(engine, keeper, history)
        compare = partial(_compare, locations=locations, tokenizer=engine.vocabulary.fingerprint)
        unread = yield from _answered(keeper.request(compare))
    yield from _answered(keeper.request(DenseRecorder.refit))
    yield from _read(engine, keeper, locations, unread)


def _read(
    engine: Engine, keeper: DenseWorker, locations: Locations, unread: list[_Text]
) -> Generator[EncodingProgress | None]:
    """Encode what is in the index, then `unread` texts by portions."""
    status = yield from _answered(keeper.request(DenseRecorder.status))
    total = status.positions + sum(text.tokens for text in unread)
    done = status.keys if status.rebuilt is None else status.rebuilt
    noticed, imports = total - done >= WORTH_SAYING, bool(unread)
    renewing = status.rebuilt is not None
    held = status.positions
    while True:
        for progress in encode_backlog(engine.target, keeper):
            now = done + progress.positions
            yield EncodingProgress(min(now, total), total, imports, renewing, noticed)
        done = now
        portion = list(_portion(unread)) if held < MOST_POSITIONS else []
        if not portion:
            return
        del unread[: len(portion)]
        held += sum(text.tokens for text in portion)
        renewing = False
        add = partial(
            _add, locations=locations, tokenizer=engine.vocabulary.fingerprint, texts=portion
        )
        yield from _answered(keeper.request(add))


def _portion(unread: Sequence[_Text]) -> Iterator[_Text]:
    """As many of the first texts as make up `PORTION`; one at least."""
    tokens = 0
    for text in unread:
        yield text
        tokens += text.tokens
        if tokens >= PORTION:
            return


def _read_chats(
    engine: Engine, keeper: DenseWorker, history: History
) -> Generator[EncodingProgress | None]:
    """Put chats into the index that it knows nothing of, and take out those that are gone."""
    known = yield from _answered(keeper.request(lambda book: book.sources(CHAT_PREFIX)))
    chats = [chat for chat in history.chats() if not chat.private]
    offered = {chat_source(history.name, chat.id): chat for chat in chats}
    for source in known - offered.keys():
        yield from _answered(keeper.request(partial(DenseRecorder.forget, source=source)))
    for source in offered.keys() - known:
        tokens = _tokens_of(engine, history, offered[source])
        if tokens:
            add = partial(DenseRecorder.add_document, source=source, tokens=tokens)
            yield from _answered(keeper.request(add))


def _tokens_of(engine: Engine, history: History, chat: Chat) -> list[int]:
    """A chat as the model would have it in its context; nothing where a secret stands in it."""
    thread = history.path(chat.active) if chat.active is not None else []
    if not thread or any(redact(message.content)[1] for message in thread):
        return []
    tokenizer = engine.vocabulary.fingerprint
    messages = [Message("system", chat.system)] if chat.system else []
    for said in thread:
        tokens = said.tokens if said.tokenizer == tokenizer else ()
        messages.append(Message(said.role, said.content, tokens))
    return engine.render(messages)


def _compare(book: DenseRecorder, locations: Locations, tokenizer: str) -> list[_Text]:
    """Forget texts that left the library; those that are tokenised and not in the index yet."""
    path = locations.projections / tokenizer / TOKENS_FILE
    if not path.exists():
        return []
    with closing(Library.open(locations.library)) as library:
        offered = set(library.digests())
    known = book.sources(TEXT_PREFIX)
    for source in known - {text_source(key) for key in offered}:
        book.forget(source)
    with closing(TokenCache.open(path)) as cache:
        counts = cache.token_counts()
    return [
        _Text(key, tokens)
        for key, tokens in sorted(counts.items())
        if key in offered and not is_message(key) and text_source(key) not in known
    ]


def _add(book: DenseRecorder, locations: Locations, tokenizer: str, texts: Sequence[_Text]) -> None:
    """Put texts into the index, but for what was forgotten meanwhile."""
    with (
        closing(TokenCache.open(locations.projections / tokenizer / TOKENS_FILE)) as cache,
        closing(Library.open(locations.library)) as library,
    ):
        for text in cache.read(text.key for text in texts):
            passages = [span.tokens.tolist() for span in text.spans]
            book.add_documents(text_source(text.key), passages)
            if not library.read(text.key):
                book.forget(text_source(text.key))


def _answered(answer: Future[T]) -> Generator[None, None, T]:
    """What the keeper of the index answers, waiting for no longer than a slice at a time."""
    while wait([answer], SLICE).not_done:
        yield
    return answer.result()

"""Saves and loads the KV cache of chats, so that a reopened chat need not be read again.

Owns when a state is saved (in parts, copied to memory while the model is idle and written on a
thread of its own, so that no answer waits) and what is loaded before a prompt is read. Refuses to
know files (`datastores.kv_blocks`) and what a state is (`engines.target.SavableTarget`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from threading import Lock
from time import monotonic, perf_counter
from typing import Protocol, TypeVar

from datastores.errors import SpecchatError
from datastores.kv_blocks import KvBlock, KvBlocks, State, split
from datastores.tokens import common_prefix
from engines.state_encoding import PASS_S
from engines.target import SavableTarget, Target

LOGGER = logging.getLogger("specchat.chat_states")

MIN_READING_S = 0.1
"""Texts that the model reads faster are not saved.

`specchat ask -c` is a new process for each question: without a saved state, a full window (1,500
tokens) delayed the built-in model's first word from .4 to .8 s, and a chat of 260 tokens
SmolLM2's from 1.0 to 1.8 s."""
MIN_GAIN_TOKENS = 64
"""Fewer are read sooner than files are opened: neither loaded nor saved."""
CLOSE_TIMEOUT_S = 2.0
"""Seconds that saving may take at the end; what is left then is read again."""

T = TypeVar("T")


class ReadingTarget(Target, SavableTarget, Protocol):
    """A target whose cached tokens can be saved."""


@dataclass(frozen=True, slots=True)
class CachedChat:
    """A chat that the KV cache holds.

    Attributes:
        name: what it is filed under.
        tokens: those to save.
        offered: whether it may still be saved; asked on another thread.
    """

    name: str
    tokens: list[int]
    offered: Callable[[], bool]


class ChatStates:
    """The saved states of one model's chats. All methods belong to the model's thread.

    Attributes:
        error: why nothing more is saved; None while it works.
    """

    def __init__(
        self,
        target: ReadingTarget,
        busy: Lock,
        files: KvBlocks,
        min_reading_s: float = MIN_READING_S,
    ) -> None:
        """Args:
        busy: held by whoever uses the target; `load` is called by its holder.
        min_reading_s: as `MIN_READING_S`.
        """
        self.error: SpecchatError | None = None
        self.on_wake: Callable[[], object] = lambda: None
        self._target = target
        self._busy = busy
        self._files = files
        self._min_reading_s = min_reading_s
        self._read_tokens, self._read_s = 0, 0.0
        self._saving: Generator[None] | None = None
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="states")

    def load(self, prompt: Sequence[int]) -> Iterator[int]:
        """Load what is saved of `prompt` and not cached; yields the cached tokens after each part.

        Whatever cannot be loaded is left to be read.
        """
        for block in self._missing(prompt):
            began = perf_counter()
            try:
                if block.start != len(self._target.tokens):
                    self._target.rewind(block.start)
                self._target.load_state(block.tokens.tolist(), self._files.read(block))
            except SpecchatError as error:
                LOGGER.warning("%s", error)
                self._files.drop(block)
                return
            yield len(self._target.tokens)
            if perf_counter() - began > block.seconds:
                return  # the disk is slower than the model

    def _missing(self, prompt: Sequence[int]) -> list[KvBlock]:
        """The saved blocks that hold more of `prompt` than the cache does."""
        cached = common_prefix(self._target.tokens, prompt)
        blocks = self._files.find(prompt, whole=not self._target.state_block)
        missing = [block for block in blocks if block.end > cached]
        if not missing or missing[-1].end > self._target.context_length:
            return []
        return missing if min(missing[-1].end, len(prompt)) - cached >= MIN_GAIN_TOKENS else []

    def observe(self, tokens: int, seconds: float) -> None:
        """The model read so many tokens in so many seconds."""
        self._read_tokens += max(0, tokens)
        self._read_s += seconds

    def keep(self, chat: str, length: int, offered: Callable[[], bool]) -> None:
        """Save the first `length` cached tokens as those of `chat`, when there is time for it."""
        seconds = self._read_s / max(1, self._read_tokens)
        if self.error is not None or length < MIN_GAIN_TOKENS:
            return
        if length * seconds >= self._min_reading_s:
            cached = CachedChat(chat, list(self._target.tokens[:length]), offered)
            self._saving = self._save(cached, seconds)

    def forget(self, chat: str) -> None:
        """Delete what is saved of `chat`, and save nothing more of it.

        Raises:
            StoreError: it cannot be deleted.
        """
        self._saving = None
        self._writer.submit(self._files.forget, chat).result()

    def slice(self) -> bool:
        """Save for some hundredths of a second; whether there is more to do."""
        if self._saving is None:
            return False
        try:
            next(self._saving)
        except StopIteration:
            self._saving = None
        except SpecchatError as error:
            self.error, self._saving = error, None
        return self._saving is not None

    def close(self) -> None:
        """Save what is left, unless that takes long."""
        deadline = monotonic() + CLOSE_TIMEOUT_S
        while self.slice() and monotonic() < deadline:
            pass
        self._saving = None
        self._writer.shutdown()

    def _save(self, chat: CachedChat, seconds: float) -> Generator[None]:
        """Save `chat` block by block, as long as the cache holds it and there is room."""
        blocks = list(split(chat.tokens, self._target.state_block, seconds))
        assign = self._writer.submit(self._files.assign, chat.name, blocks)
        for block in (yield from self._wait(assign)):
            while not self._busy.acquire(timeout=PASS_S):
                yield
            try:
                if common_prefix(self._target.tokens, chat.tokens) < block.end:
                    return
                state = self._target.save_state(block.start, block.end)
            finally:
                self._busy.release()
            if not (yield from self._wait(self._writer.submit(self._write, chat, block, state))):
                return
            yield  # a question may wait

    def _write(self, chat: CachedChat, block: KvBlock, state: State) -> bool:
        """Write a block; whether more of the chat may follow."""
        stored = self._files.add(chat.name, block, state)
        if not chat.offered():  # it was deleted meanwhile, and whoever did that has not seen this
            self._files.forget(chat.name)
            return False
        return stored

    def _wait(self, result: Future[T]) -> Generator[None, None, T]:
        """What the writer gives, waited for no longer than a pass at a time."""
        while wait([result], PASS_S).not_done:
            yield
        return result.result()

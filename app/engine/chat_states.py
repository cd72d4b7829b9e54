"""Saves and loads the KV cache of chats, so that a reopened chat need not be prefilled again.

States are saved in blocks, copied to memory while the model is idle and written on another thread,
so that no answer waits. `datastores.kv_blocks` keeps the files.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock
from time import monotonic, perf_counter
from typing import Protocol

from datastores.errors import SpecchatError
from datastores.kv_blocks import KvBlock, KvBlocks, State, split
from datastores.tokens import common_prefix
from engines.state_encoding import PASS_S, waited
from engines.target import ParkingTarget, SavableTarget, Target

LOGGER = logging.getLogger("specchat.chat_states")

MIN_READING_S = 0.1
"""Chats with a faster prefill are not saved.

`specchat ask -c` is a new process for each question: without a saved state, a full window (1,500
tokens) delayed the built-in model's first token from .4 to .8 s, and a chat of 260 tokens
SmolLM2's from 1.0 to 1.8 s."""
MIN_GAIN_TOKENS = 64
"""Fewer tokens are prefilled faster than files are opened, and are neither loaded nor saved."""
CLOSE_TIMEOUT_S = 2.0
"""Longest time for saving at the end."""


class ReadingTarget(Target, SavableTarget, Protocol):
    """A target whose cached tokens can be saved."""


@dataclass(frozen=True, slots=True)
class CachedChat:
    """A chat in the KV cache: its owner, the tokens to save, and whether it may still be saved,
    called on another thread."""

    name: str
    tokens: list[int]
    offered: Callable[[], bool]


class ChatStates:
    """The saved states of one model's chats. All methods run on the model's thread.

    Attributes:
        error: why nothing more is saved; None while saving works.
    """

    def __init__(
        self,
        target: ReadingTarget,
        busy: Lock,
        files: KvBlocks,
        min_reading_s: float = MIN_READING_S,
    ) -> None:
        """`busy` is the target's lock, which the caller of `load` holds."""
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
        """Load saved blocks of `prompt` that are not cached; yields the cached tokens after each.

        Blocks that cannot be loaded are left to prefill.
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
        """The saved blocks of `prompt` beyond the cached tokens; none where a parked text, which
        costs nothing to return to, has more of it than those."""
        cached = common_prefix(self._target.tokens, prompt)
        if isinstance(self._target, ParkingTarget) and self._target.cached_prefix(prompt) > cached:
            return []
        blocks = self._files.find(prompt, whole=not self._target.state_block)
        missing = [block for block in blocks if block.end > cached]
        if not missing or missing[-1].end > self._target.context_length:
            return []
        return missing if min(missing[-1].end, len(prompt)) - cached >= MIN_GAIN_TOKENS else []

    def observe(self, tokens: int, seconds: float) -> None:
        """Count a prefill of `tokens` in `seconds`."""
        self._read_tokens += max(0, tokens)
        self._read_s += seconds

    def keep(self, chat: str, length: int, offered: Callable[[], bool]) -> None:
        """Save the first `length` cached tokens as those of `chat`, when the model is idle."""
        seconds = self._read_s / max(1, self._read_tokens)
        if self.error is not None or length < MIN_GAIN_TOKENS:
            return
        if length * seconds >= self._min_reading_s:
            cached = CachedChat(chat, list(self._target.tokens[:length]), offered)
            self._saving = self._save(cached, seconds)

    def forget(self, chat: str) -> None:
        """Delete the saved state of `chat`, and stop saving.

        Raises:
            StoreError: it cannot be deleted.
        """
        self._saving = None
        self._writer.submit(self._files.forget, chat).result()

    def slice(self) -> bool:
        """Save for some hundredths of a second; returns whether there is more to do."""
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
        """Save the rest, unless that takes long."""
        deadline = monotonic() + CLOSE_TIMEOUT_S
        while self.slice() and monotonic() < deadline:
            pass
        self._saving = None
        self._writer.shutdown()

    def _save(self, chat: CachedChat, seconds: float) -> Generator[None]:
        """Save `chat` block by block, while the cache holds it and there is room."""
        blocks = list(split(chat.tokens, self._target.state_block, seconds))
        assign = self._writer.submit(self._files.assign, chat.name, blocks)
        for block in (yield from waited(assign, None)):
            while not self._busy.acquire(timeout=PASS_S):
                yield
            try:
                if common_prefix(self._target.tokens, chat.tokens) < block.end:
                    return
                state = self._target.save_state(block.start, block.end)
            finally:
                self._busy.release()
            written = self._writer.submit(self._write, chat, block, state)
            if not (yield from waited(written, None)):
                return
            yield  # a question may wait

    def _write(self, chat: CachedChat, block: KvBlock, state: State) -> bool:
        """Write a block; whether more of the chat may follow."""
        stored = self._files.add(chat.name, block, state)
        if not chat.offered():  # it was deleted meanwhile, and whoever did that has not seen this
            self._files.forget(chat.name)
            return False
        return stored

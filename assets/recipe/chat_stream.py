"""An endless stream of training chats, drawn in worker processes.

Each step has its own generator, seeded with the seed and the step's number, so its chats are the
same for any number of processes and wherever a run resumes. Chats are never reused, since a model
soon memorises what it sees again. Nothing here imports torch, which takes seconds.
"""

from __future__ import annotations

import signal
from collections.abc import Generator, Sequence
from dataclasses import dataclass, fields
from itertools import count, cycle, islice
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load, save
from tokenizers import Tokenizer

from assets.recipe.pages import read_pages, split
from assets.recipe.prepare import make_pool
from assets.recipe.tokens import Encoded, Indices, encode_chats, load_tokenizer
from assets.recipe.turns import Kind, Pool
from assets.recipe.wording import Style
from datastores.errors import InputError


@dataclass(frozen=True)
class EncodedChats:
    """Concatenated chats: the arrays of `Encoded`, each (n,), and their boundaries (chats + 1,)."""

    ids: NDArray[np.uint16]
    weights: NDArray[np.uint8]
    copied: Indices
    chosen: Indices
    starts: NDArray[np.int64]

    @classmethod
    def join(cls, chats: Sequence[Encoded]) -> EncodedChats:
        """Concatenate ``chats``."""
        starts = np.cumsum([0, *(len(chat.ids) for chat in chats)], dtype=np.int64)
        ids, weights, copied, chosen = map(np.concatenate, zip(*chats, strict=True))
        return cls(ids, weights, copied, chosen, starts)

    @classmethod
    def from_bytes(cls, data: bytes) -> EncodedChats:
        """Read the format of `to_bytes`."""
        return cls(**load(data))

    def to_bytes(self) -> bytes:
        """The arrays in the safetensors format."""
        return save({each.name: getattr(self, each.name) for each in fields(self)})


@dataclass(frozen=True)
class ChatSource:
    """Everything that determines the chats of every step.

    ``kind`` makes a chat; ``chats`` is the number of chats in a step; chats of more than
    ``longest`` tokens are skipped.
    """

    pages: Path
    tokenizer: Path
    kind: Kind
    chats: int
    longest: int
    seed: int

    def load(self) -> tuple[Pool, Tokenizer]:
        """The material and the tokenizer.

        Raises:
            InputError: the ``prepare`` step has not run.
        """
        if not self.tokenizer.exists():
            raise InputError(f"{self.tokenizer}: no tokenizer here; run the prepare step first")
        return make_pool(split(read_pages(self.pages))), load_tokenizer(self.tokenizer)

    def draw(self, pool: Pool, tokenizer: Tokenizer, step: int) -> EncodedChats:
        """The chats of ``step``, from 0."""
        rng = Random(f"{self.seed} {step}")
        drawn = (encode_chats(tokenizer, [self.kind(pool, rng, Style())])[0] for _ in count())
        fitting = (chat for chat in drawn if len(chat.ids) <= self.longest)
        return EncodedChats.join(list(islice(fitting, self.chats)))


def stream_chats(
    source: ChatSource, first: int, processes: int
) -> Generator[EncodedChats, None, None]:
    """The chats of step ``first`` and all later steps, drawn ahead by ``processes`` workers.

    Each worker waits until its last step has been consumed, so memory is bounded. Workers end when
    the iterator is closed or this process ends, however it ends.

    Raises:
        InputError: the ``prepare`` step has not run, or a process ended early.
    """
    source.load()
    context = get_context("spawn")
    workers, pipes = [], []
    try:
        for offset in range(processes):
            reader, writer = context.Pipe(duplex=False)
            arguments = (source, first + offset, processes, writer)
            workers.append(context.Process(target=_send, args=arguments, daemon=True))
            workers[-1].start()
            writer.close()
            pipes.append(reader)
        for pipe in cycle(pipes):
            yield EncodedChats.from_bytes(_receive(pipe))
    finally:
        for pipe in pipes:
            pipe.close()
        for worker in workers:
            worker.terminate()
            worker.join()


def _receive(pipe: Connection) -> bytes:
    try:
        return pipe.recv_bytes()
    except EOFError as error:
        raise InputError("a process that draws chats ended early; its error is above") from error


def _send(source: ChatSource, first: int, stride: int, pipe: Connection) -> None:
    """Send the chats of every ``stride``-th step until the reader closes the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pool, tokenizer = source.load()
    try:
        for step in count(first, stride):
            pipe.send_bytes(source.draw(pool, tokenizer, step).to_bytes())
    except BrokenPipeError:
        return

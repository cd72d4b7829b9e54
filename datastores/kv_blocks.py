"""Saved KV cache states of chats, as files, so that a reopened chat needs no prefill.

A text is cut into blocks. Each file holds the state of one block's tokens, and its name identifies
all tokens up to its start and to its end: `PARENT-OWN.kv`, where OWN = sha256(PARENT, tokens). So a
longer chat only adds blocks, and texts with a common prefix (chats with the same system prompt or
attached document) share them. Each key, which stands for everything that a state depends on (the
model, the build), has its own folder. A list for each chat names its blocks; blocks that no list
names are deleted, as are files of killed processes.

It is a cache: a damaged, truncated or foreign file is deleted, and its text is prefilled again.

    file: CRC-32 of the rest (8 hexadecimal digits), newline
          JSON {"key", "start", "seconds", "tokens"}, newline
          token ids, 4 bytes each, little-endian; the state
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from datastores.errors import StoreError
from datastores.storage.files import write_atomic, write_bytes_atomic
from datastores.tokens import common_prefix

LOGGER = logging.getLogger("specchat.kv_blocks")

ROOT = "0" * 32
"""The parent of a text's first block."""
BLOCK_SUFFIX, LIST_SUFFIX, LOCK_FILE = ".kv", ".json", "lock"
LOCK_TIMEOUT_S = 10.0
"""Longest wait for another process, which holds the lock while it writes at most one block."""
MAX_HEADER_BYTES = 1 << 12
_UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError)
"""Raised for a file that is missing, damaged or truncated."""

State = NDArray[np.uint8]
Ids = NDArray[np.uint32]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class KvBlock:
    """Consecutive tokens of a text.

    Attributes:
        parent: identifies all tokens before them.
        start: number of tokens before them.
        tokens: uint32 [n].
        seconds: time of their prefill.
    """

    parent: str
    start: int
    tokens: Ids
    seconds: float

    @property
    def own(self) -> str:
        """Identifies all tokens up to the last of these: the parent of the next block."""
        return hashlib.sha256(self.parent.encode() + self.tokens.tobytes()).hexdigest()[:32]

    @property
    def end(self) -> int:
        """Number of tokens up to the last of these."""
        return self.start + len(self.tokens)

    @property
    def name(self) -> str:
        """File name."""
        return f"{self.parent}-{self.own}{BLOCK_SUFFIX}"


@dataclass(frozen=True, slots=True)
class StoredStates:
    """What is stored for all keys: the number of `chats`, and their size in `bytes`."""

    chats: int
    bytes: int


def split(tokens: Sequence[int], size: int, seconds: float) -> Iterator[KvBlock]:
    """Cut `tokens` into blocks of `size`; 0 for one block.

    Args:
        seconds: prefill time of one token.
    """
    ids = np.asarray(tokens, "<u4")
    parent = ROOT
    for start in range(0, len(ids), size or len(ids)):
        part = ids[start : start + size] if size else ids
        block = KvBlock(parent, start, part, seconds * len(part))
        yield block
        parent = block.own


class KvBlocks:
    """The blocks of one key. Several processes and threads may use one folder at once.

    Methods that write raise StoreError if they cannot.
    """

    def __init__(self, root: Path, key: str, max_bytes: int) -> None:
        """Args:
        root: folder of all keys.
        max_bytes: limit for all keys together; the least recently used chats are dropped first.
        """
        self._root = root
        self._folder = root / hashlib.sha256(key.encode()).hexdigest()[:32]
        self._key = key
        self._max_bytes = max_bytes

    def find(self, tokens: Sequence[int], *, whole: bool) -> list[KvBlock]:
        """The stored blocks that `tokens` start with, in order.

        The last one may match only in its first tokens, unless `whole`, which also leaves at least
        one token to evaluate.
        """
        ids = np.asarray(tokens, np.uint32).tolist()
        children = self._children()
        found: list[KvBlock] = []
        parent, start = ROOT, 0
        while True:
            rest = ids[start:]
            shared = {
                count: block
                for block in self._headers(children.get(parent, ()))
                for count in [common_prefix(block.tokens.tolist(), rest)]
                if not whole or count == len(block.tokens) < len(rest)
            }
            best = max(shared, default=0)
            if not best:
                return found
            block = shared[best]
            found.append(block)
            if best < len(block.tokens):
                return found
            parent, start = block.own, start + best

    def read(self, block: KvBlock) -> State:
        """The state of `block`.

        Raises:
            StoreError: the file is missing, damaged or of another key; it is deleted.
        """
        path = self._folder / block.name
        try:
            content = np.fromfile(path, np.uint8)
            head = bytes(content[: MAX_HEADER_BYTES + 16]).split(b"\n", 2)
            start = len(head[0]) + len(head[1]) + 2
            if int(head[0], 16) != zlib.crc32(content[len(head[0]) + 1 :].data):
                raise ValueError("checksum")
            if json.loads(head[1])["key"] != self._key:
                raise ValueError("key")
        except (*_UNREADABLE, IndexError) as error:
            self.drop(block)
            raise StoreError(f"{path} is damaged: its chat is read again") from error
        return content[start + block.tokens.nbytes :]

    def drop(self, block: KvBlock) -> None:
        """Delete a block that cannot be used."""
        with suppress(OSError):  # it is rejected again next time
            (self._folder / block.name).unlink()

    def assign(self, chat: str, blocks: Sequence[KvBlock]) -> list[KvBlock]:
        """Make `blocks` those of `chat`; returns those that are not stored yet."""
        with _locked(self._root):
            self._folder.mkdir(mode=0o700, exist_ok=True)
            names = [block.name for block in blocks]
            write_atomic(self._list(chat), [json.dumps({"chat": chat, "blocks": names})])
            _collect_garbage(self._folder)
            return [block for block in blocks if not (self._folder / block.name).exists()]

    def add(self, chat: str, block: KvBlock, state: State) -> bool:
        """Write a block assigned to `chat`; returns whether there was room for it."""
        facts = {
            "key": self._key,
            "start": block.start,
            "seconds": block.seconds,
            "tokens": len(block.tokens),
        }
        head = f"{json.dumps(facts)}\n".encode()
        pieces: list[bytes | memoryview] = [head, block.tokens.tobytes(), state.data]
        checksum = 0
        for piece in pieces:
            checksum = zlib.crc32(piece, checksum)
        with _locked(self._root):
            if not self._make_room(self._list(chat), sum(map(len, pieces))):
                return False
            path = self._folder / block.name
            write_bytes_atomic(path, [f"{checksum:08x}\n".encode(), *pieces])
            return True

    def forget(self, chat: str) -> None:
        """Delete blocks that only `chat` has."""
        if not self._root.exists():
            return
        with _locked(self._root):
            for folder in _folders(self._root):
                (folder / self._list(chat).name).unlink(missing_ok=True)
                _collect_garbage(folder)

    def _list(self, chat: str) -> Path:
        return self._folder / f"{hashlib.sha256(chat.encode()).hexdigest()[:32]}{LIST_SUFFIX}"

    def _children(self) -> dict[str, list[Path]]:
        children: dict[str, list[Path]] = {}
        for path in self._folder.glob(f"*{BLOCK_SUFFIX}"):
            children.setdefault(path.name.partition("-")[0], []).append(path)
        return children

    def _headers(self, paths: Sequence[Path]) -> Iterator[KvBlock]:
        for path in paths:
            try:
                with path.open("rb") as file:
                    file.readline(MAX_HEADER_BYTES)
                    facts = json.loads(file.readline(MAX_HEADER_BYTES))
                    tokens = np.frombuffer(file.read(4 * int(facts["tokens"])), "<u4")
                parent, start = path.name.partition("-")[0], int(facts["start"])
                block = KvBlock(parent, start, tokens, float(facts["seconds"]))
                if block.name != path.name:
                    raise ValueError(path.name)
            except _UNREADABLE as error:
                LOGGER.warning("%s is damaged: its chat is read again", path)
                LOGGER.info("%s: %r", path, error)
                with suppress(OSError):
                    path.unlink()
            else:
                yield block

    def _make_room(self, kept: Path, size: int) -> bool:
        """Delete the least recently used chats until `size` more bytes fit, but not the list `kept`
        and its blocks; none if these alone are too large. Returns whether there is room."""
        own = _size(kept) + sum(_size(self._folder / name) for name in _listed(kept))
        if own + size > self._max_bytes:
            return False
        others = [path for path in _lists(self._root) if path != kept]
        for path in sorted(others, key=lambda one: one.stat().st_mtime_ns):
            if stored(self._root).bytes + size <= self._max_bytes:
                break
            path.unlink()
            _collect_garbage(path.parent)
        return True


def stored(root: Path) -> StoredStates:
    """What is stored in the folder of all keys."""
    return StoredStates(
        sum(1 for _ in _lists(root)),
        sum(_size(path) for folder in _folders(root) for path in folder.iterdir()),
    )


def retain(root: Path, chats: set[str]) -> None:
    """Delete what does not belong to `chats`, for every key, and files of killed processes.

    Raises:
        StoreError: a file cannot be deleted; another call completes the work.
    """
    if not root.exists():
        return
    with _locked(root):
        for folder in _folders(root):
            for path in folder.glob(f"*{LIST_SUFFIX}"):
                if _chat(path) not in chats:
                    path.unlink()
            _collect_garbage(folder)


@contextmanager
def _locked(root: Path) -> Iterator[None]:
    """Hold the lock of all writers, and translate errors into StoreError."""
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        with FileLock(root / LOCK_FILE, timeout=LOCK_TIMEOUT_S, mode=0o600):
            yield
    except OSError as error:
        reason = error.strerror or "another process holds its lock"
        raise StoreError(
            f"cannot write {root}: {reason}; set chat_states.max_bytes = 0 to do without it"
        ) from error


def _collect_garbage(folder: Path) -> None:
    """Delete files that no list names, and the folder if it is empty. The caller holds the lock, so
    no file is being written."""
    lists = set(folder.glob(f"*{LIST_SUFFIX}"))
    named = {name for path in lists for name in _listed(path)}
    for path in folder.iterdir():
        if path not in lists and path.name not in named:
            path.unlink()
    if not lists:
        folder.rmdir()


def _folders(root: Path) -> list[Path]:
    return [path for path in root.iterdir() if path.is_dir()] if root.is_dir() else []


def _lists(root: Path) -> Iterator[Path]:
    return (path for folder in _folders(root) for path in folder.glob(f"*{LIST_SUFFIX}"))


def _listed(path: Path) -> list[str]:
    """The names of blocks in a list; empty if it is damaged."""
    return _read_list(path, lambda content: [str(name) for name in content["blocks"]], [])


def _chat(path: Path) -> str:
    """The chat that a list belongs to; empty if it is damaged."""
    return _read_list(path, lambda content: str(content["chat"]), "")


def _read_list(path: Path, read: Callable[[Any], T], damaged: T) -> T:
    try:
        return read(json.loads(path.read_text()))
    except _UNREADABLE:
        return damaged


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0

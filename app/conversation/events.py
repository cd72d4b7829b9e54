"""One conversation turn as data: a question with its attached files, and the events that answer it.

Events come in order: `Retrieved`, `Dropped`, `Prefilling`, `Wrote`, `Finished`. Their text is raw
model output and hostile until `app.sanitise` has cleaned it, which is up to whoever displays it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from app.conversation.statistics import Piece, Statistics
from app.indexing.passage_index import FoundPassage
from datastores.errors import InputError
from engines.budget.protocol import BudgetStatus
from engines.step import Step


@dataclass(frozen=True, slots=True)
class Retrieved:
    """Imported texts were searched; `passages` go before the question, none if none is relevant."""

    passages: tuple[FoundPassage, ...]


@dataclass(frozen=True, slots=True)
class Dropped:
    """The context was full: the model no longer sees the oldest `messages` messages."""

    messages: int


@dataclass(frozen=True, slots=True)
class Prefilling:
    """The prompt is being read: `done` of `total` tokens are in the KV cache."""

    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Wrote:
    """One forward pass produced text. Control tokens have none, so `pieces` may be empty."""

    pieces: tuple[Piece, ...]
    step: Step
    budget_status: BudgetStatus


@dataclass(frozen=True, slots=True)
class Finished:
    """The answer ended: `finish` is stop, length, context or interrupted.

    The same `seed`, settings and messages give the same answer again.
    """

    finish: str
    statistics: Statistics
    seed: int


Event = Retrieved | Dropped | Prefilling | Wrote | Finished


MAX_ATTACHMENT_BYTES = 4_000_000
"""No model's context holds more text than this."""
STANDARD_INPUT = "standard input"


def attach(text: str, files: Sequence[Path], piped: str = "") -> str:
    """`text` with the contents of `files`, then `piped`, before it, each under a name.

    Raises:
        InputError: a file is missing, too large or no text.
    """
    named = [(path.name, read_text(path)) for path in files]
    if piped.strip():
        named.append((STANDARD_INPUT, piped))
    parts = [f"File {name}:\n\n{content.rstrip()}\n" for name, content in named]
    return "\n".join([*parts, text])


def read_text(path: Path) -> str:
    """The text of a UTF-8 file.

    Raises:
        InputError: it is missing, too large or no text.
    """
    try:
        with path.open("rb") as file:
            return read_stream(file, str(path))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error


def read_stream(stream: BinaryIO, name: str) -> str:
    """The UTF-8 text in `stream`, which `name` names.

    Raises:
        InputError: it is too large or no text.
    """
    content = stream.read(MAX_ATTACHMENT_BYTES + 1)
    if len(content) > MAX_ATTACHMENT_BYTES:
        limit = MAX_ATTACHMENT_BYTES // 1_000_000
        raise InputError(f"{name} is larger than {limit} MB: attach a part of it")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{name} is not UTF-8 text: convert it first") from error

"""Writes a growing answer to the history while it is being generated, and reopens a stopped one.

The decoding thread only appends to lists in memory; a thread writes them at most every
`WRITE_INTERVAL_S`, so that a killed process loses less than a second of what it showed. A failing
disk never costs the answer: it stays in memory, and every later write includes all of it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence

from datastores.chats.history import History, no_message
from datastores.chats.records import (
    ASSISTANT,
    MESSAGE_COLUMNS,
    STREAMING,
    WHOLE,
    StoredMessage,
)
from datastores.errors import InputError, SpecchatError
from datastores.storage.files import process_id

WRITE_INTERVAL_S = 0.3
"""Interval of partial writes."""

_COPIED = MESSAGE_COLUMNS.removeprefix("id, ")
_REOPEN = f"INSERT INTO messages ({_COPIED}) SELECT {_COPIED} FROM messages WHERE id = ?"


def reopen_answer(history: History, message: int) -> StoredMessage:
    """Continue to write an answer that was cut off, under a new id.

    Everything made from its text (CREST, the index of passages) refers to the old id, and is out of
    date as soon as the answer continues.

    Raises:
        InputError: it is not such an answer, is still being written, or has a reply.
    """
    answer = history.message(message)
    if answer.role != ASSISTANT or answer.finish in (WHOLE, STREAMING):
        raise InputError("only an answer that was cut off can be continued")
    with history.store.writing() as db:
        below = "SELECT id FROM messages WHERE chat = ? AND parent = ?"
        if db.conn.execute(below, (answer.chat, message)).fetchone():
            raise InputError("only the last answer can be continued: regenerate this one")
        number = int(db.conn.execute(_REOPEN, (message,)).lastrowid or 0)
        if not db.conn.execute("DELETE FROM messages WHERE id = ?", (message,)).rowcount:
            raise no_message(message)
        writing = {"finish": STREAMING, "writer": process_id()}
        db.table("messages").update(number, writing)
        db.table("chats").update(answer.chat, {"active": number, "updated": time.time()})
    return history.message(number)


class AnswerWriter:
    """Writes one answer, from `finish=STREAMING` to its end.

    `append` and `close` must be called on one thread, that of the decode loop. Statistics are read
    on that thread too, shortly before a write is due, so their owner needs no lock.

    Attributes:
        error: why the last write failed; None if it succeeded.
    """

    def __init__(
        self,
        history: History,
        message: int,
        statistics: Callable[[], Mapping[str, object]],
        text: str = "",
        tokens: Sequence[int] = (),
    ) -> None:
        """Start writing into `message`, which already has `text` and `tokens`; `statistics` returns
        the answer's figures so far."""
        self.error: SpecchatError | None = None
        self._history = history
        self._message = message
        self._statistics = statistics
        self._figures: Mapping[str, object] = {}
        self._pieces = [text]
        self._tokens = list(tokens)
        self._written = 0
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._needs_figures = True
        self._thread = threading.Thread(target=self._run, name="answer-writer", daemon=True)
        self._thread.start()

    def append(self, text: str, tokens: Sequence[int]) -> None:
        """Append the next piece of the answer. Takes about a microsecond."""
        with self._lock:
            self._pieces.append(text)
            self._tokens.extend(tokens)
            if self._needs_figures:
                self._figures = self._statistics()
                self._needs_figures = False

    def trim(self, kept: Callable[[str, Sequence[int]], Sequence[int]]) -> None:
        """Replace the tokens by what `kept` returns for the text and the tokens."""
        with self._lock:
            self._tokens = list(kept("".join(self._pieces), self._tokens))

    def close(self, finish: str) -> None:
        """Write the whole answer with the reason why it ended, and stop the thread.

        Raises:
            StoreError: it could not be written. `text` and `tokens` still hold the answer, and
                `close` may be called again.
        """
        self._closing.set()
        self._thread.join()
        text, tokens, _ = self._snapshot()
        self._history.extend_message(self._message, text, tokens, self._statistics(), finish)
        self.error = None

    @property
    def text(self) -> str:
        """The answer so far."""
        return self._snapshot()[0]

    @property
    def tokens(self) -> tuple[int, ...]:
        """The token ids of the answer so far."""
        return self._snapshot()[1]

    def _run(self) -> None:
        """Write the answer every `WRITE_INTERVAL_S`, over a connection of this thread."""
        try:
            history = self._history.new_connection()
        except SpecchatError as error:
            self.error = error
            return
        try:
            while not self._closing.wait(WRITE_INTERVAL_S):
                self._write(history)
        finally:
            history.close()

    def _write(self, history: History) -> None:
        text, tokens, figures = self._snapshot()
        if len(tokens) == self._written:
            return
        try:
            history.extend_message(self._message, text, tokens, figures, STREAMING)
        except SpecchatError as error:
            self.error = error
            return
        self.error, self._written = None, len(tokens)

    def _snapshot(self) -> tuple[str, tuple[int, ...], Mapping[str, object]]:
        with self._lock:
            self._needs_figures = True
            return "".join(self._pieces), tuple(self._tokens), self._figures

"""One answer in the transcript: reading, thinking, growing, done.

Owns the text of the answer as it is shown: all streamed text enters through `append_fragment`,
which cleans it. Knows no widgets, no chats, no disk.

Tells a model's reasoning (`<think>…</think>`) from its answer, whole or still growing.

Owns the two tags and nothing else. Some chat templates open the tag in the prompt, so that the
answer only closes it: what stands before a `</think>` on a line of its own was reasoning all
along.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.segment import Segment
from rich.text import Text

from app.conversation.statistics import Piece, attributed_pieces
from app.interface.transcript.markdown import MarkdownStream, tinted_text
from app.interface.transcript.rows import Frame, Row, rows_of
from app.interface.transcript.styles import Line
from app.sanitise import clean

OPEN_TAG = "<think>"
CLOSE_TAG = "</think>"
_LONE_CLOSE = re.compile(rf"^[ \t]*{CLOSE_TAG}[ \t]*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ReasoningSplit:
    """`thinking`: the reasoning is still open."""

    thought: str
    answer: str
    thinking: bool


def split_reasoning(raw: str, *, growing: bool) -> ReasoningSplit:
    """The two parts of `raw`.

    While it is `growing`, the beginning of a tag at its end is held back, since the rest may come.
    """
    text = raw.lstrip()
    if text.startswith(OPEN_TAG):
        thought, closed, answer = text.removeprefix(OPEN_TAG).partition(CLOSE_TAG)
        if closed:
            return ReasoningSplit(thought.strip(), answer.lstrip(), False)
        return ReasoningSplit(_without_partial(thought, CLOSE_TAG, growing).strip(), "", growing)
    if lone := _LONE_CLOSE.search(raw):
        return ReasoningSplit(raw[: lone.start()].strip(), raw[lone.end() :].lstrip(), False)
    return ReasoningSplit(
        "", _without_partial(text, OPEN_TAG, growing and len(text) < len(OPEN_TAG)), False
    )


def _without_partial(text: str, tag: str, growing: bool) -> str:
    """`text` without the beginning of `tag` at its end."""
    if not growing:
        return text
    for length in range(min(len(tag) - 1, len(text)), 0, -1):
        if text.endswith(tag[:length]):
            return text[:-length]
    return text


GROWING = ""
"""`finish` of an answer that is still being written."""

ENDINGS = {
    GROWING: "",
    "stop": "",
    "interrupted": "■ stopped",
    "length": "■ cut off at the longest answer allowed (--max-tokens)",
    "context": "■ cut off: the context is full",
}
"""What stands under an answer, by how it ended."""

NOTHING_WRITTEN = "■ nothing was written"


class Answer:
    """The model's words.

    Attributes:
        message: id of the stored message; None until it is known.
        version: which of its versions this is; empty for the only one.
        finish: how it ended; `GROWING` while it does not.
        status: what is going on before the first word.
        note: what a reader should know before it; empty for nothing.
        folded: whether its reasoning is folded away.
        fold_row: the row that folds and unfolds the reasoning; None where there is none.
    """

    def __init__(
        self,
        text: str = "",
        finish: str = GROWING,
        message: int | None = None,
        runs: Sequence[object] = (),
    ) -> None:
        """`runs` tell who drafted which part of a stored text (`app.conversation.statistics`)."""
        self.message = message
        self.version = ""
        self.finish = finish
        self.status = ""
        self.note = ""
        self.folded = True
        self.fold_row: int | None = None
        self._text = clean(text)
        self._pieces: list[Piece] = []
        self._stored = text, runs
        self._frame: Frame | None = None
        self._flow: MarkdownStream | None = None
        self._flowed = ""
        self._rows: list[Row] = []

    @property
    def parts(self) -> ReasoningSplit:
        """The reasoning and the answer proper."""
        return split_reasoning(self._text, growing=self.finish == GROWING)

    def append_fragment(self, pieces: Iterable[Piece]) -> None:
        """Take what new tokens said, a piece for each."""
        cleaned = [Piece(clean(piece.text), piece.source) for piece in pieces]
        self._pieces.extend(cleaned)
        self._text += "".join(piece.text for piece in cleaned)
        self.status = ""

    def end(self, finish: str) -> None:
        """No more will come; lay out once more what was laid out in parts."""
        self.finish, self.status, self._flow = finish, "", None

    def rows(self, frame: Frame) -> list[Row]:
        if frame != self._frame:
            self._frame, self._flow = frame, None
        parts = self.parts
        rows = [_line(self.note, frame, "dim"), Row([])] if self.note else []
        rows += self._reasoning(parts, frame, len(rows))
        rows += self._body(parts, frame)
        if ending := self._ending(parts):
            rows += [*([Row([])] if rows else []), _line(ending, frame, "warning")]
        if self.status:
            rows.append(_line(self.status, frame, "dim"))
        if self.version:
            rows += [Row([]), _line(self.version, frame, "dim")]
        return [*rows, Row([])]

    def _reasoning(self, parts: ReasoningSplit, frame: Frame, above: int) -> list[Row]:
        self.fold_row = None
        if not parts.thought and not parts.thinking:
            return []
        self.fold_row = above
        rows = [_line(self._reasoning_title(parts), frame, "dim")]
        if not self.folded:
            text = Text(parts.thought, style=frame.look["quote"], overflow="fold", tab_size=4)
            for line in frame.look.lines(text, frame.width - 2):
                rows.append(Row([Segment("▏ ", frame.look["quote"]), *line]))
        return [*rows, Row([])]

    def _reasoning_title(self, parts: ReasoningSplit) -> str:
        mark = "▸" if self.folded else "▾"
        count = self._thought_pieces(parts)
        size = f"{count:,} tokens" if count else f"{len(parts.thought.split()):,} words"
        return f"{mark} thinking… {size}" if parts.thinking else f"{mark} thought for {size}"

    def _thought_pieces(self, parts: ReasoningSplit) -> int:
        """How many tokens came before the answer proper; 0 for a stored text, kept by runs."""
        if self._stored[0]:
            return 0
        left = len(self._text) - len(parts.answer)
        for count, piece in enumerate(self._pieces):
            if left <= 0:
                return count
            left -= len(piece.text)
        return len(self._pieces)

    def _body(self, parts: ReasoningSplit, frame: Frame) -> list[Row]:
        if frame.tinted and self._drafted():
            skipped = len(self._text) - len(parts.answer) if parts.thought else 0
            text = tinted_text(self._pieces, skipped, frame.look)
            return rows_of(frame.look.lines(text, frame.width))
        return self._flowing(parts.answer, frame)

    def _drafted(self) -> bool:
        """Whether it is known who drafted what; a stored text is only taken apart for this."""
        if not self._pieces:
            self._pieces = [
                Piece(clean(piece.text), piece.source) for piece in attributed_pieces(*self._stored)
            ]
        return bool(self._pieces)

    def _flowing(self, text: str, frame: Frame) -> list[Row]:
        """The answer as Markdown; blocks that stand keep their rows."""
        if self._flow is None or not text.startswith(self._flowed):
            self._flow, self._flowed, self._rows = MarkdownStream(frame.look, frame.width), "", []
        settled = self._flow.settled
        if text != self._flowed:
            self._flow.append_fragment(text[len(self._flowed) :])
            self._flowed = text
            self._rows[settled:] = rows_of(self._flow.lines[settled:])
        return list(self._rows)

    def _ending(self, parts: ReasoningSplit) -> str:
        if self.finish == "stop" and not parts.answer.strip():
            return NOTHING_WRITTEN
        return ENDINGS.get(self.finish, "")


def _line(text: str, frame: Frame, kind: str) -> Row:
    line: Line = [Segment(text[: frame.width], frame.look[kind])]
    return Row(line)

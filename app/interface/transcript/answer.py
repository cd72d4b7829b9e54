"""One answer in the transcript: growing or complete, its reasoning folded or not.

All streamed text enters through `Answer.append_fragment`, which sanitises it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from rich.segment import Segment
from rich.text import Text

from app.conversation.citations import MAX_PLACE, Citation, SearchOutcome
from app.conversation.statistics import Piece, attributed_pieces
from app.interface.cells import keep_end, keep_start
from app.interface.draft_origins import ORIGINS
from app.interface.transcript.markdown import MarkdownStream
from app.interface.transcript.plain_text import (
    NO_TEXT,
    TAB_SIZE,
    PlainText,
    TextCollector,
    mark_of,
    spans_of,
)
from app.interface.transcript.rows import Layout, Row, rows_of
from app.interface.transcript.styles import Line, Styles
from app.interface.wording import duration, wrapped
from app.sanitise import StreamCleaner, clean, one_line
from engines.chat_template.reasoning import ReasoningSplit, split_reasoning

GROWING = ""
"""`finish` of an answer that is being generated."""

ENDINGS = {
    GROWING: "",
    "stop": "",
    "interrupted": "■ stopped",
    "failed": "■ failed",
    "length": "■ cut off: the maximum answer length (--max-tokens) is reached",
    "context": "■ cut off: the context is full",
    "repetition": "■ stopped: it repeated itself",
}
"""The line below an answer, by its `finish`."""

REASONING_TEXT = 0
"""Index of the reasoning among the texts, folded or not."""

FIRST_TEXT = 1
"""Index of the first text of the answer proper."""

NOTHING_WRITTEN = "■ empty answer"
WORDED = "In the words of your own texts, not the model's."
NOT_ENCODED = "In the model's own words: your texts are not indexed yet."


class Answer:
    """An answer of the model.

    Attributes:
        message: id of the stored message; None until it is stored.
        version: which of several versions this is, as text.
        finish: how it ended; `GROWING` until then.
        status: what the model is doing before the first token.
        note: a line above the answer.
        fold_row: the row that folds and unfolds the reasoning, if any.
        citations: the passages that it used, or the sources of its words.
        outcome: what else searching imports brought; None if they were not searched.
        remark: a warning below the answer.
        states: number of datastore entries that KNN-LM interpolated with; None without KNN-LM.
        citation_rows: index of the citation by the row that shows it.
        texts: what can be selected, once laid out; the reasoning comes first.
    """

    def __init__(
        self,
        text: str = "",
        finish: str = GROWING,
        message: int | None = None,
        runs: Sequence[object] = (),
    ) -> None:
        """`runs` are the origins of a stored text (`app.conversation.statistics`)."""
        self.message = message
        self.version = ""
        self.finish = finish
        self.status = ""
        self.note = ""
        self.folded = True
        self.fold_row: int | None = None
        self.citations: Sequence[Citation] = ()
        self.remark = ""
        self.outcome: SearchOutcome | None = None
        self.states: int | None = None
        self.citation_rows: dict[int, int] = {}
        self.texts: list[PlainText] = [NO_TEXT]
        self._cleaner = StreamCleaner()
        self._text = clean(text)
        self._pieces: list[Piece] = []
        self._piece_seconds: list[float] = []
        self._stored = text, runs
        self._layout: Layout | None = None
        self._stream: MarkdownStream | None = None
        self._streamed = ""
        self._rows: list[Row] = []

    @property
    def parts(self) -> ReasoningSplit:
        """The text, split into reasoning and answer."""
        return split_reasoning(self._text, growing=self.finish == GROWING)

    def resume(self, pieces: Iterable[Piece]) -> None:
        """Continue after `pieces`, which are the whole text so far."""
        self._pieces = self._cleaned(pieces)
        self._text = "".join(piece.text for piece in self._pieces)
        self._stored = self._text, ()

    def cite(self, citations: Sequence[Citation]) -> None:
        """Add the results of a search to the citations."""
        new = (one for one in citations if one not in self.citations)
        self.citations = [*self.citations, *new]

    def append_fragment(self, pieces: Iterable[Piece], seconds: Iterable[float] = ()) -> None:
        """Append the text of new tokens, one piece per token, and the seconds that each took."""
        cleaned = self._cleaned(pieces)
        self._pieces.extend(cleaned)
        self._piece_seconds.extend(seconds)
        self._text += "".join(piece.text for piece in cleaned)
        self.status = ""

    def _cleaned(self, pieces: Iterable[Piece]) -> list[Piece]:
        return [Piece(self._cleaner.clean(piece.text), piece.origin) for piece in pieces]

    def toggle_folds(self) -> None:
        """Fold or unfold the reasoning."""
        self.folded = not self.folded

    def end(self, finish: str) -> None:
        """Complete the answer, which is then laid out again as a whole."""
        self.finish, self.status, self._stream = finish, "", None

    def rows(self, layout: Layout) -> list[Row]:
        if layout != self._layout:
            self._layout, self._stream = layout, None
        parts = self.parts
        notes = (self._wording(), self.note)
        rows = [row for note in notes for row in _wrapped(note, layout, "dim")]
        rows += [Row([])] if rows else []
        rows += self._reasoning(parts, layout, len(rows))
        rows += self._body(parts, layout)
        for ending in filter(None, (self._ending(parts), self.remark)):
            rows += [*([Row([])] if rows else []), *_wrapped(ending, layout, "warning")]
        rows += self._origins(layout, len(rows))
        if self.status:
            rows.append(_line(self.status, layout, "dim"))
        if self.version:
            rows += [Row([]), _line(self.version, layout, "dim")]
        return [*rows, Row([])]

    def _wording(self) -> str:
        if self.states is None:
            return ""
        return WORDED if self.states else NOT_ENCODED

    def _origins(self, layout: Layout, above: int) -> list[Row]:
        """What searching brought and the numbered citations of a complete answer, below an empty
        row."""
        self.citation_rows = {}
        if self.finish == GROWING:
            return []
        lines = [
            f"[{number}] {_shortened(cited, layout.width - 4)}"
            for number, cited in enumerate(self.citations, start=1)
        ]
        said = self.outcome.lines(len(lines)) if self.outcome is not None else []
        rows = [row for line in said for row in _wrapped(line, layout, "dim")]
        first = above + bool(above) + len(rows)
        self.citation_rows = {first + index: index for index in range(len(lines))}
        rows += [_line(line, layout, "dim") for line in lines]
        return [*([Row([])] if above and rows else []), *rows]

    def _reasoning(self, parts: ReasoningSplit, layout: Layout, above: int) -> list[Row]:
        self.fold_row = None
        self.texts = [NO_TEXT]
        if not parts.reasoning and not parts.thinking:
            return []
        self.fold_row = above
        rows = [_line(self._reasoning_title(parts), layout, "dim")]
        if not self.folded:
            collector, quote = TextCollector(REASONING_TEXT), layout.styles["quote"]
            text = collector.add(Text(parts.reasoning, style=quote, overflow="fold"))
            inner = layout.styles.lines(text, layout.width - 2)
            lines = [[Segment("▏ ", quote), *line] for line in inner]
            self.texts = collector.texts
            rows += rows_of(lines, spans_of(lines, self.texts))
        return [*rows, Row([])]

    def _reasoning_title(self, parts: ReasoningSplit) -> str:
        mark = "▸" if self.folded else "▾"
        count = self._reasoning_tokens(parts)
        number, unit = (count, "token") if count else (len(parts.reasoning.split()), "word")
        size = f"{number:,} {unit}{'s' * (number != 1)}"
        if parts.thinking:
            return f"{mark} Thinking… {size}"
        seconds = sum(self._piece_seconds[:count])
        return (
            f"{mark} Thought for {duration(seconds)} ({size})"
            if seconds
            else f"{mark} Thought ({size})"
        )

    def _reasoning_tokens(self, parts: ReasoningSplit) -> int:
        """Tokens before the answer proper; 0 for a stored text, whose tokens are not known."""
        if self._stored[0]:
            return 0
        left = parts.start
        for count, piece in enumerate(self._pieces):
            if left <= 0:
                return count
            left -= len(piece.text)
        return len(self._pieces)

    def _body(self, parts: ReasoningSplit, layout: Layout) -> list[Row]:
        if layout.highlight_origins and self._has_origins():
            pieces = _between(self._pieces, parts.start, parts.end)
            text, plain = highlighted(pieces, layout.styles)
            lines = layout.styles.lines(text, layout.width)
            self.texts.append(plain)
            return rows_of(lines, spans_of(lines, [plain], FIRST_TEXT))
        rows = self._markdown(parts.answer, layout)
        self.texts += self._stream.texts if self._stream is not None else []
        return rows

    def _has_origins(self) -> bool:
        """Whether the origins are known; divides a stored text into pieces on demand."""
        if not self._pieces:
            self._pieces = self._cleaned(attributed_pieces(*self._stored))
        return bool(self._pieces)

    def _markdown(self, text: str, layout: Layout) -> list[Row]:
        """The answer as Markdown; complete blocks keep their rows."""
        if self._stream is None or not text.startswith(self._streamed):
            self._stream = MarkdownStream(layout.styles, layout.width, FIRST_TEXT)
            self._streamed, self._rows = "", []
        stable = self._stream.stable_lines
        if text != self._streamed:
            self._stream.append_fragment(text[len(self._streamed) :])
            self._streamed = text
            self._rows[stable:] = rows_of(self._stream.lines[stable:], self._stream.spans[stable:])
        return list(self._rows)

    def _ending(self, parts: ReasoningSplit) -> str:
        if self.finish == "stop" and not parts.answer.strip():
            return NOTHING_WRITTEN
        return ENDINGS.get(self.finish, "")


def _shortened(cited: Citation, columns: int) -> str:
    """The place of a citation; a long one keeps its end, or the beginning of a chat's title."""
    place = one_line(cited.place, MAX_PLACE)
    return keep_start(place, columns) if cited.chat else keep_end(place, columns)


def _wrapped(text: str, layout: Layout, kind: str) -> list[Row]:
    return [_line(line, layout, kind) for line in wrapped(text, layout.width)]


def _line(text: str, layout: Layout, kind: str) -> Row:
    line: Line = [Segment(keep_start(text, layout.width), layout.styles[kind])]
    return Row(line)


def highlighted(pieces: Iterable[Piece], styles: Styles) -> tuple[Text, PlainText]:
    """The text of `pieces` coloured by origin, and the text to copy.

    Each run begins with the small letter of its origin, for those who cannot tell the colours
    apart; the letters are not copied. Markdown is not laid out.
    """
    text, mark, plain = Text(overflow="fold"), mark_of(FIRST_TEXT), ""
    for origin, group in groupby(pieces, key=lambda piece: piece.origin):
        run = "".join(piece.text for piece in group).expandtabs(TAB_SIZE)
        plain += run
        known = ORIGINS.get(origin)
        if known is None:
            text.append(run, styles["dim"] + mark)
            continue
        letter, words = styles.origin_styles[origin]
        word = run.lstrip()
        text.append(run[: len(run) - len(word)], mark)
        text.append(known.small if word else "", letter)
        text.append(word, words + mark)
    return text, PlainText(plain, plain)


def _between(pieces: Iterable[Piece], start: int, end: int) -> Iterator[Piece]:
    """The part of `pieces` between the characters `start` and `end` of their text."""
    at = 0
    for piece in pieces:
        text = piece.text[max(0, start - at) : max(0, end - at)]
        at += len(piece.text)
        if text:
            yield Piece(text, piece.origin)

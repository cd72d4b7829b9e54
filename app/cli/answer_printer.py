"""Prints the answer to a question while it comes: text, progress, warnings, citations, figures.

Signals stop the answer here, since what was printed by then is kept.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass, field
from types import FrameType
from typing import TYPE_CHECKING

import click

from app.cli.output import MAX_LINE_CHARACTERS, StatusLine
from app.conversation.citations import (
    SEARCH_KEY,
    SOURCES_KEY,
    SearchOutcome,
    Source,
    citation,
    citation_records,
)
from app.conversation.events import (
    MIN_PREFILL_TOKENS,
    Checking,
    Cited,
    Dropped,
    Event,
    Finished,
    Interpolated,
    Opened,
    Prefilling,
    Remarked,
    Speculated,
    Warned,
    WroteText,
)
from app.conversation.statistics import REMARK_KEY, STATES_KEY
from app.figures import amount
from app.sanitise import StreamCleaner, one_line
from datastores.chats.records import INTERRUPTED, LOOPED
from engines.chat_template.reasoning import AnswerStream, ReasoningSplit, split_reasoning

if TYPE_CHECKING:
    from app.indexing.passage_index import FoundPassage
    from engines.ralm.events import RalmStatistics

EXIT_INTERRUPTED = 130
STOPPING = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
"""Signals that stop an answer; Windows has no SIGHUP."""
WORDED = "In the words of your own texts, not the model's (--docs knn)."
NOT_ENCODED = (
    "Answered in the model's own words: none of your texts is indexed for --docs knn yet. Leave"
    " `specchat` open and idle to index them."
)
NOTHING_IMPORTED = "No imports to answer from. Add your files with `specchat import PATH…`."

REPEATED = "Stopped: the answer repeated itself."

ONLY_REASONING = "It ended within its reasoning, before an answer (--json prints it)."

SHOWN, AS_JSON, HIDDEN = "shown", "json", "hidden"
"""What is printed of an answer; warnings, progress and citations always are."""

Write = Callable[[str], object]


def _warn(error: object) -> None:
    click.echo(str(error), err=True)


@contextmanager
def stopping(stop: Callable[[], object]) -> Iterator[list[int]]:
    """Within this, the first of the `STOPPING` signals calls `stop`, which ends the answer; a
    second one ends the program. Yields the list of signals received."""
    received: list[int] = []
    before = {number: signal.getsignal(number) for number in STOPPING}

    def handle(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        stop()
        restore()

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, handle)
    try:
        yield received
    finally:
        restore()


@contextmanager
def printing(*, formatted: bool) -> Iterator[Write]:
    """Yields a function that prints the next fragment of the answer.

    Args:
        formatted: render Markdown if standard output is a terminal that can redraw lines.
    """
    if formatted and sys.stdout.isatty() and os.environ.get("TERM") not in ("dumb", "unknown"):
        # Imported here: a pipe needs neither Rich nor a parser.
        from app.cli.markdown import MarkdownPrinter

        with closing(MarkdownPrinter()) as printer:
            yield printer.write
    else:
        cleaner = StreamCleaner()
        yield lambda text: click.echo(cleaner.clean(text), nl=False)
        click.echo()


@dataclass(slots=True)
class ReceivedAnswer:
    """An answer as it is received.

    Attributes:
        end: None until the answer ends.
        passages: passages that it used.
        outcome: what else searching brought; None if nothing was searched.
        states: number of datastore entries that KNN-LM used; None without KNN-LM.
        sources: of words that KNN-LM took from them.
        retrieval: figures of retrieval during generation.
        remark: a remark on the answer, or empty.
    """

    opened: Opened = field(default_factory=lambda: Opened(""))
    parts: ReasoningSplit = field(default_factory=lambda: split_reasoning(""))
    end: Finished | None = None
    passages: Sequence[FoundPassage] = ()
    outcome: SearchOutcome | None = None
    states: int | None = None
    sources: Sequence[Source] = ()
    retrieval: RalmStatistics | None = None
    remark: str = ""


class AnswerPrinter:
    """Prints an answer as its events come, and what is to be said about it."""

    def __init__(self, shown: str, *, formatted: bool, expected: bool) -> None:
        """Args:
        shown: the answer's text as it comes (`SHOWN`), one JSON object at its end (`AS_JSON`), or
            neither (`HIDDEN`).
        formatted: render Markdown on a terminal.
        expected: warn if there are no passages.
        """
        self.answer = ReceivedAnswer()
        self._shown, self._formatted, self._expected = shown, formatted, expected
        self._stream, self._status = AnswerStream(), StatusLine()
        self._write: Write | None = None

    def print_all(self, events: Iterator[Event], stop: Callable[[], object]) -> int:
        """Print the answer to its end, and return the exit code.

        A signal calls `stop`, from the beginning of the answer to its end.
        """
        received: list[int] = []
        with ExitStack() as writing:
            writing.callback(self._status.clear)
            for event in events:
                if isinstance(event, Opened):
                    received = writing.enter_context(stopping(stop))
                    if self._shown == SHOWN:
                        self._write = writing.enter_context(printing(formatted=self._formatted))
                self._take(event)
                if isinstance(event, Finished):
                    writing.close()
                    self._print_end(event)
        end = self.answer.end
        if end is None or end.finish != INTERRUPTED:
            return 0
        return 128 + received[0] if received else EXIT_INTERRUPTED

    def _take(self, event: Event) -> None:
        answer, status = self.answer, self._status
        if isinstance(event, Opened):
            answer.opened = event
            for restriction in event.restrictions:
                _warn(one_line(restriction, MAX_LINE_CHARACTERS))
        elif isinstance(event, Warned):
            _warn(one_line(event.text, MAX_LINE_CHARACTERS))
        elif isinstance(event, Cited):
            answer.passages, answer.outcome = event.passages, event.outcome
        elif isinstance(event, Speculated):
            answer.retrieval = event.figures
        elif isinstance(event, Remarked):
            answer.remark = event.text
        elif isinstance(event, Interpolated):
            answer.states, answer.retrieval = event.states, event.figures
            answer.sources = event.sources
        elif isinstance(event, Dropped):
            status.clear()
            click.echo(f"the oldest {event.messages} messages no longer fit", err=True)
        elif isinstance(event, Checking):
            status.show(f"checking passage {event.number} of {event.total}…")
        elif isinstance(event, Prefilling) and event.total - event.done >= MIN_PREFILL_TOKENS:
            status.show(f"reading {event.done:,} of {event.total:,} tokens…")
        elif isinstance(event, WroteText):
            self._show(self._stream.append("".join(piece.text for piece in event.pieces)))
        elif isinstance(event, Finished):
            self._show(self._stream.append("", last=True))
            answer.end, answer.parts = event, self._stream.split

    def _show(self, text: str) -> None:
        split = self._stream.split
        if split.thinking:
            self._status.show(f"thinking… {amount(len(split.reasoning.split()), 'word')}")
        elif text and self._write is not None:
            self._status.clear()
            self._write(text)

    def _print_end(self, end: Finished) -> None:
        """Print the JSON object, or the citations and what else a person should know."""
        answer = self.answer
        if self._expected and answer.outcome is None:
            _warn(NOTHING_IMPORTED)
        if answer.states is not None:
            click.echo(WORDED if answer.states else NOT_ENCODED, err=True)
        if self._shown == AS_JSON:
            click.echo(json.dumps(report(answer, end)))
            return
        if end.finish == LOOPED:
            _warn(REPEATED)
        if answer.parts.reasoning and not answer.parts.answer:
            click.echo(ONLY_REASONING, err=True)
        if answer.remark and answer.remark not in answer.opened.restrictions:  # already printed
            _warn(answer.remark)
        for line in answer.outcome.lines(len(answer.passages)) if answer.outcome else ():
            click.echo(line, err=True)
        for number, cited in enumerate((*map(citation, answer.passages), *answer.sources), 1):
            place = one_line(cited.place, MAX_LINE_CHARACTERS)
            click.echo(f"[{number}] {place}", err=True)


def report(answer: ReceivedAnswer, end: Finished) -> dict[str, object]:
    """The object `ask --json` prints."""
    statistics = end.statistics
    return {
        "text": answer.parts.answer,
        **({"reasoning": answer.parts.reasoning} if answer.parts.reasoning else {}),
        "citations": citation_records(answer.passages),
        **({SEARCH_KEY: asdict(answer.outcome)} if answer.outcome is not None else {}),
        **_borrowed(answer),
        **({REMARK_KEY: answer.remark} if answer.remark else {}),
        "finish_reason": end.finish,
        "model": answer.opened.model,
        "seed": end.seed,
        "prompt_tokens": statistics.prompt_tokens,
        "tokens": statistics.tokens,
        "steps": statistics.steps,
        "drafted": statistics.drafted,
        "longest_drafted": statistics.longest_drafted,
        "accepted": statistics.accepted,
        "tokens_per_step": statistics.tokens_per_step,
        "acceptance_rate": statistics.acceptance_rate,
        "seconds": statistics.seconds,
        "tokens_per_second": statistics.tokens_per_second,
        "first_token_seconds": statistics.first_token_seconds,
        "overhead_seconds": statistics.overhead_seconds,
        "by_drafter": statistics.by_origin,
        **({"retrieval": asdict(answer.retrieval)} if answer.retrieval is not None else {}),
    }


def _borrowed(answer: ReceivedAnswer) -> dict[str, object]:
    """What KNN-LM brought; nothing without it."""
    if answer.states is None:
        return {}
    return {STATES_KEY: answer.states, SOURCES_KEY: list(map(asdict, answer.sources))}

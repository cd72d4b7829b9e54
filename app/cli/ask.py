"""`specchat ask`: one question, one answer, on standard output.

Runs the same turn as the interface, on the same history. Loads neither Textual nor torch.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from types import FrameType

import click

from app.chat_settings import (
    DOCS_ITERATIVE,
    DOCS_MODES,
    DOCS_OFF,
    DOCS_ONCE,
    DocsSetting,
    require_sequences,
    unescaped,
)
from app.cli.global_options import import_option
from app.cli.output import MAX_LINE_CHARACTERS, StatusLine
from app.cli.question import read_question
from app.cli.stores import open_history, open_library
from app.config import Options
from app.conversation.assistant import Assistant
from app.conversation.citations import SEARCH_KEY, SearchOutcome, citation, citation_records
from app.conversation.events import (
    MIN_PREFILL_TOKENS,
    Cited,
    Dropped,
    Event,
    Finished,
    Interpolated,
    Prefilling,
    Remarked,
    Speculated,
    Wrote,
)
from app.conversation.statistics import REMARK_KEY, STATES_KEY
from app.engine.engine import Engine
from app.figures import amount
from app.foreground import Foreground
from app.indexing.indexer import catch_up
from app.indexing.passage_index import FoundPassage
from app.locations import Locations, locate
from app.runtime.deletion import delete_chat
from app.runtime.model_thread import ModelThread
from app.runtime.open_model import open_for_one_answer
from app.sanitise import StreamCleaner, one_line
from datastores.chats.history import History
from datastores.chats.records import ASSISTANT, INTERRUPTED, Chat
from datastores.errors import InputError, SpecchatError, StoreError
from engines.chat_template.reasoning import AnswerStream, ReasoningSplit
from engines.ralm.events import RalmStatistics
from engines.step import FINISH_REPETITION

EXIT_INTERRUPTED = 130
STOPPING = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
"""Signals that stop an answer; Windows has no SIGHUP."""
WORDED = "In the words of your imports, not the model's own (--docs knn)."
NOT_ENCODED = (
    "Answered in the model's own words: no import is indexed for --docs knn yet. Leave `specchat`"
    " open and idle to index them."
)
NOTHING_IMPORTED = "No imports to answer from. Add your files with `specchat import PATH…`."

REPEATED = "Stopped: the answer repeated itself."

ONLY_REASONING = "It ended within its reasoning, before an answer (--json prints it)."

Write = Callable[[str], object]


@click.command()
@click.argument("words", nargs=-1, metavar="[QUESTION]…")
@click.option(
    "-a",
    "-f",
    "--attach",
    "--file",
    "files",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Attach a text, a PDF, a web page or a folder of these; repeatable.",
)
@click.option("-c", "--continue", "continued", is_flag=True, help="Continue the last chat.")
@click.option("-s", "--system", default="", metavar="TEXT", help="System prompt of the new chat.")
@click.option("--no-save", "unsaved", is_flag=True, help="Do not store this chat.")
@click.option(
    "--docs",
    type=click.Choice(DOCS_MODES),
    help="How to use your imports: search them once for the question, search again every few words"
    " (iterative), answer in their words (knn: changes what the model writes), or not at all (off)."
    "  [default: the chat's setting, else `docs` in the settings]",
)
@import_option
@click.option(
    "--stop",
    "sequences",
    multiple=True,
    metavar="TEXT",
    help=r"Stop sequence: end the answer before this text, in which \n is a new line; repeatable.",
)
@click.option(
    "-n", "--no-stdin", is_flag=True, help="Leave standard input alone, as in a loop that reads it."
)
@click.option("--raw", is_flag=True, help="Print plain text, without rendering Markdown.")
@click.option("--json", "as_json", is_flag=True, help="Print text and figures as one JSON object.")
@click.pass_context
def ask(
    context: click.Context,
    words: tuple[str, ...],
    files: tuple[Path, ...],
    continued: bool,
    system: str,
    unsaved: bool,
    docs: str | None,
    chosen: tuple[str, ...],
    sequences: tuple[str, ...],
    no_stdin: bool,
    raw: bool,
    as_json: bool,
) -> None:
    """Ask one question and print the answer.

    QUESTION needs no quotes. Piped text goes before it, like an attached file; without QUESTION, or
    with -, the piped text is the question. A file that a loop is reading (`while read`) is left
    alone; where a loop reads a pipe, use -n. Markdown is formatted on a terminal only.
    """
    options: Options = context.ensure_object(Options)
    if system and continued:
        raise InputError("--system is for a new chat: leave out --continue")
    sequences = require_sequences(tuple(map(unescaped, sequences)), "--stop")
    text, attachments = read_question(words, files, sys.stdin if not no_stdin else None)
    locations = locate(options.data_dir)
    used = _used(chosen, docs, locations)
    with open_history(locations) as history:
        model_thread = ModelThread(
            lambda _: open_for_one_answer(options, locations, history, used, sequences),
            Foreground(locations.foreground),
        )
        engine, assistant = load(model_thread)
        for restriction in engine.restrictions:
            _warn(one_line(restriction, MAX_LINE_CHARACTERS))
        reported = _report_errors(engine, ())
        with stopping(model_thread) as stopped, ExitStack() as place:
            if unsaved:
                parent = history.last_chat().active if continued else None
                begin = partial(assistant.answer_unsaved, parent, text, system, attachments)
            else:
                chat = place.enter_context(_chat(history, locations, engine, continued, system))
                begin = partial(assistant.answer, chat.id, chat.active, text, attachments)
            write = None if as_json else place.enter_context(printing(formatted=not raw))
            answer = converse(model_thread, begin, write)
        _print_end(engine, answer, as_json, expected=docs in (DOCS_ONCE, DOCS_ITERATIVE))
        reported = _report_errors(engine, reported)
        with _warning(reported):
            model_thread.close()
        reported = _report_errors(engine, reported)  # the replay buffer is written until then
        if not unsaved:
            with _warning(reported):
                _index_exchange(history, chat.id, locations, engine)
    if answer.end.finish == INTERRUPTED:
        context.exit(128 + stopped[0] if stopped else EXIT_INTERRUPTED)


def _index_exchange(history: History, chat: int, locations: Locations, engine: Engine) -> None:
    question = history.message(history.chat(chat).active or 0).parent or 0
    catch_up(locations, engine.path, engine.vocabulary, engine.crest_bytes, question - 1)


def _used(chosen: Sequence[str], docs: str | None, locations: Locations) -> str:
    """The `DocsSetting` of the options, as it is stored; empty if neither was given.

    Raises:
        InputError: there is no such import, or `docs` is off.
    """
    if not chosen:
        return docs or ""
    if docs == DOCS_OFF:
        raise InputError("--import needs --docs once, iterative or knn: leave out --docs off")
    # Imported here: without --import, importing is not needed.
    from app.importing.names import path_of

    with open_library(locations) as library:
        names = library.names()
    return str(DocsSetting(docs or DOCS_ONCE, tuple(path_of(one, names) for one in chosen)))


def _report_errors(engine: Engine, reported: Sequence[str]) -> list[str]:
    """Print errors of the engine that are not in `reported`; returns all of them."""
    errors = [str(error) for error in engine.errors]
    for error in errors:
        if error not in reported:
            _warn(error)
    return errors


@contextmanager
def _warning(reported: Sequence[str]) -> Iterator[None]:
    """Print a store's failure as a warning, unless it was `reported`: the answer is complete."""
    try:
        yield
    except StoreError as error:
        if str(error) not in reported:
            _warn(error)


def _warn(error: object) -> None:
    click.echo(str(error), err=True)


@contextmanager
def _chat(
    history: History, locations: Locations, engine: Engine, continued: bool, system: str
) -> Iterator[Chat]:
    """The last chat, or a new one, which is deleted if the turn fails before there is an answer."""
    if continued:
        yield history.last_chat()
        return
    chat = history.create_chat(system=system)
    try:
        yield chat
    except (SpecchatError, OSError):
        if not any(one.role == ASSISTANT and one.content for one in history.thread(chat.id)):
            with _warning(()):
                delete_chat(history, locations, chat.id, engine)
        raise


def load(model_thread: ModelThread) -> tuple[Engine, Assistant]:
    """Load the model and return its engine and its assistant.

    Raises:
        SpecchatError: the model cannot be used.
    """
    model_thread.load().result()
    model = model_thread.model
    assert model is not None
    assert model.engine is not None
    assert isinstance(model.assistant, Assistant)
    return model.engine, model.assistant


@contextmanager
def stopping(model_thread: ModelThread) -> Iterator[list[int]]:
    """Within this, the first of the `STOPPING` signals stops the answer and keeps it; a second one
    ends the program. Yields the list of signals received."""
    received: list[int] = []
    before = {number: signal.getsignal(number) for number in STOPPING}

    def stop(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        model_thread.stop()
        restore()

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, stop)
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
class PrintedAnswer:
    """A finished answer.

    Attributes:
        passages: passages that it used.
        outcome: what else searching brought; None if nothing was searched.
        states: number of datastore entries that KNN-LM used; None without KNN-LM.
        retrieval: figures of retrieval during generation.
        remark: a remark on the answer, or empty.
    """

    end: Finished
    parts: ReasoningSplit
    passages: Sequence[FoundPassage] = ()
    outcome: SearchOutcome | None = None
    states: int | None = None
    retrieval: RalmStatistics | None = None
    remark: str = ""


def converse(
    model_thread: ModelThread, begin: Callable[[], Generator[Event]], write: Write | None
) -> PrintedAnswer:
    """Run the turn that `begin` starts, pass the answer to `write` as it comes, and return it."""
    stream, status = AnswerStream(), StatusLine()
    passages: Sequence[FoundPassage] = ()
    outcome: SearchOutcome | None = None
    retrieval: RalmStatistics | None = None
    states: int | None = None
    end: Finished | None = None
    remark = ""

    def show(answer: str) -> None:
        if stream.split.thinking:
            status.show(f"thinking… {amount(len(stream.split.reasoning.split()), 'word')}")
        elif answer and write is not None:
            status.clear()
            write(answer)

    def take(event: Event) -> None:
        nonlocal end, outcome, passages, remark, retrieval, states
        if isinstance(event, Cited):
            passages, outcome = event.passages, event.outcome
        elif isinstance(event, Speculated):
            retrieval = event.figures
        elif isinstance(event, Remarked):
            remark = event.text
        elif isinstance(event, Interpolated):
            states, retrieval = event.states, event.figures
        elif isinstance(event, Dropped):
            click.echo(f"the oldest {event.messages} messages no longer fit", err=True)
        elif isinstance(event, Prefilling) and event.total - event.done >= MIN_PREFILL_TOKENS:
            status.show(f"reading {event.done:,} of {event.total:,} tokens…")
        elif isinstance(event, Wrote):
            show(stream.append("".join(piece.text for piece in event.pieces)))
        elif isinstance(event, Finished):
            show(stream.append("", last=True))
            end = event

    try:
        model_thread.ask(lambda _: begin(), take).result()
    finally:
        status.clear()
    assert end is not None, "a turn ends with Finished"
    return PrintedAnswer(end, stream.split, passages, outcome, states, retrieval, remark)


def _print_end(engine: Engine, answer: PrintedAnswer, as_json: bool, *, expected: bool) -> None:
    """Print the JSON object or the citations; warn if there are no passages where `expected`."""
    if expected and answer.outcome is None:
        _warn(NOTHING_IMPORTED)
    if answer.states is not None:
        click.echo(WORDED if answer.states else NOT_ENCODED, err=True)
    if as_json:
        click.echo(json.dumps(report(engine, answer)))
        return
    if answer.end.finish == FINISH_REPETITION:
        _warn(REPEATED)
    if answer.parts.reasoning and not answer.parts.answer:
        click.echo(ONLY_REASONING, err=True)
    if answer.remark and answer.remark not in engine.restrictions:  # those are already printed
        _warn(answer.remark)
    for line in answer.outcome.lines(len(answer.passages)) if answer.outcome else ():
        click.echo(line, err=True)
    for number, passage in enumerate(answer.passages, 1):
        place = one_line(citation(passage).place, MAX_LINE_CHARACTERS)
        click.echo(f"[{number}] {place}", err=True)


def report(engine: Engine, answer: PrintedAnswer) -> dict[str, object]:
    """The object `ask --json` prints."""
    end, statistics = answer.end, answer.end.statistics
    return {
        "text": answer.parts.answer,
        **({"reasoning": answer.parts.reasoning} if answer.parts.reasoning else {}),
        "citations": citation_records(answer.passages),
        **({SEARCH_KEY: asdict(answer.outcome)} if answer.outcome is not None else {}),
        **({STATES_KEY: answer.states} if answer.states is not None else {}),
        **({REMARK_KEY: answer.remark} if answer.remark else {}),
        "finish_reason": end.finish,
        "model": engine.name,
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

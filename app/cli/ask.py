"""`specchat ask`: one question, one answer, on standard output.

The same turn as in the interface, stored in the same history. Loads neither Textual nor torch.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import click

from app.cli.output import MAX_LINE_CHARACTERS
from app.cli.stores import open_history
from app.config import Options
from app.conversation.documents import citation
from app.conversation.events import Dropped, Event, Finished, Retrieved, Wrote, attach, decoded
from app.engine.engine import Engine
from app.indexing.indexer import catch_up
from app.indexing.passage_index import FoundPassage
from app.locations import locate
from app.runtime.model_thread import ModelThread
from app.runtime.open_model import open_for_one_answer
from app.sanitise import clean, one_line
from datastores.chats.history import History
from datastores.errors import InputError, StoreError

INTERRUPTED = 130


@click.command()
@click.argument("question", required=False)
@click.option(
    "-f",
    "--file",
    "files",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Attach a text file; may be given again.",
)
@click.option("-c", "--continue", "go_on", is_flag=True, help="Go on with the last chat.")
@click.option(
    "--docs",
    type=click.Choice(["once", "off"]),
    default="once",
    show_default=True,
    help="Answer from passages of your imported texts, found once for the question; or not.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object with text and figures.")
@click.pass_context
def ask(
    context: click.Context,
    question: str | None,
    files: tuple[Path, ...],
    go_on: bool,
    docs: str,
    as_json: bool,
) -> None:
    """Ask one question and print the answer.

    Without QUESTION, or with -, it is read from standard input.
    """
    options: Options = context.ensure_object(Options)
    text = attach(read_question(question), files)
    locations = locate(options.data_dir)
    with open_history(locations) as history:
        model_thread = ModelThread(
            lambda _: open_for_one_answer(
                options, locations, history, from_documents=docs == "once"
            )
        )
        engine = load(model_thread)
        chat, parent = place(history, go_on)
        reported = _report_errors(engine, ())
        with stopping(model_thread):
            answer, end, passages = converse(model_thread, chat, parent, text, show=not as_json)
        if as_json:
            click.echo(json.dumps(report(engine, answer, end, passages)))
        reported = _report_errors(engine, reported)
        with _warning(reported):
            model_thread.close()
        before = history.path(history.chat(chat).active or 0)[-2].id - 1
    with _warning(reported):
        catch_up(locations, engine.path, engine.vocabulary, engine.crest_bytes, before, _warn)
    if end.finish == "interrupted":
        context.exit(INTERRUPTED)


def _report_errors(engine: Engine, reported: Sequence[str]) -> list[str]:
    """Print the engine's errors that were not `reported` yet; returns all of them."""
    errors = [str(error) for error in engine.errors]
    for error in errors:
        if error not in reported:
            _warn(error)
    return errors


@contextmanager
def _warning(reported: Sequence[str]) -> Iterator[None]:
    """Turn a store's failure into a warning, unless it was `reported`: the answer is there."""
    try:
        yield
    except StoreError as error:
        if str(error) not in reported:
            _warn(error)


def _warn(error: object) -> None:
    click.echo(str(error), err=True)


def read_question(question: str | None) -> str:
    """The question: the argument, else standard input.

    Raises:
        InputError: there is none, or no text.
    """
    if question is None or question == "-":
        if question is None and sys.stdin.isatty():
            raise InputError('nothing asked: specchat ask "…", or pipe the question in')
        question = decoded(sys.stdin.buffer.read(), "standard input")
    if not question.strip():
        raise InputError("the question is empty")
    return question


def place(history: History, go_on: bool) -> tuple[int, int | None]:
    """The chat and the message to go on from: the last chat's, or those of a new one."""
    chat = history.last_chat() if go_on else history.create_chat()
    return chat.id, chat.active


def load(model_thread: ModelThread) -> Engine:
    """Load the model and return its engine.

    Raises:
        SpecchatError: it cannot be used.
    """
    model_thread.load().result()
    assert model_thread.model is not None
    assert model_thread.model.engine is not None
    return model_thread.model.engine


@contextmanager
def stopping(model_thread: ModelThread) -> Iterator[None]:
    """Within this, Ctrl-C stops the answer and keeps it; a second one ends the program."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        model_thread.stop()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def converse(
    model_thread: ModelThread, chat: int, parent: int | None, text: str, *, show: bool
) -> tuple[str, Finished, Sequence[FoundPassage]]:
    """Ask, print the answer as it comes if `show`, and return it with its figures and sources."""
    texts: list[str] = []
    passages: Sequence[FoundPassage] = ()
    end: Finished | None = None

    def take(event: Event) -> None:
        nonlocal end, passages
        if isinstance(event, Retrieved):
            passages = event.passages
        elif isinstance(event, Dropped):
            click.echo(f"the oldest {event.messages} messages no longer fit", err=True)
        elif isinstance(event, Wrote):
            texts.append("".join(piece.text for piece in event.pieces))
            if show:
                click.echo(clean(texts[-1]), nl=False)
        elif isinstance(event, Finished):
            end = event

    model_thread.ask(lambda assistant: assistant.answer(chat, parent, text), take).result()
    if show:
        click.echo()
        for number, passage in enumerate(passages, 1):
            place = f"[{number}] {passage.path}:{passage.chunk.first_line}"
            click.echo(one_line(place, MAX_LINE_CHARACTERS), err=True)
    assert end is not None, "a turn ends with Finished"
    return "".join(texts), end, passages


def report(
    engine: Engine, text: str, end: Finished, passages: Sequence[FoundPassage]
) -> dict[str, object]:
    """The object `ask --json` prints."""
    statistics = end.statistics
    return {
        "text": text,
        "citations": [citation(passage) for passage in passages],
        "finish_reason": end.finish,
        "model": engine.name,
        "seed": end.seed,
        "prompt_tokens": statistics.prompt_tokens,
        "tokens": statistics.tokens,
        "target_calls": statistics.target_calls,
        "drafted": statistics.drafted,
        "accepted": statistics.accepted,
        "tokens_per_call": statistics.tokens_per_call,
        "acceptance_rate": statistics.acceptance_rate,
        "seconds": statistics.seconds,
        "tokens_per_second": statistics.tokens_per_second,
        "first_token_seconds": statistics.first_token_seconds,
        "overhead_seconds": statistics.overhead_seconds,
        "by_drafter": statistics.by_source,
    }

"""`specchat ask`: one question, one answer, on standard output.

The same turn as in the interface, kept in the same history. Loads neither Textual nor torch.
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

from app.cli.stores import open_history
from app.config import Options
from app.conversation.assistant import Assistant
from app.conversation.attachments import attach, decoded
from app.conversation.events import Dropped, Finished, Wrote
from app.engine.engine import Engine, load
from app.indexing.indexer import catch_up
from app.locations import locate
from app.sanitise import clean
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
@click.option("--json", "as_json", is_flag=True, help="One JSON object with text and figures.")
@click.pass_context
def ask(
    context: click.Context,
    question: str | None,
    files: tuple[Path, ...],
    go_on: bool,
    as_json: bool,
) -> None:
    """Ask one question and print the answer.

    Without QUESTION, or with -, it is read from standard input.
    """
    options: Options = context.ensure_object(Options)
    text = attach(read_question(question), files)
    locations = locate(options.data_dir)
    with open_history(locations) as history:
        engine = load(options, locations, light=True)
        chat, parent = place(history, go_on)
        told = _tell(engine, ())
        with stopping(assistant := Assistant(engine, history)):
            answer, end = converse(assistant, chat, parent, text, show=not as_json)
        if as_json:
            click.echo(json.dumps(report(engine, answer, end)))
        told = _tell(engine, told)
        with _warning(told):
            engine.close()
        before = history.path(history.chat(chat).active or 0)[-2].id - 1
    with _warning(told):
        catch_up(locations, engine.path, engine.vocabulary, engine.crest_bytes, before, _warn)
    if end.finish == "interrupted":
        context.exit(INTERRUPTED)


def _tell(engine: Engine, told: Sequence[str]) -> list[str]:
    """Print what is wrong with the engine, unless it was `told`; all that is."""
    troubles = [str(trouble) for trouble in engine.troubles]
    for trouble in troubles:
        if trouble not in told:
            _warn(trouble)
    return troubles


@contextmanager
def _warning(told: Sequence[str]) -> Iterator[None]:
    """Only warn of stores that fail, unless it was `told`: the answer is there."""
    try:
        yield
    except StoreError as error:
        if str(error) not in told:
            _warn(error)


def _warn(trouble: object) -> None:
    click.echo(str(trouble), err=True)


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


@contextmanager
def stopping(assistant: Assistant) -> Iterator[None]:
    """Ctrl-C ends the answer in good order while this lasts; a second one ends the program."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        assistant.stop()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def converse(
    assistant: Assistant, chat: int, parent: int | None, text: str, *, show: bool
) -> tuple[str, Finished]:
    """Ask, print the answer as it comes if `show`, and return it with its figures."""
    pieces: list[str] = []
    end: Finished | None = None
    for event in assistant.answer(chat, parent, text):
        if isinstance(event, Dropped):
            click.echo(f"the oldest {event.messages} messages no longer fit", err=True)
        elif isinstance(event, Wrote):
            pieces.extend(piece.text for piece in event.pieces)
            if show:
                click.echo(clean("".join(piece.text for piece in event.pieces)), nl=False)
        elif isinstance(event, Finished):
            end = event
    if show:
        click.echo()
    assert end is not None, "a turn ends with Finished"
    return "".join(pieces), end


def report(engine: Engine, text: str, end: Finished) -> dict[str, object]:
    """The object `ask --json` prints."""
    statistics = end.statistics
    return {
        "text": text,
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

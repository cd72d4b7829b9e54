"""`specchat ask`: one question, one answer, on standard output.

Runs the same turn as the interface, on the same history: in a process that has the model open, or
else with a model loaded here. What loads it is imported only then, since most of the time to the
first word is otherwise spent on imports.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

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
from app.cli.answer_printer import AS_JSON, HIDDEN, SHOWN, AnswerPrinter
from app.cli.global_options import import_option
from app.cli.question import read_question
from app.cli.shell_command import command_in, instructions, require_terminal, run_if_confirmed
from app.config import Options
from app.conversation.events import Declined, Event
from app.locations import Locations, locate
from app.runtime.engine_client import open_engine
from app.runtime.wire import AskRequest
from datastores.errors import InputError

BEHIND = "Waiting for the answer in progress in specchat…"


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
@click.option(
    "--preset",
    default="",
    metavar="NAME",
    help="Use a preset of the chat settings in the new chat.",
)
@click.option(
    "-e",
    "--execute",
    "executes",
    is_flag=True,
    help="Ask for a shell command, show it, and run it if you agree.",
)
@click.option(
    "--command", "commands", is_flag=True, help="Ask for a shell command and print it alone."
)
@click.option("--no-save", "unsaved", is_flag=True, help="Do not store this chat.")
@click.option(
    "--docs",
    type=click.Choice(DOCS_MODES),
    help="How to use your imports: search them once for the question, search again every few words"
    " (iterative), answer in their words and those of your other chats (knn: changes what the model"
    " writes; with --import, in the words of those imports alone), or not at all (off)."
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
    preset: str,
    executes: bool,
    commands: bool,
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

    If specchat is open with the same model and settings, it answers at once; else the model is
    loaded.
    """
    options: Options = context.ensure_object(Options)
    for option, value in (("--system", system), ("--preset", preset)):
        if value and continued:
            raise InputError(f"{option} is for a new chat: leave out --continue")
    if (executes or commands) and as_json:
        raise InputError("a command is not printed as JSON: leave out --json")
    if executes:
        require_terminal()
    sequences = require_sequences(tuple(map(unescaped, sequences)), "--stop")
    text, attachments = read_question(words, files, sys.stdin if not no_stdin else None)
    locations = locate(options.data_dir)
    request = AskRequest(
        options=replace(options, model=_whole_path(options.model)),
        locations=locations,
        text=text,
        attachments=tuple(attachments),
        continued=continued,
        system=system,
        preset=preset,
        for_shell=instructions() if executes or commands else "",
        unsaved=unsaved,
        docs=_used(chosen, docs, locations),
        stop=sequences,
    )
    engine = AskedEngine(request)
    expected = docs in (DOCS_ONCE, DOCS_ITERATIVE)
    shown = AS_JSON if as_json else HIDDEN if executes or commands else SHOWN
    printer = AnswerPrinter(shown, formatted=not raw, expected=expected)
    with closing(engine.events()) as events:
        code = printer.print_all(events, engine.stop)
    end = printer.answer.end
    if not code and end is not None and (executes or commands):
        command = command_in(printer.answer.parts.answer, end.finish)
        if executes:
            code = run_if_confirmed(command)
        else:
            click.echo(command)
    if code:
        context.exit(code)


def _whole_path(model: str | None) -> str | None:
    """The path of a model, if `model` is one, for a process in another folder."""
    if not model or not os.path.exists(os.path.expanduser(model)):
        return model
    return os.path.abspath(os.path.expanduser(model))


class AskedEngine:
    """The engine that answers: one that is open in another process, or else one loaded here."""

    def __init__(self, request: AskRequest) -> None:
        self._request = request
        self._stop: Callable[[], None] = lambda: None

    def stop(self) -> None:
        """Stop the answer; what was generated is kept."""
        self._stop()

    def events(self) -> Generator[Event]:
        """The events of the answer.

        Raises:
            SpecchatError, OSError: why there is no answer, or only a part of it.
        """
        declined = yield from self._answered_elsewhere()
        if not declined:
            return
        # Imported here: none of it is needed where a model is open.
        from app.cli.loaded_engine import LoadedEngine

        loaded = LoadedEngine(self._request)
        self._stop = loaded.stop
        yield from loaded.events()

    def _answered_elsewhere(self) -> Generator[Event, None, bool]:
        """The events from another process; returns whether none answers."""
        engine = open_engine(self._request)
        if engine is None:
            return True
        self._stop = engine.stop
        if engine.waiting:
            click.echo(BEHIND, err=True)
        with closing(engine.events()) as events:
            for event in events:
                if isinstance(event, Declined):
                    return True
                yield event
        return False


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
    from app.cli.stores import open_library
    from app.importing.names import path_of

    with open_library(locations) as library:
        names = library.names()
    return str(DocsSetting(docs or DOCS_ONCE, tuple(path_of(one, names) for one in chosen)))

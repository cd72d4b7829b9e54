"""`specchat demo`: shows and measures the gain from drafts with a large model, in a minute.

On a terminal it opens the interface; elsewhere it prints one line for each question, answered with
and without drafts.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Sequence
from contextlib import closing

import click

from app.cli.stores import open_history, open_library
from app.conversation.assistant import Assistant
from app.conversation.events import Event, Finished
from app.conversation.statistics import Statistics
from app.engine.engine import Engine
from app.engine.loading import load, with_drafters
from app.importing.session import import_into
from app.indexing.corpus_index import open_index
from app.indexing.refresh import refresh
from app.locations import Locations, locate
from app.runtime.demo import (
    AFTER,
    BEFORE,
    INTRODUCTION,
    DemoStage,
    MeasuredAnswer,
    conclusion,
    demo_stage,
)
from datastores.chats.history import History
from datastores.errors import StoreError


@click.command()
def demo() -> None:
    """Show what drafts gain with a larger model, in about a minute.

    Enlarges the built-in model until each word costs as much as with a larger model, asks three
    questions, imports a file and asks five more. Everything happens in a temporary directory; your
    chats and imports are not touched. Without a terminal, prints the figures.
    """
    with demo_stage() as stage:
        if sys.stdin.isatty() and sys.stdout.isatty():
            from app.interface.app import run_demo

            run_demo(stage)
        else:
            _print_demo(stage)


def _print_demo(stage: DemoStage) -> None:
    locations = locate(stage.options.data_dir)
    click.echo(f"{INTRODUCTION}\n")
    stage.make_model()
    with open_history(locations) as history, closing(load(stage.options, locations)) as engine:
        before = _print_answers(engine, history, locations, BEFORE)
        with open_library(locations) as library:
            for _ in import_into(library, locations, [stage.file]):
                pass
        _index(engine, locations)
        click.echo(f"\nimported {stage.file.name}\n")
        after = _print_answers(engine, history, locations, AFTER)
    click.echo(f"\n{conclusion(before, after)}")


def _print_answers(
    engine: Engine, history: History, locations: Locations, questions: Sequence[str]
) -> list[MeasuredAnswer]:
    """Answer each question without and with drafts, and print both times."""
    plain = Assistant(with_drafters(engine, (), None), history)
    drafted = Assistant(engine, history)
    answers = []
    for question in questions:
        without = _statistics(plain.answer_unsaved(None, question))
        chat = history.create_chat()
        found = _statistics(drafted.answer(chat.id, None, question))
        _index(engine, locations)
        answers.append(
            MeasuredAnswer(
                found.step_tokens, found.steps, found.decode_seconds, without.decode_seconds
            )
        )
        click.echo(
            f"{question}  {without.decode_seconds:.1f} s without drafts,"
            f" {found.decode_seconds:.1f} s with them:"
            f" {without.decode_seconds / found.decode_seconds:.1f}×,"
            f" {found.tokens_per_step:.1f} tokens per step"
        )
    return answers


def _statistics(events: Generator[Event]) -> Statistics:
    end = [event for event in events if isinstance(event, Finished)]
    return end[-1].statistics


def _index(engine: Engine, locations: Locations) -> None:
    """Index the stored texts for drafting.

    Raises:
        StoreError: another process holds the lock; never in the demo's temporary directory.
    """
    with open_index(locations, engine.vocabulary, engine.crest_bytes) as index:
        if not index.lock.acquire():
            raise StoreError(f"{locations.data} is being indexed by another process")
        for _ in refresh(index, locations):
            pass

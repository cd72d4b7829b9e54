"""What is said of an import, in words and lines. Pure functions over its state.

Names and reasons come from files: they are sanitised here, once.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.text import Text

from app.importing.events import ImportProgress, ImportReport
from app.indexing.corpus_index import Projecting
from app.indexing.source_list import CHARACTERS
from app.interface.panel.drawing import PanelStyles, bar
from app.interface.panel.phrases import percent
from app.models.description import size, time_left
from app.sanitise import one_line

if TYPE_CHECKING:
    from app.interface.imports.tasks import ImportState

WELCOME = (
    "Answers are drafted from texts of yours: notes, source code, web pages, PDFs, chats with other"
    " assistants, shell histories; a file, a folder or an archive of them. .gitignore is followed,"
    " secrets are taken out, and nothing leaves this machine."
)
STOPPED = "stopped: what is in stays; Enter goes on from there"
SEPARATOR = " · "
REASONS = 6
"""Reasons that are told while an import is running: the commonest."""
NAME = 400
LONGEST = 800
"""Characters of a name and of a message at most."""


def note(state: ImportState) -> str:
    """What the line at the top says; empty while nothing goes on."""
    if state.running:
        read = state.progress
        return f"importing {percent(share(read))}" if read else "importing"
    if state.trouble:
        return "learning failed"
    return _learning(state.learning) if state.learning else ""


def lines(state: ImportState, width: int, ink: PanelStyles) -> list[Text]:
    """How the import stands, for its screen; only the bar depends on the width."""
    if not state.line:
        return [Text(WELCOME, ink.dim)]
    if state.running:
        return [*_running(state, width, ink), *_counts(state.report, ink)]
    told = [_end(state, ink)]
    if state.trouble:
        told.append(Text(one_line(state.trouble, LONGEST), ink.warning))
    elif not state.failure:
        told.append(Text(_drafting(state), ink.accent))
    return told


def skipped(report: ImportReport) -> Iterator[str]:
    """Everything that was skipped, below its reason; the commonest reason first."""
    for reason, names in _by_number(report):
        yield f"skipped {len(names):,}: {one_line(reason, NAME)}"
        yield from (f"    {one_line(name, NAME)}" for name in names)


def ended(state: ImportState) -> str:
    """How an import ended, in a line."""
    documents = counted(state.report.documents, "document")
    if not state.whole:
        read = state.progress.documents if state.progress else 0
        return f"{STOPPED} ({counted(read, 'document')} new)"
    parts = [f"imported {documents}"]
    if state.report.unchanged:
        parts.append(f"{state.report.unchanged:,} unchanged")
    if state.report.redacted:
        parts.append(f"{counted(state.report.redacted, 'secret')} taken out")
    total = sum(state.report.counts.values())
    return SEPARATOR.join([*parts, f"{total:,} skipped"] if total else parts)


def counted(number: int, thing: str) -> str:
    """`1 document`, `2,000 documents`."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def share(read: ImportProgress) -> float:
    """How much of an import is done, from 0 to 1."""
    return read.bytes / read.total_bytes if read.total_bytes else 0.0


def at_home(path: str) -> str:
    """A path for people: `~` for the home directory, and nothing a terminal obeys."""
    home = os.path.expanduser("~")
    inside = path == home or path.startswith(f"{home}/")
    return one_line("~" + path.removeprefix(home) if inside else path, NAME)


def _running(state: ImportState, width: int, ink: PanelStyles) -> Iterator[Text]:
    yield Text.assemble("importing ", (one_line(state.line, NAME), "bold"))
    read = state.progress
    if read is None:
        yield Text(f"looking through folders: {counted(state.found, 'file')} so far", ink.dim)
        return
    columns = max(8, width - 6)
    full = bar(share(read), columns)
    yield Text.assemble(
        (full, ink.accent), ("·" * (columns - len(full)), ink.faint), f" {percent(share(read)):>5}"
    )
    speed = [f"{read.files:,} of {counted(read.total_files, 'file')}", f"{size(read.rate)}/s"]
    left = read.seconds_left
    yield Text(SEPARATOR.join(speed if left is None else [*speed, time_left(left)]))
    tokens = f"about {counted(read.characters // CHARACTERS, 'token')}"
    yield Text(SEPARATOR.join([counted(read.documents, "document"), tokens]))
    yield Text(f"reading {one_line(read.name, NAME)}", ink.dim)


def _counts(report: ImportReport, ink: PanelStyles) -> Iterator[Text]:
    for reason, names in _by_number(report)[:REASONS]:
        yield Text(f"skipped {len(names):,}: {one_line(reason, NAME)}", ink.dim)


def _end(state: ImportState, ink: PanelStyles) -> Text:
    if state.failure:
        return Text(one_line(state.failure, LONGEST), ink.warning)
    return Text(ended(state), ink.text if state.whole else ink.warning)


def _drafting(state: ImportState) -> str:
    """What became of the texts: whether answers are drafted from them yet."""
    if state.learning:
        return f"{_learning(state.learning)}, {counted(state.learning.tokens, 'token')} so far"
    if state.ready:
        return f"answers are drafted from {counted(state.ready, 'new token')}"
    if state.whole and not state.report.documents:
        return "nothing new: answers are drafted from all of it already"
    return "answers are drafted from it in a moment"


def _learning(at: Projecting) -> str:
    if at.building or not at.total:
        return "learning imports: sorting"
    return f"learning imports: {percent(at.done / at.total)}"


def _by_number(report: ImportReport) -> list[tuple[str, list[str]]]:
    return sorted(report.skipped.items(), key=lambda item: -len(item[1]))

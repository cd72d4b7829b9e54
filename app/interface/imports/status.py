"""The state of an import, and the texts that describe it on the screen.

Names and reasons come from files, and are sanitised here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from rich.text import Text

from app.figures import amount, format_size, format_time_left, percent
from app.importing.events import (
    Event,
    FindingFiles,
    ImportFinished,
    ImportProgress,
    ImportReport,
    SkippedFile,
)
from app.importing.session import CHARACTERS_PER_TOKEN
from app.indexing.corpus_index import IndexingProgress
from app.interface.dialogs.basic import as_sentence
from app.interface.panel.drawing import bar
from app.interface.themes import PanelStyles
from app.interface.wording import time_left
from app.sanitise import one_line, tilde_path

WELCOME = (
    "A file, folder or archive: notes, source code, web pages, PDFs, chats with other assistants,"
    " shell histories. Answers then use it, and come faster. Respects .gitignore. Secrets are"
    " removed. Nothing leaves this machine."
)
STOPPED = "Stopped. What was imported is kept. Enter resumes."
USES = "Used for drafts, and for answers where relevant."
SEPARATOR = " · "
MAX_REASONS = 6
"""Maximum skip reasons listed while an import runs, most frequent first."""
MAX_NAME_CHARS = 400
MAX_ERROR_CHARS = 800


@dataclass(slots=True)
class ImportState:
    """The state of an import.

    Attributes:
        typed: the typed paths; empty before the first import.
        removed: path that was deleted since the last import, or empty.
        found: files found so far, while folders are searched.
        progress: None before reading begins.
        report: the final report, or what was skipped so far.
        completed: whether the import ran to its end.
        error: why the import failed, or empty.
        indexing: the indexer's progress; None while it is idle.
        indexed_tokens: tokens indexed for drafting since the import began.
        indexer_error: why indexing failed, or empty.
    """

    typed: str = ""
    removed: str = ""
    running: bool = False
    found: int = 0
    progress: ImportProgress | None = None
    report: ImportReport = field(default_factory=ImportReport)
    completed: bool = False
    error: str = ""
    indexing: IndexingProgress | None = None
    indexed_tokens: int = 0
    indexer_error: str = ""

    def apply(self, event: Event) -> None:
        """Update the state with one event of the import."""
        match event:
            case FindingFiles(files):
                self.found = files
            case ImportProgress():
                self.progress = event
            case SkippedFile(name, reason):
                self.report.skipped.setdefault(reason, []).append(name)
            case ImportFinished(report):
                # The final report lacks a damaged library, which is reported before it begins.
                skipped = {**self.report.skipped, **report.skipped}
                self.report, self.completed = replace(report, skipped=skipped), True


def topbar_note(state: ImportState) -> str:
    """The import's note in the top bar; empty while nothing runs."""
    if state.running:
        progress = state.progress
        return f"importing {percent(fraction_read(progress))}" if progress else "importing"
    if state.indexer_error:
        return "indexing failed"
    return _indexing(state.indexing) if state.indexing else ""


def status_lines(state: ImportState, width: int, styles: PanelStyles) -> list[Text]:
    """The status on the import screen; only the bar depends on the width."""
    if state.removed:
        return [
            Text(
                f"Removed {tilde_path(state.removed)}. It is no longer used for drafts or answers."
            )
        ]
    if not state.typed:
        return [Text(WELCOME, styles.dim)]
    if state.running:
        return [*_running(state, width, styles), *_skip_counts(state.report, styles)]
    lines = [_outcome(state, styles)]
    if state.indexer_error:
        lines.append(Text(one_line(state.indexer_error, MAX_ERROR_CHARS), styles.warning))
    elif not state.error:
        lines.append(Text(_drafting_status(state), styles.accent))
    return lines


def detail_lines(report: ImportReport) -> Iterator[str]:
    """Files that secrets were removed from, by kind, then skipped files, by frequency of the
    reason."""
    for kind, names in report.secrets.items():
        yield f"removed {amount(len(names), kind)}"
        yield from (f"    {one_line(name, MAX_NAME_CHARS)}" for name in dict.fromkeys(names))
    for reason, names in _by_count(report):
        yield f"skipped {len(names):,}: {one_line(reason, MAX_NAME_CHARS)}"
        yield from (f"    {one_line(name, MAX_NAME_CHARS)}" for name in names)


def summary(state: ImportState) -> str:
    """One line on how an import ended."""
    documents = amount(state.report.documents, "document")
    if not state.completed:
        read = state.progress.documents if state.progress else 0
        return f"{STOPPED} {amount(read, 'new document')} so far."
    parts = [f"Imported {documents}"]
    if state.report.unchanged:
        parts.append(f"{state.report.unchanged:,} unchanged")
    if state.report.redacted:
        kinds = [amount(len(names), kind) for kind, names in state.report.secrets.items()]
        parts.append(f"{', '.join(kinds)} removed")
    total = sum(state.report.counts.values())
    return SEPARATOR.join([*parts, f"{total:,} skipped"] if total else parts)


def fraction_read(progress: ImportProgress) -> float:
    """The fraction of an import that is done, 0 to 1."""
    return progress.bytes / progress.total_bytes if progress.total_bytes else 0.0


def _running(state: ImportState, width: int, styles: PanelStyles) -> Iterator[Text]:
    yield Text.assemble("importing ", (one_line(state.typed, MAX_NAME_CHARS), "bold"))
    progress = state.progress
    if progress is None:
        yield Text(f"searching folders: {amount(state.found, 'file')} so far", styles.dim)
        return
    columns = max(8, width - 6)
    full = bar(fraction_read(progress), columns)
    yield Text.assemble(
        (full, styles.accent),
        ("·" * (columns - len(full)), styles.faint),
        f" {percent(fraction_read(progress)):>5}",
    )
    speed = [
        f"{progress.files:,} of {amount(progress.total_files, 'file')}",
        f"{format_size(progress.rate)}/s",
    ]
    left = progress.seconds_left
    yield Text(SEPARATOR.join(speed if left is None else [*speed, format_time_left(left)]))
    tokens = f"about {amount(progress.characters // CHARACTERS_PER_TOKEN, 'token')}"
    yield Text(SEPARATOR.join([amount(progress.documents, "document"), tokens]))
    yield Text(f"reading {one_line(progress.name, MAX_NAME_CHARS)}", styles.dim)


def _skip_counts(report: ImportReport, styles: PanelStyles) -> Iterator[Text]:
    for reason, names in _by_count(report)[:MAX_REASONS]:
        yield Text(f"skipped {len(names):,}: {one_line(reason, MAX_NAME_CHARS)}", styles.dim)


def _outcome(state: ImportState, styles: PanelStyles) -> Text:
    if state.error:
        return Text(as_sentence(state.error, MAX_ERROR_CHARS), styles.warning)
    return Text(summary(state), styles.text if state.completed else styles.warning)


def _drafting_status(state: ImportState) -> str:
    """Whether the imported texts are indexed for drafting."""
    if state.indexing and state.indexing.imports:
        return f"{_indexing(state.indexing)}, {amount(state.indexing.tokens, 'token')} so far"
    if state.indexed_tokens:
        return f"Ready: {amount(state.indexed_tokens, 'new token')}. {USES}"
    if state.completed and not state.report.documents:
        return "Nothing new: these files were imported before."
    return f"Ready in a moment. {USES}"


def _indexing(progress: IndexingProgress) -> str:
    what = "indexing imports" if progress.imports else "indexing chats"
    if progress.building or not progress.total:
        return what
    share = percent(progress.done / progress.total)
    return f"{what} {share}{time_left(progress.seconds_left)}"


def _by_count(report: ImportReport) -> list[tuple[str, list[str]]]:
    return sorted(report.skipped.items(), key=lambda item: -len(item[1]))

"""The lines of the model picker: two for each model, and two for what is being fetched.

Owns their words and layout, and what Enter does on each. Pure functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.style import Style
from rich.text import Text

from app.interface.panel.drawing import PanelStyles, bar
from app.models import description
from app.models.description import FoundModel
from app.models.download import Fetch
from app.models.hub import DEFAULT, names_model
from app.models.known_folders import EMBEDDED
from app.models.selection import Catalogue, ListedModel
from app.sanitise import one_line

BAR = 24
"""Columns of a progress bar at most."""
LONGEST = 400
"""Characters of a failure."""
SEPARATOR = " · "
ABOUT_EMBEDDED = "command-line helper"


@dataclass(frozen=True, slots=True)
class Wanted:
    """A model of Hugging Face's that the person has named.

    Attributes:
        instead: whether another one is being fetched, which then stops.
    """

    name: str
    instead: bool = False


Row = ListedModel | Fetch | Wanted


def rows(found: Catalogue | None, fetch: Fetch | None, typed: str) -> list[Row]:
    """What is listed: the download at hand, the models that fit what is typed, one to fetch."""
    at_hand = fetch if fetch is not None and fetch.path is None else None
    listed: list[Row] = [at_hand] if at_hand is not None else []
    words = typed.casefold().split()
    listed += [model for model in found.models if _fits(model, words)] if found else []
    name = typed.strip()
    if names_model(name) and not (at_hand is not None and at_hand.wanted == name):
        listed.append(Wanted(name, at_hand is not None and at_hand.running))
    return listed


def place_of(chosen: Row | None, listed: Sequence[Row]) -> int | None:
    """Where `chosen` is listed now: a download that is done became a model.

    Where it is not listed, or is None, the first model, lest Enter stop a download by mistake.
    """
    if not listed:
        return None
    marks = [_mark(row) for row in listed]
    if chosen is not None and _mark(chosen) in marks:
        return marks.index(_mark(chosen))
    models = [index for index, row in enumerate(listed) if not isinstance(row, Fetch)]
    return models[0] if models else 0


def _mark(row: Row) -> object:
    """What `row` is known by."""
    if isinstance(row, ListedModel):
        return row.model.path
    return row.path or "the download" if isinstance(row, Fetch) else row


def verb(row: Row, room: int) -> str:
    """What Enter does on `row` where `room` bytes are free; empty where it does nothing."""
    if isinstance(row, Wanted):
        return "fetches it"
    if isinstance(row, Fetch):
        if row.running:
            return "stops it"
        return "tries again" if row.failure else "goes on"
    if row.in_use:
        return "keeps it"
    if row.model.problem:
        return ""
    return "opens it" if row.fits(room) else "tries to open it"


def drawn(row: Row, room: int, width: int, ink: PanelStyles) -> Text:
    """`row` in lines of `width` columns."""
    if isinstance(row, Wanted):
        return _wanted(row, ink)
    return _fetch(row, width, ink) if isinstance(row, Fetch) else _model(row, room, width, ink)


def _fits(listed: ListedModel, words: Sequence[str]) -> bool:
    """Whether every word occurs somewhere in what is told of the model."""
    model = listed.model
    told = f"{model.name} {model.quantisation} {model.place} {model.architecture}".casefold()
    return all(word in told for word in words)


def _model(listed: ListedModel, room: int, width: int, ink: PanelStyles) -> Text:
    model = listed.model
    if model.problem:
        head = _head(model.name, "cannot be used", ink.dim, width, ink)
        return head.append(f"\n{one_line(model.problem, LONGEST)}", ink.dim)
    if listed.in_use:
        head = _head(model.name, "open", ink.accent, width, ink, bold=True)
    elif listed.fits(room):
        head = _head(model.name, "", ink.dim, width, ink)
    else:
        head = _head(model.name, "does not fit", ink.warning, width, ink)
        need, free = description.size(listed.needed), description.size(room)
        head.append(f"\nneeds {need} of memory, {free} are free", ink.warning)
        return head.append(_joined("", model.quantisation, model.place), ink.dim)
    return head.append(f"\n{_facts(model)}", ink.dim)


def _facts(model: FoundModel) -> str:
    return _joined(
        description.size(model.size),
        model.quantisation,
        f"{description.weights(model.parameters)} weights",
        f"context {model.context_length:,}" if model.context_length else None,
        ABOUT_EMBEDDED if model.name == EMBEDDED else model.place,
    )


def _joined(*facts: str | None) -> str:
    return SEPARATOR.join(one_line(fact) for fact in facts if fact is not None)


def _fetch(fetch: Fetch, width: int, ink: PanelStyles) -> Text:
    share = f" at {fetch.share:.0%}" if fetch.total else ""
    if fetch.failure and not fetch.running:
        head = _head(fetch.name, f"failed{share}", ink.warning, width, ink)
        return head.append(f"\n{one_line(fetch.failure, LONGEST)}", ink.warning)
    state = "fetching" if fetch.running else "stopped"
    head = _head(fetch.name, f"{state}{share}", ink.accent, width, ink)
    if not fetch.total:
        return head.append("\nasking Hugging Face…", ink.dim)
    full = bar(fetch.share, BAR)
    head.append(f"\n{full}", ink.accent).append("·" * (BAR - len(full)), ink.faint)
    return head.append(f"  {_progress(fetch)}", ink.dim)


def _progress(fetch: Fetch) -> str:
    come, left = (
        f"{description.size(fetch.done)} of {description.size(fetch.total)}",
        fetch.seconds_left,
    )
    if not fetch.running:
        return _joined(come, "what has come is kept")
    if left is None:
        return come
    return _joined(come, f"{description.size(fetch.rate)}/s", description.time_left(left))


def _wanted(row: Wanted, ink: PanelStyles) -> Text:
    text = Text.assemble("Fetch ", (row.name, Style(bold=True)), " from Hugging Face")
    kind = "" if ":" in row.name else f"its {DEFAULT}, "
    end = "; the other download stops" if row.instead else ""
    return text.append(f"\n{kind}into the cache that other programs share{end}", ink.dim)


def _head(
    name: str, remark: str, style: Style, width: int, ink: PanelStyles, *, bold: bool = False
) -> Text:
    """The first line: the name and, at its end, a remark."""
    line = Text.assemble((one_line(name), ink.text + Style(bold=bold)))
    line.truncate(max(8, width - len(remark) - 2), overflow="ellipsis")
    line.pad_right(max(0, width - line.cell_len - len(remark)))
    return line.append(remark, style)

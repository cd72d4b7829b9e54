"""The rows of the model picker: which there are, how each is drawn, and what Enter does on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.style import Style
from rich.text import Text

from app import figures
from app.interface.panel.drawing import bar
from app.interface.themes import PanelStyles
from app.interface.wording import short_name
from app.models.description import FoundModel
from app.models.discovery import BUILT_IN
from app.models.download import ModelDownload
from app.models.hub import DEFAULT_QUANTISATION, is_model_name
from app.models.hub_search import HubOffer, HubRepository, ranked, suggested
from app.models.selection import Catalogue, ListedModel
from app.sanitise import one_line

MAX_BAR_COLUMNS = 24

MAX_ERROR_CHARS = 400
MIN_NAME_COLUMNS = 8
SEPARATOR = " · "
ABOUT_BUILT_IN = "command-line helper"


@dataclass(frozen=True, slots=True)
class DownloadRequest:
    """A model on Hugging Face whose name was typed.

    Attributes:
        replaces_current: whether it would stop a running download.
    """

    name: str
    replaces_current: bool = False


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """Typed words to search for on Hugging Face."""

    words: str


@dataclass(frozen=True, slots=True)
class OfferRow:
    """A model that can be downloaded, and whether it is the best one for this machine."""

    offer: HubOffer
    suggested: bool = False


PickerRow = ListedModel | ModelDownload | DownloadRequest | SearchRequest | HubRepository | OfferRow


def offer_rows(offered: Sequence[HubOffer], free_memory: int) -> list[OfferRow]:
    """Rows for `offered`, the suggested one first."""
    best = suggested(offered, free_memory)
    return [OfferRow(one, one == best) for one in ranked(offered, free_memory)]


def rows(found: Catalogue | None, fetch: ModelDownload | None, typed: str) -> list[PickerRow]:
    """The current download, models that match `typed`, and a download or a search for it."""
    current = fetch if fetch is not None and fetch.path is None else None
    listed: list[PickerRow] = [current] if current is not None else []
    words = typed.casefold().split()
    listed += [model for model in found.models if _matches(model, words)] if found else []
    name = typed.strip()
    if is_model_name(name) and not (current is not None and current.wanted == name):
        listed.append(DownloadRequest(name, current is not None and current.running))
    elif words and found is not None and found.whole and not is_model_name(name):
        # Not earlier: Enter must send nothing to the hub while a local model is still to be found.
        listed.append(SearchRequest(" ".join(name.split())))
    return listed


def index_of(chosen: PickerRow | None, listed: Sequence[PickerRow]) -> int | None:
    """The index of `chosen` in `listed`; a finished download is identified with its model.

    If it is None or not listed, the first model, since Enter must not stop a download by mistake.
    """
    if not listed:
        return None
    identities = [_identity(row) for row in listed]
    if chosen is not None and _identity(chosen) in identities:
        return identities.index(_identity(chosen))
    models = [index for index, row in enumerate(listed) if not isinstance(row, ModelDownload)]
    return models[0] if models else 0


def _identity(row: PickerRow) -> object:
    if isinstance(row, ListedModel):
        return row.model.path
    return row.path or "the download" if isinstance(row, ModelDownload) else row


def enter_action(row: PickerRow, free_memory: int) -> str:
    """What Enter does on `row` with `free_memory` bytes free; empty if nothing."""
    if isinstance(row, SearchRequest):
        return "Search"
    if isinstance(row, HubRepository):
        return "Show"
    if isinstance(row, OfferRow):
        return "Download" if row.offer.fits(free_memory) else "Download anyway"
    if isinstance(row, DownloadRequest):
        return "Download"
    if isinstance(row, ModelDownload):
        if row.running:
            return "Stop"
        return "Retry" if row.failure else "Resume"
    if row.in_use:
        return "Keep"
    if row.model.problem:
        return ""
    return "Open" if row.fits(free_memory) else "Try anyway"


def render(row: PickerRow, free_memory: int, width: int, styles: PanelStyles) -> Text:
    """`row` as lines of `width` columns."""
    if isinstance(row, DownloadRequest):
        return _request(row, styles)
    if isinstance(row, SearchRequest):
        return _search(row, styles)
    if isinstance(row, HubRepository):
        return _repository(row, width, styles)
    if isinstance(row, OfferRow):
        return _offer(row, free_memory, width, styles)
    if isinstance(row, ModelDownload):
        return _download(row, width, styles)
    return _model(row, free_memory, width, styles)


def _matches(listed: ListedModel, words: Sequence[str]) -> bool:
    model = listed.model
    text = f"{model.name} {model.quantisation} {model.place} {model.architecture}".casefold()
    return all(word in text for word in words)


def _model(listed: ListedModel, free_memory: int, width: int, styles: PanelStyles) -> Text:
    model = listed.model
    if model.problem:
        head = _head(model.name, "cannot be used", styles.dim, width, styles)
        return head.append(f"\n{one_line(model.problem, MAX_ERROR_CHARS)}", styles.dim)
    if listed.in_use:
        head = _head(model.name, "open", styles.accent, width, styles, bold=True)
    elif listed.fits(free_memory):
        head = _head(model.name, "", styles.dim, width, styles)
    else:
        head = _head(model.name, "does not fit", styles.warning, width, styles)
        need, free = figures.format_size(listed.needed), figures.format_size(free_memory)
        head.append(f"\nneeds {need} of memory, {free} free", styles.warning)
        return head.append(_join("", model.quantisation, model.place), styles.dim)
    return head.append(f"\n{_facts(model)}", styles.dim)


def _facts(model: FoundModel) -> str:
    return _join(
        figures.format_size(model.size),
        model.quantisation,
        f"{figures.format_parameters(model.parameters)} parameters",
        f"context {model.context_length:,}" if model.context_length else None,
        ABOUT_BUILT_IN if model.name == BUILT_IN else model.place,
        model.remark or None,
    )


def _join(*facts: str | None) -> str:
    return SEPARATOR.join(one_line(fact) for fact in facts if fact is not None)


def _download(fetch: ModelDownload, width: int, styles: PanelStyles) -> Text:
    share = f" at {fetch.share:.0%}" if fetch.total else ""
    if fetch.failure and not fetch.running:
        head = _head(fetch.name, f"failed{share}", styles.warning, width, styles)
        return head.append(f"\n{one_line(fetch.failure, MAX_ERROR_CHARS)}", styles.warning)
    state = "downloading" if fetch.running else "stopped"
    head = _head(fetch.name, f"{state}{share}", styles.accent, width, styles)
    if not fetch.total:
        return head.append("\ncontacting Hugging Face…", styles.dim)
    full = bar(fetch.share, MAX_BAR_COLUMNS)
    head.append(f"\n{full}", styles.accent).append(
        "·" * (MAX_BAR_COLUMNS - len(full)), styles.faint
    )
    return head.append(f"  {_progress(fetch)}", styles.dim)


def _progress(fetch: ModelDownload) -> str:
    done = f"{figures.format_size(fetch.done)} of {figures.format_size(fetch.total)}"
    left = fetch.seconds_left
    if not fetch.running:
        return _join(done, "partial download kept")
    if left is None:
        return done
    return _join(done, f"{figures.format_size(fetch.rate)}/s", figures.format_time_left(left))


def _request(row: DownloadRequest, styles: PanelStyles) -> Text:
    text = Text.assemble("Download ", (row.name, Style(bold=True)), " from Hugging Face")
    kind = "" if ":" in row.name else f"its {DEFAULT_QUANTISATION}, "
    end = "; stops the other download" if row.replaces_current else ""
    return text.append(f"\n{kind}into the cache shared with other programs{end}", styles.dim)


def _search(row: SearchRequest, styles: PanelStyles) -> Text:
    text = Text.assemble("Search Hugging Face for ", (one_line(row.words), Style(bold=True)))
    return text.append("\nsends these words to huggingface.co", styles.dim)


def _repository(row: HubRepository, width: int, styles: PanelStyles) -> Text:
    head = _head(row.name, f"{row.downloads:,} downloads", styles.dim, width, styles)
    size = f"{figures.format_parameters(row.parameters)} parameters" if row.parameters else None
    terms = "accept its terms on the site first" if row.gated else None
    return head.append(f"\n{_join(size, terms) or 'size unknown'}", styles.dim)


def _offer(row: OfferRow, free_memory: int, width: int, styles: PanelStyles) -> Text:
    offer, fits = row.offer, row.offer.fits(free_memory)
    if fits:
        remark, style = ("suggested", styles.accent) if row.suggested else ("", styles.dim)
    else:
        remark, style = "does not fit", styles.warning
    name = short_name(offer.name, max(MIN_NAME_COLUMNS, width - len(remark) - 2))
    head = _head(name, remark, style, width, styles, bold=row.suggested)
    needed = f"needs {figures.format_size(offer.needed)} of memory"
    free = f"{figures.format_size(free_memory)} free"
    download = f"{figures.format_size(offer.size)} download"
    about = f"~{figures.format_speed(offer.speed)}"
    return head.append(f"\n{_join(download, about, f'{needed}, {free}')}", styles.dim)


def _head(
    name: str, remark: str, style: Style, width: int, styles: PanelStyles, *, bold: bool = False
) -> Text:
    line = Text.assemble((one_line(name), styles.text + Style(bold=bold)))
    line.truncate(max(MIN_NAME_COLUMNS, width - len(remark) - 2), overflow="ellipsis")
    line.pad_right(max(0, width - line.cell_len - len(remark)))
    return line.append(remark, style)

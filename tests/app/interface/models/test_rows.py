"""The rows of the picker: which there are, which one is highlighted, and what Enter does."""

from __future__ import annotations

from pathlib import Path

import pytest

from app import figures
from app.interface.models.rows import (
    DownloadRequest,
    OfferRow,
    PickerRow,
    SearchRequest,
    enter_action,
    index_of,
    rows,
)
from app.models.description import FoundModel
from app.models.download import ModelDownload
from app.models.hub_search import HubOffer, HubRepository
from app.models.selection import Catalogue, ListedModel

ROOM = 100


def listed(name: str, needed: int = 1, *, in_use: bool = False, problem: str = "") -> ListedModel:
    model = FoundModel(name, "Ollama", Path(f"/{name}.gguf"), 1, "Q8_0", problem=problem)
    return ListedModel(model, needed, in_use)


ONE, TWO = listed("org/one", in_use=True), listed("org/two")
FOUND = Catalogue((ONE, TWO), ROOM)


def test_every_typed_word_must_occur_in_any_case_and_order() -> None:
    assert rows(FOUND, None, "") == [ONE, TWO]
    assert rows(FOUND, None, "Q8  TWO ") == [TWO, SearchRequest("Q8 TWO")]
    assert rows(FOUND, None, "ollama three") == [SearchRequest("ollama three")]
    assert rows(None, None, "two") == rows(Catalogue((), ROOM, whole=False), None, "two") == []


def test_a_named_model_can_be_fetched_unless_it_is_being_fetched() -> None:
    assert rows(FOUND, None, " org/two ") == [TWO, DownloadRequest("org/two")]
    fetch = ModelDownload("org/two", running=True)
    assert rows(FOUND, fetch, "org/two") == [fetch, TWO]
    assert rows(FOUND, fetch, "org/x:Q8_0") == [
        fetch,
        DownloadRequest("org/x:Q8_0", replaces_current=True),
    ]


def test_a_finished_download_is_listed_as_a_model() -> None:
    fetch = ModelDownload("org/two", path=TWO.model.path)
    assert rows(FOUND, fetch, "") == [ONE, TWO]
    assert index_of(fetch, [ONE, TWO]) == 1


def test_the_same_row_stays_highlighted_else_the_first_model() -> None:
    fetch = ModelDownload("org/x")
    assert index_of(TWO, [fetch, ONE, TWO]) == 2
    assert index_of(fetch, [fetch, ONE]) == 0
    assert index_of(None, [fetch, ONE]) == 1
    assert index_of(TWO, [fetch, ONE]) == 1
    assert index_of(None, [fetch]) == 0
    assert index_of(TWO, []) is None


@pytest.mark.parametrize(
    ("row", "does"),
    [
        (ONE, "Keep"),
        (TWO, "Open"),
        (listed("large", ROOM + 1), "Try anyway"),
        (listed("odd", problem="no model"), ""),
        (DownloadRequest("org/x"), "Download"),
        (SearchRequest("words"), "Search"),
        (HubRepository("org/x", 1), "Show"),
        (OfferRow(HubOffer("org/x:Q8_0", 1, ROOM, 20.0)), "Download"),
        (OfferRow(HubOffer("org/x:Q8_0", 1, ROOM + 1, 20.0)), "Download anyway"),
        (ModelDownload("org/x", running=True), "Stop"),
        (ModelDownload("org/x"), "Resume"),
        (ModelDownload("org/x", failure="broke off"), "Retry"),
    ],
)
def test_what_enter_does(row: PickerRow, does: str) -> None:
    assert enter_action(row, ROOM) == does


def test_sizes_are_human_readable() -> None:
    sizes = [figures.format_size(count) for count in (4.94e9, 14e6, 3200)]
    assert sizes == ["4.9 GB", "14 MB", "3 KB"]
    assert [figures.format_parameters(count) for count in (8 * 10**9, 7 * 10**6, 4000)] == [
        "8.0 B",
        "7 M",
        "4 K",
    ]
    assert [figures.format_time_left(seconds) for seconds in (42.4, 150, 4800)] == [
        "42 s left",
        "2 min left",
        "1 h 20 min left",
    ]

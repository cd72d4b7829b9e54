"""What the model picker lists from Hugging Face: search results, a repository, suggestions.

Suggestions need no connection.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.config import load_config
from app.interface.models.rows import OfferRow, PickerRow, SearchRequest, offer_rows
from app.locations import Locations
from app.models.hub_search import HubRepository, known_offers, offers_in_child, search_in_child

ASKING = "searching Hugging Face…"
NOTHING_FOUND = "Hugging Face has no such model. Use fewer or other words."
OFFERED = "Fewer bits are smaller and faster, but less exact. Speeds are estimates."


@dataclass(frozen=True, slots=True)
class HubPage:
    """What the picker lists: the title of the dialog, the rows, and a note below them."""

    title: str
    rows: Sequence[PickerRow] = ()
    note: str = ASKING


def asking(row: SearchRequest | HubRepository) -> HubPage:
    """The page until the hub has answered."""
    return HubPage(_search_title(row.words) if isinstance(row, SearchRequest) else row.name)


async def answer_search(words: str) -> HubPage:
    """Repositories for `words`.

    Raises:
        ModelError: the hub cannot be reached.
    """
    found = await search_in_child(words)
    return HubPage(_search_title(words), found, "" if found else NOTHING_FOUND)


async def answer_offers(repository: str, locations: Locations, free_memory: int) -> HubPage:
    """The models of a repository, the best for `free_memory` bytes first.

    Raises:
        ModelError: the hub cannot be reached.
        InputError: the settings file is invalid.
    """
    offered = await offers_in_child(repository, _context_length(locations))
    return HubPage(repository, offer_rows(offered, free_memory), OFFERED)


def suggestions(locations: Locations, free_memory: int) -> list[OfferRow]:
    """Well-known models that fit into `free_memory` bytes.

    Raises:
        InputError: the settings file is invalid.
    """
    return offer_rows(known_offers(_context_length(locations), free_memory), free_memory)


def _context_length(locations: Locations) -> int:
    return load_config(locations.settings).context


def _search_title(words: str) -> str:
    return f"Hugging Face: {words}"

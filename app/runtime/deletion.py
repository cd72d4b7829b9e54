"""Deleting a chat, making it private, forgetting a source: the words leave every store.

Owns the order of things. What stores may hold is what history and library still offer; each forgets
by comparing, and a forgetting that was interrupted is made good by the next. A kind of store takes
part by its line in `FORGETTERS`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

from app.config import load_config
from app.conversation.privacy import (
    CHAT_PREFIX,
    TEXT_PREFIX,
    chat_source,
    forget_loaded,
    text_source,
)
from app.engine.engine import Engine
from app.engine.stores import Stores
from app.importing.session import drop_import
from app.indexing.corpus_index import forget_removed_texts
from app.indexing.passage_index import forget_passages
from app.locations import Locations
from datastores.chats.history import History
from datastores.dense.store import retain
from datastores.library.library import Library

Forgetter = Callable[[Locations, History], object]
"""Leaves no byte, in any file of one kind of store, of what the history does not offer (any more).

Every file of that kind is meant, those of models that are not loaded as well. Raises StoreError
where another process hinders it; calling it again finishes the work.
"""


def delete_chat(
    history: History, locations: Locations, chat: int, engine: Engine | None = None
) -> None:
    """Delete `chat` from every store; it takes a second or so for each 60 MB of history.

    Args:
        engine: the one that is loaded in this process, if one is.

    Raises:
        InputError: there is no such chat.
        StoreError: it is deleted, but its bytes are not all gone: `forget_gone` goes on.
    """
    history.delete_chat(chat)
    _forget(history, locations, chat, engine)


def make_private(
    history: History, locations: Locations, chat: int, engine: Engine | None = None
) -> None:
    """Make `chat` private: it stays in the history alone, as if it had been private always.

    Raises:
        InputError, StoreError: as for `delete_chat`.
    """
    history.set_private(chat, True)
    _forget(history, locations, chat, engine)


def forget_source(
    library: Library,
    history: History,
    locations: Locations,
    path: str,
    engine: Engine | None = None,
) -> None:
    """Forget the imported source `path` in every store; texts that another one has too stay.

    Args:
        engine: the one that is loaded in this process, if one is.

    Raises:
        InputError: there is no such source.
        StoreError: it is forgotten, but its bytes are not all gone: the next call, for any source,
            goes on.
    """
    library.forget(path)
    stores = engine.stores if engine is not None else Stores()
    with ExitStack() as steps:
        steps.callback(stores.ask_dense, lambda index: index.reconcile())
        steps.callback(forget_gone, history, locations)
        steps.callback(library.erase)
        steps.callback(drop_import, locations.imported, path)
        # The loaded index first: it writes what it still holds, so that it is deleted on disk.
        steps.callback(stores.ask_dense, lambda index: index.flush())


def forget_gone(history: History, locations: Locations) -> None:
    """Erase what was deleted, and have every store forget what it should not hold.

    Cheap where there is nothing to do, so it may follow every start. One store that fails does not
    keep the others from forgetting.

    Raises:
        StoreError: another process hinders it; calling this again finishes the work.
    """
    with ExitStack() as steps:
        for forget in FORGETTERS:
            steps.callback(forget, locations, history)
        steps.callback(history.erase)


def set_aside(locations: Locations) -> list[Path]:
    """Damaged histories that were set aside: they are the person's to keep or to delete, and may
    hold chats that were deleted since."""
    return sorted(locations.data.glob(f"{locations.history.name}.corrupt-*"))


def _forget(history: History, locations: Locations, chat: int, engine: Engine | None) -> None:
    """What is alive first: it writes what it still holds."""
    with ExitStack() as steps:
        steps.callback(forget_gone, history, locations)
        if engine is not None:
            forget_loaded(engine, chat_source(history.name, chat))


def _n_grams(locations: Locations, _history: History) -> None:
    forget_removed_texts(locations, load_config(locations.settings).crest.max_bytes)


def _states(locations: Locations, history: History) -> None:
    wanted = {chat_source(history.name, chat.id) for chat in history.chats() if not chat.private}
    with closing(Library.open(locations.library)) as library:
        wanted |= {text_source(digest) for digest in library.digests()}
    for path in sorted(locations.states.glob("*.db")):
        retain(path, (CHAT_PREFIX, TEXT_PREFIX), wanted)


def _passages(locations: Locations, _history: History) -> None:
    forget_passages(locations)


FORGETTERS: list[Forgetter] = [_n_grams, _states, _passages]
"""One for each kind of store that is made of texts or of what a model did with them."""

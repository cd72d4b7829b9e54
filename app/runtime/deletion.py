"""Erases chats and imports from every store: deleted chats, chats made private, forgotten imports.

Each kind of store has an entry in `ERASERS`, which erases whatever is no longer in the history or
the library, so that an interrupted erasure is completed by the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack, closing
from pathlib import Path

from app.config import load_config
from app.conversation.privacy import (
    CHAT_PREFIX,
    TEXT_PREFIX,
    forget_loaded,
    owner_of_chat,
    owner_of_text,
)
from app.conversation.unsent import retain_unsent
from app.engine.draft_model_versions import drop_tainted
from app.engine.draft_resources import DraftResources
from app.engine.engine import Engine
from app.importing.session import drop_import
from app.indexing.corpus_index import forget_removed_texts
from app.indexing.passage_index import forget_passages
from app.locations import Locations
from datastores import kv_blocks
from datastores.chats.history import History
from datastores.dense.store import retain
from datastores.library.library import Library
from datastores.replay_buffer import store as replay

Eraser = Callable[[Locations, History], object]
"""Erases from every file of one kind of store, those of other models included, what the history and
the library no longer hold.

Raises StoreError if another process prevents it; calling it again completes the work.
"""


def delete_chat(
    history: History, locations: Locations, chat: int, engine: Engine | None = None
) -> None:
    """Delete `chat` from every store; this takes about a second for each 60 MB of history.

    Args:
        engine: the engine loaded in this process, if any.

    Raises:
        InputError: there is no such chat.
        StoreError: it is deleted but not fully erased: `erase_deleted` completes that.
    """
    history.delete_chat(chat)
    _erase(history, locations, chat, engine)


def make_private(
    history: History, locations: Locations, chat: int, engine: Engine | None = None
) -> None:
    """Make `chat` private, and erase it from every store but the history.

    Raises:
        InputError, StoreError: as for `delete_chat`.
    """
    history.set_private(chat, True)
    _erase(history, locations, chat, engine)


def delete_program_answers(
    history: History, locations: Locations, engine: Engine | None = None, keep_bytes: int = 0
) -> None:
    """Delete answers to programs from every store, the oldest first, down to `keep_bytes`.

    Raises:
        StoreError: as for `delete_chat`.
    """
    gone = history.delete_program_answers(keep_bytes)
    with ExitStack() as steps:
        steps.callback(erase_deleted, history, locations)
        if engine is not None:
            for chat in gone:
                steps.callback(forget_loaded, engine, owner_of_chat(history.name, chat))


def forget_import(
    library: Library,
    history: History,
    locations: Locations,
    path: str,
    engine: Engine | None = None,
) -> None:
    """Forget the import from `path` in every store; texts that other imports share stay.

    Raises:
        InputError: there is no such import.
        StoreError: it is forgotten but not fully erased: the next call, for any import, completes
            that.
    """
    library.forget(path)
    with ExitStack() as steps:
        steps.callback(_erase_texts, library, history, locations, engine)
        steps.callback(drop_import, locations.imported, path)


def forget_files(
    library: Library,
    history: History,
    locations: Locations,
    import_path: str,
    files: Iterable[str],
    engine: Engine | None = None,
) -> None:
    """Forget `files` of the import from `import_path` in every store; shared texts stay.

    Raises:
        StoreError: as for `forget_import`.
    """
    library.forget_files(import_path, files)
    _erase_texts(library, history, locations, engine)


def _erase_texts(
    library: Library, history: History, locations: Locations, engine: Engine | None
) -> None:
    """Erase texts that were deleted from the library."""
    resources = engine.resources if engine is not None else DraftResources()
    with ExitStack() as steps:
        steps.callback(resources.ask_dense, lambda index: index.reconcile())
        steps.callback(erase_deleted, history, locations)
        steps.callback(library.erase)
        # The loaded index first writes what it holds in memory, so that it is erased on disk.
        steps.callback(resources.ask_dense, lambda index: index.flush())


def erase_deleted(history: History, locations: Locations) -> None:
    """Erase what was deleted, in every store, even if one fails.

    Cheap if there is nothing to do, so it may run at every start.

    Raises:
        StoreError: another process prevents it; calling this again completes the work.
    """
    with ExitStack() as steps:
        for erase in ERASERS:
            steps.callback(erase, locations, history)
        steps.callback(history.erase)


def quarantined_histories(locations: Locations) -> list[Path]:
    """Damaged histories that were set aside, which may hold deleted chats; the user decides whether
    to keep them."""
    return sorted(locations.data.glob(f"{locations.history.name}.corrupt-*"))


def _erase(history: History, locations: Locations, chat: int, engine: Engine | None) -> None:
    # The loaded engine first, as what it writes now is erased with the rest.
    with ExitStack() as steps:
        steps.callback(erase_deleted, history, locations)
        if engine is not None:
            forget_loaded(engine, owner_of_chat(history.name, chat))


def _erase_ngrams(locations: Locations, _history: History) -> None:
    forget_removed_texts(locations, load_config(locations.settings).crest.max_bytes)


def _erase_states(locations: Locations, history: History) -> None:
    offered = _offered_chats(history) | _imported_texts(locations)
    for path in sorted(locations.states.glob("*.db")):
        retain(path, (CHAT_PREFIX, TEXT_PREFIX), offered)


def _erase_records(locations: Locations, history: History) -> None:
    offered = _offered_chats(history) | _imported_texts(locations)
    with ExitStack() as steps:
        steps.callback(drop_tainted, locations)  # last, and also where a buffer was damaged
        for path in sorted(locations.replay.glob("*.db")):
            steps.callback(replay.retain, path, (CHAT_PREFIX, TEXT_PREFIX), offered)


def _offered_chats(history: History) -> set[str]:
    chats = (chat for chat in history.all_chats() if not chat.private)
    return {owner_of_chat(history.name, chat.id) for chat in chats}


def _imported_texts(locations: Locations) -> set[str]:
    with closing(Library.open(locations.library)) as library:
        return {owner_of_text(digest) for digest in library.digests()}


def _erase_unsent(locations: Locations, history: History) -> None:
    retain_unsent(locations.unsent, {chat.id for chat in history.chats() if not chat.private})


def _erase_chat_states(locations: Locations, history: History) -> None:
    kv_blocks.retain(locations.chat_states, _offered_chats(history))


def _erase_passages(locations: Locations, _history: History) -> None:
    forget_passages(locations)


ERASERS: list[Eraser] = [
    _erase_ngrams,
    _erase_states,
    _erase_records,
    _erase_unsent,
    _erase_passages,
    _erase_chat_states,
]
"""One for each kind of store that is derived from texts."""

"""Deleting a chat, or making it private: its words leave every store, not only the history.

Owns the order of things. What stores may hold is what the corpus offers; deleted and private chats
are not in it, so a store forgets by comparing. A kind of store takes part by its line in
`FORGETTERS`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing

from app.locations import Locations
from datastores.corpus import Corpus
from datastores.history import History
from datastores.library import Library

Forgetter = Callable[[Locations, Corpus], object]
"""Leaves no byte, in any file of one kind of store, of what the corpus does not hold (any more).

Every file of that kind is meant, those of models that are not loaded as well. Raises StoreError
where another process hinders it; calling it again finishes the work.
"""

FORGETTERS: list[Forgetter] = []
"""One for each kind of store that is made of texts or of what a model did with them."""


def delete_chat(history: History, locations: Locations, chat: int) -> None:
    """Delete `chat` from every store; it takes a second or so for each 60 MB of history.

    Raises:
        InputError: there is no such chat.
        StoreError: it is deleted, but its bytes are not all gone: `forget_gone` goes on.
    """
    history.delete_chat(chat)
    forget_gone(history, locations)


def make_private(history: History, locations: Locations, chat: int) -> None:
    """Make `chat` private: it stays in the history alone, as if it had been private always.

    Raises:
        InputError, StoreError: as for `delete_chat`.
    """
    history.set_private(chat, True)
    forget_gone(history, locations)


def forget_gone(history: History, locations: Locations) -> None:
    """Erase what was deleted, and have every store forget what it should not hold.

    Cheap where there is nothing to do, so it may follow every start. One store that fails does not
    keep the others from forgetting.

    Raises:
        StoreError: another process hinders it; calling this again finishes the work.
    """
    with closing(Library.open(locations.library)) as library, ExitStack() as steps:
        corpus = Corpus(library, history)
        for forget in FORGETTERS:
            steps.callback(forget, locations, corpus)
        steps.callback(history.erase)

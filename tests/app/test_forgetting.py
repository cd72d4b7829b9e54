"""Deleting and making private: every store is told, whatever another one does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from app import forgetting
from app.forgetting import delete_chat, forget_gone, make_private
from app.locations import Locations, locate
from datastores.corpus import Corpus
from datastores.errors import InputError, StoreError
from datastores.history import History
from datastores.library import Library
from datastores.records import USER


class Memory:
    """A store of texts as plain as can be: the keys it knows."""

    def __init__(self) -> None:
        self.keys: tuple[bytes, ...] = ()
        self.failing = False

    def learn(self, locations: Locations, corpus: Corpus) -> None:
        self.keys = corpus.difference(()).added

    def forget(self, locations: Locations, corpus: Corpus) -> None:
        if self.failing:
            raise StoreError("hindered")
        gone = corpus.difference(self.keys).gone
        self.keys = tuple(key for key in self.keys if key not in gone)


@pytest.fixture
def locations(tmp_path: Path) -> Locations:
    return locate(tmp_path)


@pytest.fixture
def history(locations: Locations) -> Iterator[History]:
    with closing(History.open(locations.history)) as opened:
        yield opened


@pytest.fixture
def stores(monkeypatch: pytest.MonkeyPatch) -> list[Memory]:
    """Two kinds of stores that take part."""
    made = [Memory(), Memory()]
    monkeypatch.setattr(forgetting, "FORGETTERS", [store.forget for store in made])
    return made


def _chats(history: History, stores: list[Memory], locations: Locations) -> tuple[int, int]:
    """Two chats of one message each, which the stores have learnt."""
    ids = []
    for text in ("one", "two"):
        ids.append(history.create_chat(text).id)
        history.add_message(ids[-1], None, USER, text)
    with closing(Library.open(locations.library)) as library:
        for store in stores:
            store.learn(locations, Corpus(library, history))
    assert all(len(store.keys) == 2 for store in stores)
    return ids[0], ids[1]


def test_a_deleted_chat_leaves_history_and_stores(
    history: History, locations: Locations, stores: list[Memory]
) -> None:
    first, second = _chats(history, stores, locations)
    delete_chat(history, locations, first)
    assert [chat.id for chat in history.chats()] == [second]
    assert [len(store.keys) for store in stores] == [1, 1]
    assert not history.erase(), "it is erased already"


def test_a_chat_made_private_leaves_the_stores_alone(
    history: History, locations: Locations, stores: list[Memory]
) -> None:
    first, _ = _chats(history, stores, locations)
    make_private(history, locations, first)
    assert [len(store.keys) for store in stores] == [1, 1]
    assert history.chat(first).private
    assert [message.content for message in history.thread(first)] == ["one"]


@pytest.mark.parametrize("failing", [0, 1])
def test_one_store_that_is_hindered_keeps_no_other_from_forgetting(
    history: History, locations: Locations, stores: list[Memory], failing: int
) -> None:
    first, _ = _chats(history, stores, locations)
    stores[failing].failing = True
    with pytest.raises(StoreError, match="hindered"):
        delete_chat(history, locations, first)
    assert len(stores[1 - failing].keys) == 1
    assert not history.erase(), "it is erased already"
    stores[failing].failing = False
    forget_gone(history, locations)
    assert len(stores[failing].keys) == 1


def test_what_is_not_there_is_named_and_nothing_is_done(
    history: History, locations: Locations, stores: list[Memory]
) -> None:
    _chats(history, stores, locations)
    for act in (delete_chat, make_private):
        with pytest.raises(InputError, match="no chat 99"):
            act(history, locations, 99)
    assert [len(store.keys) for store in stores] == [2, 2]

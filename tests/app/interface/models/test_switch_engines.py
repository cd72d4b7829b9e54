"""Switching between real models: another tokenizer, another memory, the same chat."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event as Flag

import pytest

from app.config import Options
from app.indexing.corpus_index import TOKENS
from app.interface.chat.event_stream import EventQueue
from app.interface.chat.thread import asking
from app.locations import Locations
from app.models.known_folders import embedded
from app.runtime.model_thread import Model, ModelThread
from app.runtime.session import open_model
from datastores.chats.history import History
from datastores.chats.records import StoredMessage
from datastores.errors import ModelError, StoreError
from datastores.token_cache import TokenCache
from tests.app.models.gguf_files import write_gguf
from tests.engines.tiny import Words, write_llama

SHARED = Path(__file__).parents[5] / "shared" / "models" / "provisional-target-f16.gguf"
OPTIONS = Options(drafters=("prompt", "recycle", "crest"), max_tokens=8, temperature=0.0)


def opened(locations: Locations, history: History, choice: str | None) -> Model:
    """Open a model as the interface does."""
    options = OPTIONS if choice is None else replace(OPTIONS, model=choice)
    return open_model(options, locations, history, lambda progress, trouble: None)


@pytest.fixture
def talk(locations: Locations, history: History) -> Iterator[ModelThread]:
    made = ModelThread(partial(opened, locations, history), EventQueue(lambda: None))
    yield made
    assert made.leave()


@pytest.fixture(params=["tiny", "shared"])
def other(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A model with another tokenizer: random weights, or one that writes sentences."""
    if request.param == "tiny":
        return write_llama(tmp_path / "tiny.gguf", Words(pieces=["a", "b"]))
    if not SHARED.is_file():
        pytest.skip(f"{SHARED} is not here")
    return SHARED


async def said(talk: ModelThread, history: History, chat: int, text: str) -> StoredMessage:
    """Ask and return the stored answer."""
    await talk.ask(asking(chat, history.thread(chat), text))
    return history.thread(chat)[-1]


async def test_the_same_chat_goes_on_with_another_tokenizer(
    talk: ModelThread, history: History, locations: Locations, other: Path
) -> None:
    chat = history.create_chat().id
    first = await talk.load()
    assert first.engine is not None
    tokenizer = first.engine.vocabulary.fingerprint
    before = await said(talk, history, chat, "How do I copy a directory?")
    second = await talk.switch(str(other))
    assert second.engine is not None
    after = await said(talk, history, chat, "And a file?")
    assert before.tokenizer == tokenizer
    assert after.tokenizer == second.engine.vocabulary.fingerprint != tokenizer
    assert after.tokens
    assert [message.role for message in history.thread(chat)] == ["user", "assistant"] * 2
    assert second.engine.stores.crest is not None
    await projected(locations, second)


async def projected(locations: Locations, model: Model) -> None:
    """Wait until the stores of the model's tokenizer hold what was said with another."""
    assert model.engine is not None
    folder = locations.projections / model.engine.vocabulary.fingerprint
    for _ in range(3000):
        if (folder / TOKENS).exists():
            with closing(TokenCache.open(folder / TOKENS)) as cache:
                if cache.total_tokens():
                    return
        await asyncio.sleep(0.02)
    raise AssertionError("the new tokenizer's stores stayed empty")


async def test_the_model_before_is_gone_when_the_next_is_loaded(
    locations: Locations, history: History, tmp_path: Path
) -> None:
    left: list[weakref.ref[object]] = []
    alive: list[object] = []

    def watched(choice: str | None) -> Model:
        alive.extend(target for ref in left if (target := ref()) is not None)
        model = opened(locations, history, choice)
        assert model.engine is not None
        left.append(weakref.ref(model.engine.target))
        return model

    talk = ModelThread(watched, EventQueue(lambda: None))
    chat = history.create_chat().id
    await talk.load()
    await said(talk, history, chat, "hello")
    tiny = write_llama(tmp_path / "tiny.gguf", Words(pieces=["a"]))
    await talk.switch(str(tiny))
    await said(talk, history, chat, "hello again")
    await talk.switch(str(embedded()))
    assert (len(left), alive) == (3, [])
    assert talk.leave()


async def test_a_model_that_cannot_be_loaded_leaves_the_one_before(
    talk: ModelThread, history: History, tmp_path: Path
) -> None:
    broken = write_gguf(tmp_path / "broken.gguf")
    chat = history.create_chat().id
    before = await talk.load()
    first = await said(talk, history, chat, "How do I copy a directory?")
    with pytest.raises(ModelError, match=r"broken\.gguf cannot be loaded"):
        await talk.switch(str(broken))
    assert talk.model is not None
    assert talk.model is not before
    assert talk.model.path == before.path == embedded()
    again = history.create_chat().id
    assert (await said(talk, history, again, "How do I copy a directory?")).tokens == first.tokens


async def test_one_that_does_not_fit_is_refused_with_the_figures(
    talk: ModelThread, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    await talk.load()
    wide = write_gguf(tmp_path / "wide.gguf", attention__key_length=1 << 22)
    monkeypatch.setattr("app.models.memory.available", lambda cards=True: 10**9)
    with pytest.raises(ModelError, match=r"wide\.gguf needs .* of memory .* and 1 GB are free"):
        await talk.switch(str(wide))
    assert talk.model is not None
    assert talk.model.path == embedded()


async def test_one_that_cannot_be_closed_is_opened_again(
    locations: Locations, history: History, tmp_path: Path
) -> None:
    def unclosable(choice: str | None) -> Model:
        model = opened(locations, history, choice)

        def full() -> None:
            model.close()
            raise StoreError("costs.json: the disk is full")

        return replace(model, close=full)

    talk = ModelThread(unclosable, EventQueue(lambda: None))
    await talk.load()
    with pytest.raises(ModelError, match="the disk is full"):
        await talk.switch(str(write_llama(tmp_path / "tiny.gguf", Words(pieces=["a"]))))
    assert talk.model is not None
    assert talk.model.path == embedded()
    with pytest.raises(StoreError, match="the disk is full"):
        talk.leave()


async def test_leaving_while_a_model_is_loaded_does_not_close_it_under_the_loader(
    locations: Locations, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, closed = Flag(), []

    def slow(choice: str | None) -> Model:
        gate.wait(60)
        model = opened(locations, history, choice)

        def close() -> None:
            closed.append(True)
            model.close()

        return replace(model, close=close)

    monkeypatch.setattr("app.runtime.model_thread.PATIENCE", 0.01)
    talk = ModelThread(slow, EventQueue(lambda: None))
    loading = asyncio.create_task(talk.load())
    await asyncio.sleep(0)
    asked = asyncio.create_task(said(talk, history, history.create_chat().id, "early"))
    await asyncio.sleep(0)
    assert not talk.leave()
    assert not closed
    gate.set()
    await loading
    with suppress(IndexError):  # there is no answer
        await asked
    monkeypatch.setattr("app.runtime.model_thread.PATIENCE", 60.0)
    assert talk.leave()
    assert closed

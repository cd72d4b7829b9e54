"""Real models on one thread: another tokenizer, another memory, the same chat."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event as Flag
from typing import cast

import pytest

from app.config import Options
from app.conversation.events import Event, Finished, Wrote
from app.foreground import Foreground
from app.indexing.corpus_index import TOKENS_FILE
from app.locations import Locations
from app.models.discovery import embedded
from app.runtime.model_thread import Answers, Model, ModelThread
from app.runtime.open_model import ASK_A_COMMAND, open_model
from datastores.chats.history import History
from datastores.chats.records import StoredMessage
from datastores.errors import ModelError, StoreError
from datastores.token_cache import TokenCache
from engines.chat_template.template import BASE_MODEL
from engines.llama import native
from tests.app.frames import MAX_FRAMES, MAX_INTERFACE_FRAMES, own_frames
from tests.app.models.gguf_files import write_gguf
from tests.engines.tiny import TinyVocabulary, write_llama
from tests.waiting import TIMEOUT_S, until

pytestmark = pytest.mark.usefixtures("unhurried_close", "indexed_at_normal_priority")
SHARED = Path(__file__).parents[4] / "shared" / "models" / "provisional-target-f16.gguf"
OPTIONS = Options(drafters=("prompt", "recycle", "crest"), max_tokens=8, temperature=0.0)


def opened(locations: Locations, history: History, choice: str | None) -> Model:
    """Open a model as the interface does."""
    options = OPTIONS if choice is None else replace(OPTIONS, model=choice)
    return open_model(options, locations, history, lambda progress, error: None)


@pytest.fixture
def thread(locations: Locations, history: History) -> Iterator[ModelThread]:
    made = ModelThread(partial(opened, locations, history), Foreground(locations.foreground))
    yield made
    assert made.close()


@pytest.fixture(params=["tiny", "shared"])
def other(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A model with another tokenizer: random weights, or one that writes sentences."""
    if request.param == "tiny":
        return write_llama(tmp_path / "tiny.gguf", TinyVocabulary(pieces=["a", "b"]))
    if not SHARED.is_file():
        pytest.skip(f"{SHARED} is not here")
    return SHARED


def load(thread: ModelThread) -> Model:
    """Load the first model and return it."""
    thread.load().result()
    assert thread.model is not None
    return thread.model


def said(thread: ModelThread, history: History, chat: int, text: str) -> StoredMessage:
    """Ask and return the stored answer."""
    parent = history.chat(chat).active
    events: list[Event] = []
    thread.ask(lambda assistant: assistant.answer(chat, parent, text), events.append).result()
    assert isinstance(events[-1], Finished)
    return history.thread(chat)[-1]


def test_a_base_model_is_named_one_and_asked_in_a_plain_form(
    tmp_path: Path, locations: Locations, history: History
) -> None:
    path = write_llama(tmp_path / "base.gguf", TinyVocabulary(pieces=["a", "b"]))
    with closing(opened(locations, history, str(path))) as model:
        assert BASE_MODEL in model.hint
        assert model.engine is not None
        assert model.engine.stop == ("\nQuestion:",)
        assert model.asks == ""


def test_the_built_in_model_asks_for_what_it_knows(thread: ModelThread) -> None:
    assert load(thread).asks == ASK_A_COMMAND


def test_the_same_chat_goes_on_with_another_tokenizer(
    thread: ModelThread, history: History, locations: Locations, other: Path
) -> None:
    chat = history.create_chat().id
    first = load(thread)
    assert first.engine is not None
    tokenizer = first.engine.vocabulary.fingerprint
    before = said(thread, history, chat, "How do I copy a directory?")
    thread.switch(str(other)).result()
    second = thread.model
    assert second is not None
    assert second.engine is not None
    after = said(thread, history, chat, "And a file?")
    assert before.tokenizer == tokenizer
    assert after.tokenizer == second.engine.vocabulary.fingerprint != tokenizer
    assert after.tokens
    assert [message.role for message in history.thread(chat)] == ["user", "assistant"] * 2
    assert second.engine.resources.crest is not None
    projected(locations, second)


def projected(locations: Locations, model: Model) -> None:
    """Wait until the stores of the model's tokenizer hold what was said with another."""
    assert model.engine is not None
    folder = locations.projections / model.engine.vocabulary.fingerprint

    def holds_tokens() -> bool:
        if not (folder / TOKENS_FILE).exists():
            return False
        with closing(TokenCache.open(folder / TOKENS_FILE)) as cache:
            return sum(cache.token_counts().values()) > 0

    until(holds_tokens)


def test_the_model_before_is_gone_when_the_next_is_loaded(
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

    thread = ModelThread(watched, Foreground(locations.foreground))
    chat = history.create_chat().id
    thread.load().result()
    said(thread, history, chat, "hello")
    tiny = write_llama(tmp_path / "tiny.gguf", TinyVocabulary(pieces=["a"]))
    thread.switch(str(tiny)).result()
    said(thread, history, chat, "hello again")
    thread.switch(str(embedded())).result()
    assert (len(left), alive) == (3, [])
    assert thread.close()


def test_a_model_that_cannot_be_loaded_leaves_the_one_before(
    thread: ModelThread, history: History, tmp_path: Path
) -> None:
    broken = write_gguf(tmp_path / "broken.gguf")
    chat = history.create_chat().id
    before = load(thread)
    first = said(thread, history, chat, "How do I copy a directory?")
    with pytest.raises(ModelError, match=r"broken\.gguf cannot be loaded"):
        thread.switch(str(broken)).result()
    assert thread.model is not None
    assert thread.model is not before
    assert thread.model.path == before.path == embedded()
    again = history.create_chat().id
    assert (said(thread, history, again, "How do I copy a directory?")).tokens == first.tokens


def test_one_that_does_not_fit_is_refused_with_the_figures(
    thread: ModelThread, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    thread.load().result()
    wide = write_gguf(tmp_path / "wide.gguf", attention__key_length=1 << 22)
    monkeypatch.setattr("app.models.memory.available_memory", lambda cards=True: 10**9)
    with pytest.raises(ModelError, match=r"wide\.gguf needs .* of memory .* and 1 GB are free"):
        thread.switch(str(wide)).result()
    assert thread.model is not None
    assert thread.model.path == embedded()


def test_one_that_cannot_be_closed_is_opened_again(
    locations: Locations, history: History, tmp_path: Path
) -> None:
    def unclosable(choice: str | None) -> Model:
        model = opened(locations, history, choice)

        def full() -> None:
            model.close()
            raise StoreError("costs.json: the disk is full")

        return replace(model, close=full)

    thread = ModelThread(unclosable, Foreground(locations.foreground))
    thread.load().result()
    with pytest.raises(ModelError, match="the disk is full"):
        thread.switch(
            str(write_llama(tmp_path / "tiny.gguf", TinyVocabulary(pieces=["a"])))
        ).result()
    assert thread.model is not None
    assert thread.model.path == embedded()
    with pytest.raises(StoreError, match="the disk is full"):
        thread.close()


def test_each_answer_is_stopped_by_its_own_future(thread: ModelThread, history: History) -> None:
    begun, gate, ends = Flag(), Flag(), dict[str, str]()

    def ask(text: str) -> Future[None]:
        chat = history.create_chat().id

        def take(event: Event) -> None:
            if isinstance(event, Wrote) and text == "first":
                begun.set()
                gate.wait(TIMEOUT_S)
            if isinstance(event, Finished):
                ends[text] = event.finish

        return thread.ask(lambda assistant: assistant.answer(chat, None, text), take)

    load(thread)
    first, second, third = map(ask, ("first", "second", "third"))
    assert begun.wait(TIMEOUT_S)
    assert thread.is_answering
    thread.stop(second)
    thread.stop(first)
    gate.set()
    third.result()
    thread.stop(first)  # it is done: the next answer is not stopped in its place
    ask("fourth").result()
    assert second.cancelled()
    assert ends == {"first": "interrupted", "third": "length", "fourth": "length"}
    assert not thread.is_answering


@pytest.mark.parametrize("act", ["work", "switch", "close"])
def test_idle_work_ends_its_slice_for_whoever_waits(locations: Locations, act: str) -> None:
    foreground, begun = Foreground(locations.foreground), Flag()

    class Reading:
        """A slice that lasts until somebody waits."""

        def __init__(self) -> None:
            self.on_wake: Callable[[], object] = lambda: None

        def slice(self) -> bool:
            begun.set()
            until(foreground.busy)
            return False

        def close(self) -> None: ...

    def opened(choice: str | None) -> Model:
        idle = () if choice else (Reading(),)
        return Model("scripted", "", cast(Answers, None), lambda: None, idle=idle)

    thread = ModelThread(opened, foreground)
    thread.load().result()
    assert begun.wait(TIMEOUT_S)
    if act == "work":
        thread.between_answers(lambda engine: None).result()
    elif act == "switch":
        thread.switch("other").result()
    assert thread.close()
    assert not foreground.busy()


def test_closing_while_a_model_loads_does_not_close_it_under_the_loader(
    locations: Locations, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, closed = Flag(), []

    def slow(choice: str | None) -> Model:
        gate.wait(TIMEOUT_S)
        model = opened(locations, history, choice)

        def close() -> None:
            closed.append(True)
            model.close()

        return replace(model, close=close)

    monkeypatch.setattr("app.runtime.model_thread.CLOSE_TIMEOUT_S", 0.01)
    thread = ModelThread(slow, Foreground(locations.foreground))
    loading = thread.load()
    chat = history.create_chat().id
    asked = thread.ask(lambda assistant: assistant.answer(chat, None, "early"), lambda _: None)
    assert not thread.close()
    assert not closed
    gate.set()
    loading.result()
    assert asked.cancelled()
    assert history.thread(chat) == []
    monkeypatch.setattr("app.runtime.model_thread.CLOSE_TIMEOUT_S", TIMEOUT_S)
    assert thread.close()
    assert closed


def test_few_frames_lie_between_the_model_thread_and_the_forward_pass(
    thread: ModelThread, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    stacks: list[list[str]] = []
    decode = native.decode

    def spy(*arguments: object) -> int:
        stacks.append(own_frames())
        return int(decode(*arguments))

    load(thread)
    monkeypatch.setattr(native, "decode", spy)
    said(thread, history, history.create_chat().id, "How do I copy a directory?")
    longest = max(stacks, key=len)
    assert len(longest) <= MAX_FRAMES - MAX_INTERFACE_FRAMES, longest

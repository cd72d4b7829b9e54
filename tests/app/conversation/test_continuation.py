"""A stopped answer that goes on is the answer that was never stopped, token for token."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from app.config import Options
from app.conversation.assistant import Assistant
from app.conversation.citations import CITATIONS_KEY
from app.conversation.continuation import NO_TOKENS, OTHER_MODEL
from app.conversation.events import Event, Resumed, Wrote
from app.conversation.imported_texts import ImportedTexts
from app.conversation.statistics import ORIGINS_KEY, attributed_pieces
from app.engine.loading import load
from app.indexing.passage_index import update
from app.locations import Locations
from datastores.chats.history import History
from datastores.chats.records import ASSISTANT, StoredMessage
from datastores.errors import ContextOverflowError, InputError
from datastores.library.documents import NOTES, Document, Part, StoreDocument
from engines.sampler import Sampling
from tests.app.scripted import scripted_engine

WILD = Sampling(temperature=0.8, top_k=0, top_p=1.0, min_p=0.0, seed=2)
QUESTION = "How many telescopes does the walrus keep?"


def stopped_after(assistant: Assistant, events: Iterable[Event], steps: int) -> Iterator[Event]:
    """The events of an answer that is stopped after so many steps."""
    for event in events:
        yield event
        if isinstance(event, Wrote):
            steps -= 1
            if steps == 0:
                assistant.stop()


def ask(assistant: Assistant, question: str = QUESTION, *, steps: int = 0) -> StoredMessage:
    """The answer to `question` in a new chat, stopped after so many steps, and stored."""
    chat = assistant.history.create_chat().id
    list(stopped_after(assistant, assistant.answer(chat, None, question), steps))
    return assistant.history.thread(chat)[-1]


def resume(assistant: Assistant, answer: StoredMessage, *, steps: int = 0) -> StoredMessage:
    """`answer` after it went on, to its end or for so many steps."""
    list(stopped_after(assistant, assistant.resume(answer.id), steps))
    return assistant.history.thread(answer.chat)[-1]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("stops", [(1,), (2, 1, 2)])
def test_a_stopped_answer_goes_on_as_the_one_that_was_never_stopped(
    tmp_path: Path, history: History, temperature: float, stops: tuple[int, ...]
) -> None:
    sampling = replace(WILD, temperature=temperature)
    engine = scripted_engine(tmp_path, sampling=sampling, draft_tokens=4)
    assistant = Assistant(engine, history)
    whole = ask(assistant)
    answer = ask(assistant, steps=stops[0])
    assert answer.finish == "interrupted"
    for steps in (*stops[1:], 0):
        begun = answer
        answer = resume(assistant, begun, steps=steps)
        assert answer.tokens[: len(begun.tokens)] == begun.tokens
    assert answer.tokens == whole.tokens
    assert answer.content == whole.content
    assert answer.finish == whole.finish
    assert [message.role for message in history.thread(answer.chat)] == ["user", "assistant"]
    assert history.versions(answer.chat) == {}, "one message, not two versions"
    assert answer.statistics["tokens"] == whole.statistics["tokens"]
    runs = answer.statistics[ORIGINS_KEY]
    assert isinstance(runs, list)
    assert attributed_pieces(answer.content, runs)


def test_an_answer_at_the_limit_goes_on_for_as_much_again(tmp_path: Path, history: History) -> None:
    engine = scripted_engine(tmp_path, sampling=WILD, max_tokens=40)
    whole = ask(Assistant(engine, history))
    engine.defaults = replace(engine.defaults, max_tokens=20)
    assistant = Assistant(engine, history)
    answer = ask(assistant)
    assert (answer.finish, len(answer.tokens)) == ("length", 20)
    answer = resume(assistant, answer)
    assert answer.tokens == whole.tokens
    # Stopped in between, it still ends where it would have ended.
    answer = resume(assistant, resume(assistant, ask(assistant, steps=3)))
    assert answer.tokens == whole.tokens


def test_it_keeps_the_settings_it_began_with(tmp_path: Path, history: History) -> None:
    engine = scripted_engine(tmp_path, sampling=WILD)
    assistant = Assistant(engine, history)
    whole = ask(assistant)
    stopped = ask(assistant, steps=2)
    history.set_sampling(stopped.chat, {"temperature": 4.0, "seed": 99})
    assert resume(assistant, stopped).tokens == whole.tokens


def test_half_a_character_is_made_whole(
    tmp_path: Path, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = scripted_engine(tmp_path, sampling=WILD)
    assistant, letter = Assistant(engine, history), engine.vocabulary.piece
    first, second = next(pair for pair in pairwise(ask(assistant).tokens) if pair[0] != pair[1])
    halves = {first: b"\xc3", second: b"\xa9"}
    monkeypatch.setattr(engine.vocabulary, "piece", lambda token: halves.get(token, letter(token)))
    whole = ask(assistant)
    assert "é" in whole.content
    engine.defaults = replace(engine.defaults, max_tokens=whole.tokens.index(first) + 1)
    answer = ask(assistant)
    assert answer.content.endswith("\ufffd")
    engine.defaults = replace(engine.defaults, max_tokens=60)
    events = list(assistant.resume(answer.id))
    resumed = next(event for event in events if isinstance(event, Resumed))
    assert "".join(piece.text for piece in resumed.pieces) == answer.content.removesuffix("\ufffd")
    assert history.thread(answer.chat)[-1].content == whole.content


def test_a_full_context_goes_on_without_the_oldest_turns(tmp_path: Path, history: History) -> None:
    engine = scripted_engine(tmp_path, sampling=WILD, context_length=120, max_tokens=200)
    assistant = Assistant(engine, history)
    answer = ask(assistant)
    assert answer.finish == "context"
    with pytest.raises(ContextOverflowError, match="cannot continue"):
        resume(assistant, answer)
    assert history.thread(answer.chat)[-1] == answer, "nothing is lost"
    chat = history.create_chat().id
    engine.defaults = replace(engine.defaults, max_tokens=20)
    list(assistant.answer(chat, None, "an old turn"))
    engine.defaults = replace(engine.defaults, max_tokens=200)
    list(assistant.answer(chat, history.chat(chat).active, "then?"))
    answer = history.thread(chat)[-1]
    assert answer.finish == "context"
    assert len(resume(assistant, answer).tokens) > len(answer.tokens)


def test_only_the_last_answer_that_was_cut_off_can_go_on(tmp_path: Path, history: History) -> None:
    assistant = Assistant(scripted_engine(tmp_path), history)
    chat = history.create_chat().id
    question = history.add_message(chat, None, "user", "hello")
    with pytest.raises(InputError, match="only an answer"):
        assistant.resume(question.id)
    for finish, model, reason in (
        ("stop", "scripted", "that was cut off"),
        ("length", "other", OTHER_MODEL),
        ("length", "scripted", NO_TOKENS),
    ):
        answer = history.add_message(
            chat, question.id, ASSISTANT, "Hi.", finish=finish, model=model,
            tokens=(3, 4) if reason != NO_TOKENS else (),
        )  # fmt: skip
        with pytest.raises(InputError, match=reason):
            list(assistant.resume(answer.id))
        assert history.message(answer.id) == answer
    stopped = ask(assistant, steps=2)
    history.add_message(stopped.chat, stopped.id, "user", "and then?")
    with pytest.raises(InputError, match="only the last answer"):
        list(assistant.resume(stopped.id))
    assert history.message(stopped.id) == stopped


def test_an_answer_that_was_stopped_before_its_first_word_begins(
    tmp_path: Path, history: History
) -> None:
    assistant = Assistant(scripted_engine(tmp_path, sampling=WILD), history)
    whole = ask(assistant)
    chat = history.create_chat().id
    for _ in assistant.answer(chat, None, QUESTION):
        assistant.stop()
    empty = history.thread(chat)[-1]
    assert not empty.content
    assert resume(assistant, empty).tokens == whole.tokens


def test_an_iterative_answer_goes_on_and_keeps_its_passages(
    tmp_path: Path, history: History
) -> None:
    locations = Locations(data=tmp_path, cache=tmp_path / "cache", config=tmp_path)
    with closing(ImportedTexts.open(locations)) as imports:
        for name, text in (
            ("walrus.md", "The walrus keeps seventeen brass telescopes in the attic."),
            ("letters.md", " ".join("abcdefghijklmnopqrstuvwxyz")),
        ):
            document = Document(name, (Part(NOTES, text),))
            imports._library.write([StoreDocument("/notes", name, 0, document)])
        list(update(imports._library, imports._passages))
        engine = scripted_engine(tmp_path, sampling=WILD)
        assistant = Assistant(engine, history, imports, docs="iterative")
        whole = ask(assistant)
        answer = resume(assistant, ask(assistant, steps=4))
    assert answer.tokens == whole.tokens
    assert answer.content == whole.content
    assert answer.statistics[CITATIONS_KEY] == whole.statistics[CITATIONS_KEY]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_the_embedded_model_goes_on_behind_its_own_words(
    tmp_path: Path, history: History, locations: Locations, temperature: float
) -> None:
    chosen = Options(seed=11, temperature=temperature, max_tokens=60, drafters=("prompt",))
    engine = load(chosen, locations)
    with closing(engine):
        assistant = Assistant(engine, history)
        question = "How do I extract a tar archive?"
        whole = ask(assistant, question)
        stopped = ask(assistant, question, steps=3)
        assert 0 < len(stopped.tokens) < len(whole.tokens)
        list(engine.target.prefill(engine.render([])))  # as if the program was started anew
        assert resume(assistant, stopped).tokens == whole.tokens


@pytest.mark.parametrize("drafted", [0, 6])
def test_an_answer_that_loops_is_stopped_and_may_go_on(
    tmp_path: Path, history: History, drafted: int
) -> None:
    sampling = Sampling(0.0)
    engine = scripted_engine(tmp_path, sampling=sampling, draft_tokens=drafted, max_tokens=900)
    assistant = Assistant(engine, history)
    answer = ask(assistant)
    assert answer.finish == "repetition"
    assert 200 <= len(answer.tokens) < 300
    begun = ask(assistant, steps=9)
    assert resume(assistant, begun).tokens == answer.tokens, "a pause is no new beginning"
    longer = resume(assistant, answer)
    assert len(longer.tokens) > len(answer.tokens) + 200

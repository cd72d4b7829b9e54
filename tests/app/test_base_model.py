"""Base models, which were not trained to chat: a generated one, and Gemma 3 270M if present."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from app.config import Options
from app.conversation.assistant import Assistant
from app.conversation.events import Remarked
from app.engine.engine import Engine
from app.engine.loading import load
from app.locations import locate
from app.models.description import describe
from app.models.discovery import candidate_of
from datastores.chats.history import History
from datastores.chats.records import WHOLE, StoredMessage
from engines.chat_template.template import BASE_MODEL
from engines.step import FINISH_LENGTH, FINISH_REPETITION
from tests.app.cli.test_ask import specchat
from tests.engines.tiny import TinyVocabulary, write_llama

QUESTIONS = (
    "What is the capital of France?",
    "How do I extract a tar archive?",
    "Write a Python function that adds two numbers.",
    "Who wrote Hamlet?",
    "What is 12 times 12?",
    "Explain photosynthesis in two sentences.",
    "Translate 'good morning' into Spanish.",
    "List three fruits.",
    "Why is the sky blue?",
    "Write a haiku about the sea.",
)
MARKERS = ("<|im_start|>", "<|im_end|>", "<start_of_turn>", "<end_of_turn>")
NEXT_QUESTION = "Question:"
WORDS = ("\nQuestion:", " the", " of", ".\n\n")
LONGEST = 300
pytestmark = pytest.mark.usefixtures("unhurried_close")


def opened(model: Path, folder: Path) -> Engine:
    (folder / "config.toml").write_text("context = 1024\n")
    locations = locate(folder)
    locations.create()
    options = Options(model=str(model), max_tokens=LONGEST, seed=5, drafters=("prompt",))
    return load(options, locations, light=True)


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model with ChatML's markers in its vocabulary, but without a template."""
    path = tmp_path_factory.mktemp("tiny") / "tiny-base.gguf"
    return write_llama(path, TinyVocabulary(MARKERS, WORDS))


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    with closing(History.open(tmp_path / "history.db")) as opened_history:
        yield opened_history


def answers(engine: Engine, history: History) -> list[StoredMessage]:
    """The answers to questions, each in a chat of its own."""
    assistant = Assistant(engine, history)
    given = []
    for question in QUESTIONS:
        chat = history.create_chat().id
        events = list(assistant.answer(chat, None, question))
        assert Remarked(BASE_MODEL) in events
        given.append(history.thread(chat)[-1])
    return given


def assert_plain(given: list[StoredMessage]) -> None:
    """Assert that each answer ends, without a marker or a next question."""
    for answer in given:
        assert not [mark for mark in (*MARKERS, NEXT_QUESTION) if mark in answer.content]
        assert answer.finish in (WHOLE, FINISH_REPETITION, FINISH_LENGTH)


def test_a_generated_base_model_is_asked_in_a_plain_form(
    tiny_model: Path, tmp_path: Path, history: History
) -> None:
    with closing(opened(tiny_model, tmp_path)) as engine:
        given = answers(engine, history)
        assert_plain(given)
        text = engine.vocabulary.encode(NEXT_QUESTION)
        assert text, "it could write one"
        stopped = [one for one in given if one.finish == WHOLE]
        assert stopped, "some answers end at the next question"


def test_only_the_first_answer_says_that_it_is_a_base_model(
    tiny_model: Path, tmp_path: Path, history: History
) -> None:
    with closing(opened(tiny_model, tmp_path)) as engine:
        assistant, chat = Assistant(engine, history), history.create_chat().id
        list(assistant.answer(chat, None, "one"))
        first = history.thread(chat)[-1]
        assert first.statistics["remark"] == BASE_MODEL
        events = list(assistant.answer(chat, first.id, "two"))
        assert not any(isinstance(event, Remarked) for event in events)


def test_lists_call_it_a_base_model_and_ask_says_so_once(tiny_model: Path, tmp_path: Path) -> None:
    assert "base model" in describe(candidate_of(tiny_model, ())).remark
    asked = ("--model", str(tiny_model), "ask", "why", "--max-tokens", "4")
    assert specchat(tmp_path / "data", *asked).stderr.decode().count("base model") == 1
    listed = specchat(tmp_path / "data", "--model", str(tiny_model), "models")
    assert f"{tiny_model}: probably a base model" in listed.stderr.decode()


def test_gemma_answers_ten_questions_in_a_plain_form(
    base_model: Path, tmp_path: Path, history: History
) -> None:
    assert "base model" in describe(candidate_of(base_model, ())).remark
    with closing(opened(base_model, tmp_path)) as engine:
        given = answers(engine, history)
    assert_plain(given)
    assert all(answer.content.strip() for answer in given)
    ended = [answer for answer in given if answer.finish != FINISH_LENGTH]
    assert len(ended) >= len(given) - 2, "nearly all end by themselves"

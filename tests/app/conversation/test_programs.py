"""Answers to programs: what is read again, what is kept, drafted from and forgotten."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from threading import Event as Flag

import pytest

from app.config import Options
from app.conversation.events import Finished, Wrote
from app.conversation.programs import ProgramAnswers, ProgramRequest
from app.engine.engine import Engine
from app.engine.loading import load
from app.locations import Locations
from app.runtime.deletion import delete_program_answers
from datastores.chats.history import History
from datastores.chats.records import ASSISTANT, PROGRAMS, SYSTEM, USER
from datastores.chats.search import search
from datastores.chats.usage import daily_usage
from datastores.corpus import Corpus
from datastores.library.library import Library
from engines.chat_template.prompt_builder import Message, Tool, ToolCall
from tests.app.serve.speaking import speaking_engine

BYTES = 2**20
QUESTION = "How do I extract a tar archive?"
OPTIONS = Options(
    drafters=("prompt", "recycle", "crest"), draft_tokens=4, max_tokens=48, temperature=0.0
)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """The embedded model."""
    folder = tmp_path_factory.mktemp("programs")
    with closing(load(replace(OPTIONS, model="built-in", data_dir=folder), light=True)) as engine:
        yield engine


@pytest.fixture
def answers(loaded: Engine, history: History) -> ProgramAnswers:
    assert loaded.target.tokens is not None
    return ProgramAnswers(loaded, history, BYTES)


def ask(answers: ProgramAnswers, *texts: str, **fields: object) -> tuple[str, Finished]:
    """The answer to a chat of questions and answers in turn, and its last event."""
    messages = [Message((USER, ASSISTANT)[at % 2], text) for at, text in enumerate(texts)]
    return run(answers, ProgramRequest(messages, **fields))  # type: ignore[arg-type]


def run(answers: ProgramAnswers, request: ProgramRequest) -> tuple[str, Finished]:
    text, end = "", None
    for event in answers.answer(request, Flag()):
        if isinstance(event, Wrote):
            text += "".join(piece.text for piece in event.pieces)
        elif isinstance(event, Finished):
            end = event
    assert end is not None
    return text, end


def read(end: Finished) -> int:
    """Tokens of the prompt that had to be read."""
    return end.statistics.prompt_tokens - end.statistics.cached_tokens


def stored(history: History) -> list[str]:
    """The texts of stored answers to programs, by chat."""
    chats = sorted(history.all_chats(), key=lambda chat: chat.id)
    return [
        message.content
        for chat in chats
        if chat.origin == PROGRAMS
        for message in history.tree(chat.id)
    ]


def test_answers_equal_plain_decoding(loaded: Engine, history: History) -> None:
    plain = ProgramAnswers(replace(loaded, drafters=[], observers=[]), history, 0)
    drafting = ProgramAnswers(loaded, history, BYTES)
    drafted = 0
    for question in (QUESTION, QUESTION, "How do I list open ports?"):
        text, end = ask(drafting, question)
        assert text == ask(plain, question)[0]
        drafted += end.statistics.accepted
    assert drafted


def test_the_next_request_reads_only_what_is_new(answers: ProgramAnswers) -> None:
    thread = [QUESTION]
    for number in range(3):
        text, end = ask(answers, *thread)
        new = answers.engine.render([Message(USER, thread[-1])])
        assert read(end) <= len(new) + 2 or not number
        thread += [text, f"And question {number}?"]


def test_two_conversations_in_turn_read_only_what_is_new(answers: ProgramAnswers) -> None:
    threads = [[f"{QUESTION} One."], [f"{QUESTION} Two: list the files first."]]
    for number in range(3):
        for thread in threads:
            text, end = ask(answers, *thread)
            new = answers.engine.render([Message(USER, thread[-1])])
            assert read(end) <= len(new) + 2
            thread += [text, f"And question {number}?"]


def test_answers_are_kept_apart_from_the_person_s_chats(
    answers: ProgramAnswers, history: History, library: Library
) -> None:
    own = history.create_chat("mine").id
    history.add_message(own, None, USER, "my question")
    text, _ = ask(answers, QUESTION)
    again, _ = ask(answers, QUESTION, text, "And more?")
    assert stored(history) == [text, again]
    assert [chat.id for chat in history.chats()] == [own]
    assert history.last_chat().id == own
    assert len(history.all_chats()) == 2, "a conversation has one chat"
    word = text.split()[0].strip("`.")
    assert all(hit.chat == own for hit in search(history, word))
    assert daily_usage(history) == []
    corpus = Corpus(library, history)
    texts = [part.text for key in corpus.difference(set()).added for part in corpus.read(key)]
    assert {text, again, "my question"} == set(texts), "they are drafted from"
    assert (history.program_answers().answers, answers.kept.excess < 0) == (2, True)


def test_what_is_not_to_be_kept_is_not(answers: ProgramAnswers, history: History) -> None:
    ask(answers, QUESTION, store=False)
    ask(answers, f"{QUESTION} My key is AKIAIOSFODNN7EXAMPLE1 and sk-{'a1B2' * 12}")
    assert stored(history) == []
    off = ProgramAnswers(answers.engine, history, 0)
    ask(off, QUESTION)
    assert stored(history) == []


def test_an_answer_nobody_waited_for_is_not_kept(answers: ProgramAnswers, history: History) -> None:
    stop = Flag()
    for event in answers.answer(ProgramRequest([Message(USER, QUESTION)]), stop):
        if isinstance(event, Wrote):
            stop.set()
    closed = answers.answer(ProgramRequest([Message(USER, QUESTION)]), Flag())
    next(closed)
    closed.close()
    assert stored(history) == []
    text, _ = ask(answers, QUESTION)
    assert stored(history) == [text]
    assert len(history.all_chats()) == 1, "no empty chat is left"


def test_the_oldest_are_deleted_first(
    answers: ProgramAnswers, history: History, locations: Locations
) -> None:
    texts = [ask(answers, f"{QUESTION} {number}")[0] for number in range(3)]
    size = history.program_answers().bytes
    delete_program_answers(history, locations, answers.engine, size - 1)
    assert 0 < len(stored(history)) < 3
    assert stored(history)[-1] == texts[-1]
    answers.kept.recount()
    delete_program_answers(history, locations, answers.engine)
    assert stored(history) == []
    assert not history.erase(), "it is erased already"
    answers.kept.recount()
    assert ask(answers, QUESTION)[0] == texts[0] or stored(history)


def test_a_text_is_continued_with_its_control_tokens(answers: ProgramAnswers) -> None:
    prompt = answers.engine.render([Message(USER, QUESTION)])
    written = f"<|im_start|>user\n{QUESTION}<|im_end|>\n<|im_start|>assistant\n"
    assert list(answers.engine.render_text(written)) == list(prompt)
    text, _ = run(answers, ProgramRequest(text=written))
    assert text == ask(answers, QUESTION)[0]


def test_nothing_of_a_conversation_is_left_out(answers: ProgramAnswers) -> None:
    shown: list[Sequence[Message]] = []
    render = answers.engine.render

    def note(messages: Sequence[Message], tools: object) -> list[int]:
        shown.append(messages)
        return render(messages)

    answers.engine.render = note
    thread = [Message(SYSTEM, "Be brief."), *[Message(USER, QUESTION)] * 5]
    try:
        run(answers, ProgramRequest(thread))
    finally:
        answers.engine.render = render
    assert [list(messages) for messages in shown] == [thread]


MARKED = '<tool_call>\n{"name": "look", "arguments": {"path": "a"}}\n</tool_call>'
FENCED = '```json\n{"name": "look", "arguments": {"path": "a"}}\n```'
CALL = ToolCall("call_1", "look", {"path": "a"})
LOOK: Tool = {"type": "function", "function": {"name": "look", "parameters": {}}}


@pytest.mark.parametrize(("said", "written"), [(f"So:\n{MARKED}", f"So:\n{MARKED}"), (FENCED, "")])
def test_a_call_that_is_sent_back_keeps_the_ids_of_its_form(
    tmp_path: Path, history: History, said: str, written: str
) -> None:
    engine = speaking_engine(tmp_path, lambda _: said.encode())
    shown: list[list[Message]] = []
    render = engine.render

    def note(messages: Sequence[Message], tools: Sequence[Tool] = ()) -> list[int]:
        shown.append(list(messages))
        return render(messages, tools)

    engine.render = note
    answers = ProgramAnswers(engine, history, BYTES)
    question = Message(USER, "?")
    run(answers, ProgramRequest([question], tools=[LOOK]))
    content = said.partition("\n")[0] if written else ""
    back = Message(ASSISTANT, content, calls=(CALL,))
    result = Message("tool", "found", call_id="call_1")
    run(answers, ProgramRequest([question, back, result], tools=[LOOK]))
    known = shown[-1][1]
    assert known.calls == (CALL,)
    assert (known.written, bool(known.tokens)) == (written, bool(written))

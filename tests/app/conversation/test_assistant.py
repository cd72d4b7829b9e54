"""The turn: what is yielded, what is stored, and that nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from app.conversation.assistant import Assistant
from app.conversation.events import Dropped, Event, Finished, Prefilling, Wrote
from app.conversation.statistics import ORIGINS_KEY, Piece, attributed_pieces
from datastores.chats.history import History
from datastores.errors import ContextOverflowError, InputError, ModelError
from engines.chat_template.prompt_builder import Message
from engines.sampler import Sampling
from tests.app.scripted import Recorder, scripted_engine


def text_of(events: list[Event]) -> str:
    wrote = [event for event in events if isinstance(event, Wrote)]
    return "".join(piece.text for event in wrote for piece in event.pieces)


def finished(events: list[Event]) -> Finished:
    last = events[-1]
    assert isinstance(last, Finished)
    return last


def test_an_answer_is_yielded_and_stored_alike(tmp_path: Path, history: History) -> None:
    assistant = Assistant(scripted_engine(tmp_path), history)
    chat = history.create_chat()
    events = list(assistant.answer(chat.id, None, "sing sea shanties"))
    question, answer = history.thread(chat.id)
    end = finished(events)
    assert question.content == "sing sea shanties"
    assert answer.content == text_of(events) != ""
    assert answer.finish == end.finish
    assert len(answer.tokens) == end.statistics.tokens
    assert answer.statistics["steps"] == end.statistics.steps
    assert answer.statistics["seed"] == end.seed
    assert isinstance(events[0], Prefilling)
    assert history.chat(chat.id).title == "sing sea shanties"


def test_drafting_changes_neither_text_nor_tokens(tmp_path: Path, history: History) -> None:
    answers = []
    for drafters in ((), ("prompt", "recycle")):
        engine = scripted_engine(tmp_path, drafters=drafters, draft_tokens=8)
        chat = history.create_chat()
        assistant = Assistant(engine, history)
        for question in ("one", "two", "three"):
            list(assistant.answer(chat.id, history.chat(chat.id).active, question))
        answers.append([message.tokens for message in history.thread(chat.id)])
    assert answers[0] == answers[1]


def test_an_answer_ends_where_the_model_s_format_says(tmp_path: Path, history: History) -> None:
    """As a base model's does, which would go on with the next question."""
    engine, chat = scripted_engine(tmp_path), history.create_chat()
    whole = text_of(list(Assistant(engine, history).answer(chat.id, None, "go on")))
    engine.stop = (whole[20:23],)
    events = list(Assistant(engine, history).answer(chat.id, None, "go on"))
    assert text_of(events) == whole[: whole.find(whole[20:23])]
    assert finished(events).finish == "stop"


def test_stop_keeps_the_partial_answer_and_marks_it(tmp_path: Path, history: History) -> None:
    assistant = Assistant(scripted_engine(tmp_path), history)
    chat = history.create_chat()
    events: list[Event] = []
    for event in assistant.answer(chat.id, None, "go on and on"):
        events.append(event)
        if sum(isinstance(seen, Wrote) for seen in events) == 3:
            assistant.stop()
    answer = history.thread(chat.id)[-1]
    assert finished(events).finish == answer.finish == "interrupted"
    assert answer.content == text_of(events)


def test_closing_the_stream_keeps_the_partial_answer(tmp_path: Path, history: History) -> None:
    assistant = Assistant(scripted_engine(tmp_path), history)
    chat = history.create_chat()
    stream = assistant.answer(chat.id, None, "go on")
    seen = [next(stream) for _ in range(6)]
    stream.close()
    answer = history.thread(chat.id)[-1]
    assert answer.finish == "interrupted"
    assert answer.content == text_of(seen)
    assert list(assistant.respond(chat.id, history.thread(chat.id)[0].id))


def test_a_second_answer_is_a_sibling_that_does_not_see_the_first(
    tmp_path: Path, history: History
) -> None:
    assistant = Assistant(scripted_engine(tmp_path), history)
    chat = history.create_chat()
    first = text_of(list(assistant.answer(chat.id, None, "again")))
    question = history.thread(chat.id)[0]
    second = text_of(list(assistant.respond(chat.id, question.id)))
    assert second == first, "the same seed gives the same answer"
    answer = history.thread(chat.id)[-1]
    assert [message.content for message in history.siblings(answer.id)] == [first, second]


def test_an_edit_in_the_middle_and_two_more_answers_lose_no_version(
    tmp_path: Path, history: History
) -> None:
    wild = Sampling(temperature=5.0, top_k=0, top_p=1.0, min_p=0.0)
    engine = scripted_engine(tmp_path, max_tokens=20, sampling=wild)
    engine.defaults = replace(engine.defaults, seeded=False)
    assistant = Assistant(engine, history)
    chat = history.create_chat().id
    for number in range(5):
        list(assistant.answer(chat, history.chat(chat).active, f"question {number}"))
    before = history.thread(chat)
    second = before[2]
    list(assistant.edit(second.id, "question 1, put better"))
    for _ in range(2):
        list(assistant.regenerate(history.thread(chat)[-1].id))
    edited = history.thread(chat)
    assert [message.content for message in edited[:3]] == [
        before[0].content,
        before[1].content,
        "question 1, put better",
    ]
    versions = history.versions(chat)
    assert versions[edited[2].id] == (second.id, edited[2].id), "‹ 2/2 ›"
    answers = versions[edited[3].id]
    assert answers.index(edited[3].id) == 2, "‹ 3/3 ›"
    assert len({history.message(answer).content for answer in answers}) == 3
    for answer in answers[::-1]:
        history.switch(answer)
        assert history.thread(chat)[-1].id == answer
    history.switch(second.id)
    assert history.thread(chat) == before, "walked back, all ten messages are as they were"


def test_only_one_s_own_messages_are_edited_and_only_answers_given_again(
    tmp_path: Path, history: History
) -> None:
    assistant = Assistant(scripted_engine(tmp_path), history)
    chat = history.create_chat().id
    list(assistant.answer(chat, None, "hello"))
    question, answer = history.thread(chat)
    with pytest.raises(InputError, match="only your own messages"):
        list(assistant.edit(answer.id, "x"))
    with pytest.raises(InputError, match="only an answer"):
        list(assistant.regenerate(question.id))
    assert history.tree(chat) == [question, answer]


def test_a_private_chat_is_observed_by_nobody_and_remembered_nowhere(
    tmp_path: Path, history: History
) -> None:
    engine = scripted_engine(tmp_path, drafters=("recycle",), draft_tokens=8)
    recorder = Recorder()
    engine.observers.append(recorder)
    assistant = Assistant(engine, history)
    private = history.create_chat(private=True).id
    first = finished(list(assistant.answer(private, None, "psst")))
    again = finished(list(assistant.regenerate(history.thread(private)[-1].id)))
    assert recorder.steps == []
    assert again.statistics.accepted > first.statistics.accepted, "within the chat it drafts"
    open_chat = history.create_chat().id
    other = finished(list(assistant.answer(open_chat, None, "psst")))
    assert other.statistics.accepted == first.statistics.accepted, "as if it were the first"
    assert sum(len(step.tokens) for step in recorder.steps) == other.statistics.tokens


def test_a_chat_s_own_settings_count_and_senseless_ones_are_named(
    tmp_path: Path, history: History
) -> None:
    assistant = Assistant(scripted_engine(tmp_path, max_tokens=8), history)
    chat = history.create_chat(sampling={"seed": 11, "temperature": 2}).id
    assert finished(list(assistant.answer(chat, None, "hello"))).seed == 11
    history.set_sampling(chat, {"seed": -1})
    seeds = {finished(list(assistant.answer(chat, None, "hello"))).seed for _ in range(3)}
    assert len(seeds) == 3
    history.set_sampling(chat, {"warmth": 2})
    with pytest.raises(InputError, match="unknown setting 'warmth'"):
        list(assistant.answer(chat, None, "hello"))


def test_a_full_context_drops_the_oldest_turns_visibly(tmp_path: Path, history: History) -> None:
    engine = scripted_engine(tmp_path, context_length=160, max_tokens=30)
    assistant = Assistant(engine, history)
    chat = history.create_chat()
    dropped = []
    for number in range(8):
        events = list(assistant.answer(chat.id, history.chat(chat.id).active, f"question {number}"))
        dropped += [event.messages for event in events if isinstance(event, Dropped)]
        assert finished(events).statistics.tokens > 0
    assert dropped
    assert all(count % 2 == 0 for count in dropped)
    assert len(history.thread(chat.id)) == 16


@pytest.mark.parametrize(
    ("trained", "way_out"),
    [
        (0, "shorten it$"),
        (100, r"choose a model with a longer context \(this one allows no more\)$"),
        (2048, r"raise `context` in the settings \(this model allows 2,048\)$"),
    ],
)
def test_a_message_that_does_not_fit_is_refused_with_what_helps_and_not_stored(
    tmp_path: Path, history: History, trained: int, way_out: str
) -> None:
    engine = scripted_engine(tmp_path, context_length=100)
    engine.trained_context = trained
    assistant = Assistant(engine, history)
    chat = history.create_chat(system="Be brief.")
    length = len(engine.render([Message("system", "Be brief."), Message("user", "x" * 300)]))
    too_long = f"{length - 99} tokens too long: it takes {length}, and 99 fit; .*{way_out}"
    with pytest.raises(ContextOverflowError, match=too_long):
        list(assistant.answer(chat.id, None, "x" * 300))
    assert history.tree(chat.id) == []
    assert not history.chat(chat.id).title
    list(assistant.answer(chat.id, None, "x"))
    before = history.tree(chat.id)
    with pytest.raises(ContextOverflowError, match=too_long):
        list(assistant.edit(before[0].id, "x" * 300))
    with pytest.raises(ContextOverflowError, match="too long"):
        list(assistant.answer_unsaved(None, "x" * 300))
    assert history.tree(chat.id) == before


def test_the_longest_message_that_fits_is_answered(tmp_path: Path, history: History) -> None:
    assistant = Assistant(scripted_engine(tmp_path, context_length=100), history)
    chat = history.create_chat().id
    with pytest.raises(ContextOverflowError, match="is 1 token too long: it takes 100, and 99 fit"):
        list(assistant.answer(chat, None, "x" * 98))
    assert finished(list(assistant.answer(chat, None, "x" * 97))).finish == "context"


def test_an_answer_that_another_model_has_no_room_for_stays_as_it_is(
    tmp_path: Path, history: History
) -> None:
    chat = history.create_chat().id
    list(Assistant(scripted_engine(tmp_path), history).answer(chat, None, "x" * 200))
    before = history.tree(chat)
    smaller = Assistant(scripted_engine(tmp_path, context_length=100), history)
    with pytest.raises(ContextOverflowError, match="too long"):
        list(smaller.regenerate(before[-1].id))
    assert history.tree(chat) == before


def test_what_failed_is_called_failed_and_leaves_no_empty_answer(
    tmp_path: Path, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = scripted_engine(tmp_path)
    assistant = Assistant(engine, history)
    chat = history.create_chat().id
    list(assistant.answer(chat, None, "one"))
    before = history.thread(chat)

    def broken(tokens: Sequence[int]) -> Iterator[int]:
        raise ModelError("the graphics card is gone")

    with monkeypatch.context() as patched:
        patched.setattr(engine.target, "prefill", broken)
        with pytest.raises(ModelError):
            list(assistant.regenerate(before[-1].id))
        assert history.thread(chat) == history.tree(chat) == before
        with pytest.raises(ModelError):
            list(assistant.answer(chat, before[-1].id, "two"))
    assert [message.content for message in history.thread(chat)[2:]] == ["two"]
    failing = assistant.respond(chat, history.thread(chat)[-1].id)
    while not isinstance(next(failing), Wrote):
        pass
    with pytest.raises(ModelError):
        failing.throw(ModelError("the graphics card is gone"))
    assert history.thread(chat)[-1].finish == "failed"


def test_an_empty_message_is_refused(tmp_path: Path, history: History) -> None:
    assistant = Assistant(scripted_engine(tmp_path), history)
    chat = history.create_chat()
    with pytest.raises(InputError, match="empty"):
        list(assistant.answer(chat.id, None, "  \n"))
    assert history.thread(chat.id) == []


def test_figures_add_up(tmp_path: Path, history: History) -> None:
    engine = scripted_engine(tmp_path, draft_tokens=6, sampling=Sampling(temperature=0.0))
    chat = history.create_chat()
    end = finished(list(Assistant(engine, history).answer(chat.id, None, "figures")))
    statistics = end.statistics
    assert end.finish == "length"
    assert statistics.accepted > 0
    assert sum(statistics.by_origin.values()) == statistics.accepted
    assert statistics.tokens == statistics.step_tokens + 1
    assert statistics.step_tokens == statistics.accepted + statistics.steps
    assert 0 < statistics.acceptance_rate <= 1


def test_a_chat_is_entitled_by_its_questions_and_by_the_person(
    tmp_path: Path, history: History
) -> None:
    assistant = Assistant(scripted_engine(tmp_path), history)
    first, second = history.create_chat().id, history.create_chat().id
    for _ in assistant.answer(first, None, "hi!"):
        assert history.chat(first).title == "hi"
    for _ in assistant.answer(second, None, "hi!"):
        history.rename(second, "mine")
    assert history.chat(first).title == "hi"
    assert history.chat(second).title == "mine"
    for question in ("What is a walrus tusk?", "How long does one grow?"):
        for chat in (first, second):
            list(assistant.answer(chat, history.chat(chat).active, question))
    assert history.chat(first).title == "What is a walrus tusk"
    assert history.chat(second).title == "mine"


def test_who_drafted_what_is_kept_with_the_answer(tmp_path: Path, history: History) -> None:
    assistant = Assistant(scripted_engine(tmp_path, draft_tokens=8), history)
    chat = history.create_chat().id
    shown: list[Piece] = []
    for question in ("one", "two"):
        shown.clear()
        for event in assistant.answer(chat, history.chat(chat).active, question):
            shown += event.pieces if isinstance(event, Wrote) else ()
    answer = history.thread(chat)[-1]
    kept = attributed_pieces(answer.content, answer.statistics[ORIGINS_KEY])  # type: ignore[arg-type]
    assert {piece.origin for piece in kept} > {0}
    assert [(letter, piece.origin) for piece in kept for letter in piece.text] == [
        (letter, piece.origin) for piece in shown for letter in piece.text
    ]


def test_an_answer_given_again_is_drawn_unless_greed_was_chosen(
    tmp_path: Path, history: History
) -> None:
    engine = scripted_engine(tmp_path, sampling=Sampling(temperature=0.0, seed=8))
    for unchosen in (False, True):
        engine.defaults = replace(engine.defaults, default_temperature=unchosen)
        assistant = Assistant(engine, history)
        chat = history.create_chat()
        list(assistant.answer(chat.id, None, "again"))
        first = history.thread(chat.id)[-1]
        list(assistant.regenerate(first.id))
        assert (history.thread(chat.id)[-1].tokens != first.tokens) == unchosen

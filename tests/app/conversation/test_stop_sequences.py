"""An answer ends exactly before a stop sequence, wherever its tokens and drafts begin and end."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.config import Options
from app.conversation.assistant import Assistant
from app.conversation.events import Event, Finished, Wrote
from app.conversation.statistics import Piece
from app.conversation.stop_sequences import HeldText, StopSequences, tokens_of
from app.engine.loading import load
from app.locations import Locations
from datastores.chats.history import History
from datastores.chats.records import StoredMessage
from datastores.errors import InputError
from engines.sampler import Sampling
from tests.app.conversation.test_continuation import QUESTION, WILD, ask, resume
from tests.app.scripted import scripted_engine

texts = st.lists(st.text("abé", max_size=3), max_size=12)
sequences = st.lists(st.text("abé", min_size=1, max_size=4), min_size=1, max_size=3)


def shown(pieces: Sequence[str], stop: Sequence[str]) -> tuple[str, bool]:
    """The text that is shown of `pieces`, and whether it ended before one of `stop`."""
    held, text = HeldText(stop), ""
    for index, piece in enumerate(pieces):
        last = index == len(pieces) - 1
        text += "".join(one.text for one in held.release(Piece(piece, 0), last=last))
    return text, held.ended


@given(texts, sequences)
def test_text_ends_before_the_first_sequence_to_be_complete(
    pieces: list[str], stop: list[str]
) -> None:
    text, ended = shown(pieces, stop)
    whole = "".join(pieces)
    if not any(one in whole for one in stop):
        assert (text, ended) == (whole, False)
    else:
        assert ended
        assert whole.startswith(text)
        assert not any(one in text for one in stop)
        assert any(whole.startswith(one, len(text)) for one in stop)


@given(texts, sequences)
def test_tokens_end_with_the_one_that_completes_a_sequence(
    pieces: list[str], stop: list[str]
) -> None:
    # Each byte a token, or several: characters are split between tokens.
    raw = [part.encode() for part in pieces] + [bytes([b]) for b in "éab".encode()]
    found, text = StopSequences(stop, raw.__getitem__), b""
    for at, part in enumerate(raw):
        before, text = text, text + part
        ends = any(one.encode() in text for one in stop)
        assert found.end_with(list(range(at + 1)), 0) == ends
        if ends:
            assert not any(one.encode() in before for one in stop)
            return


def test_tokens_are_kept_where_the_text_ends_between_them() -> None:
    pieces = [b"ab", b"", b"c", b"de"]
    assert tokens_of("abc", [0, 1, 2, 3], pieces.__getitem__) == (0, 1, 2)
    assert tokens_of("abcd", [0, 1, 2, 3], pieces.__getitem__) == ()


def ended(assistant: Assistant, stop: str, *, drafted: bool = True) -> StoredMessage:
    """An answer in a chat whose answers end before `stop`."""
    chat = assistant.history.create_chat(sampling={"stop": [stop]}).id
    events: list[Event] = list(assistant.answer(chat, None, "go on"))
    answer = assistant.history.thread(chat)[-1]
    wrote = [event for event in events if isinstance(event, Wrote)]
    assert "".join(piece.text for event in wrote for piece in event.pieces) == answer.content
    assert isinstance(events[-1], Finished)
    assert events[-1].finish == answer.finish == "stop"
    last = wrote[-1].step
    assert not drafted or last.finish == "stop"
    return answer


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("draft_tokens", [0, 8])
def test_drafts_behind_the_sequence_leave_no_trace(
    tmp_path: Path, history: History, temperature: float, draft_tokens: int
) -> None:
    sampling = Sampling(temperature, top_k=0, top_p=1.0, min_p=0.0, seed=2)
    engine = scripted_engine(tmp_path, sampling=sampling, draft_tokens=draft_tokens)
    assistant = Assistant(engine, history)
    whole = ask(assistant, "go on")
    for length in (1, 2, 3):
        at = 30
        stop = whole.content[at : at + length]
        first = whole.content.index(stop)
        answer = ended(assistant, stop)
        assert answer.content == whole.content[:first]
        assert answer.tokens == whole.tokens[:first], "one letter a token"
        # The cache goes on from the stored text: nothing behind it is in the next prompt.
        list(assistant.answer(answer.chat, answer.id, "and?"))


def test_a_sequence_begun_before_a_pause_ends_the_answer_behind_it(
    tmp_path: Path, history: History
) -> None:
    engine = scripted_engine(tmp_path, sampling=WILD)
    assistant = Assistant(engine, history)
    whole = ask(assistant)
    first = max(whole.content.index(whole.content[at : at + 3]) for at in range(30))
    stop = whole.content[first : first + 3]
    chat = history.create_chat(sampling={"stop": [stop], "max_tokens": first + 1}).id
    list(assistant.answer(chat, None, QUESTION))
    begun = history.thread(chat)[-1]
    assert begun.finish == "length"
    assert begun.content == whole.content[: first + 1], "what was held back is shown at the end"
    answer = resume(assistant, begun)
    assert (answer.content, answer.finish) == (whole.content[:first], "stop")
    assert answer.tokens == whole.tokens[:first]


def test_stopping_shows_what_was_held_back(tmp_path: Path, history: History) -> None:
    engine = scripted_engine(tmp_path, sampling=WILD, draft_tokens=0)
    assistant = Assistant(engine, history)
    whole = ask(assistant)
    chat = history.create_chat(sampling={"stop": [whole.content[4:7] + "!"]}).id
    held = 0
    for event in assistant.answer(chat, None, QUESTION):
        if isinstance(event, Wrote) and not event.pieces:
            held += 1
            assistant.stop()
    assert held == 1
    answer = history.thread(chat)[-1]
    assert answer.finish == "interrupted"
    assert len(answer.content) == len(answer.tokens)
    assert whole.content.startswith(answer.content)


@pytest.mark.parametrize(
    ("chosen", "reason"),
    [
        ({"stop": [""]}, "must have 1 to"),
        ({"stop": "END"}, "must be a list"),
        ({"stop": ["a"] + [str(n) for n in range(20)]}, "at most 16"),
        ({"max_tokens": 0}, "must be from 1"),
        ({"max_tokens": "9"}, "must be a whole number"),
    ],
)
def test_wrong_settings_are_said_and_nothing_is_answered(
    tmp_path: Path, history: History, chosen: dict[str, object], reason: str
) -> None:
    assistant = Assistant(scripted_engine(tmp_path), history)
    chat = history.create_chat(sampling=chosen).id
    with pytest.raises(InputError, match=reason):
        list(assistant.answer(chat, None, "go on"))


def test_a_length_from_the_command_line_goes_before_the_chat_s(
    tmp_path: Path, history: History
) -> None:
    engine = scripted_engine(tmp_path, sampling=WILD, max_tokens=20)
    chat = history.create_chat(sampling={"max_tokens": 7}).id
    for limited, length in ((False, 7), (True, 20)):
        engine.defaults = replace(engine.defaults, limited=limited)
        list(Assistant(engine, history).answer(chat, None, "go on"))
        assert len(history.thread(chat)[-1].tokens) == length


def test_the_embedded_model_ends_within_a_token(
    tmp_path: Path, history: History, locations: Locations
) -> None:
    with closing(load(Options(temperature=0.0, max_tokens=60), locations)) as engine:
        assistant = Assistant(engine, history, stop=["tra"])
        chat = history.create_chat().id
        list(assistant.answer(chat, None, "How do I extract a tar archive?"))
    answer = history.thread(chat)[-1]
    assert answer.finish == "stop"
    assert answer.content
    assert "tra" not in answer.content
    text = b"".join(map(engine.vocabulary.piece, answer.tokens)).decode()
    assert answer.tokens == () or text == answer.content

"""Messages between a command and the process that has the model open."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.config import Options
from app.conversation import events
from app.conversation.attachments import Attachment
from app.conversation.citations import SearchOutcome, Source
from app.conversation.statistics import Piece, Statistics
from app.indexing.passage_index import FoundPassage
from app.locations import locate
from app.runtime.wire import (
    PROTOCOL,
    Accepted,
    AskRequest,
    Done,
    Failed,
    MessageError,
    WireMessage,
    decode,
    encode,
)
from datastores.errors import InputError, SpecchatError
from datastores.passages.chunks import Chunk
from engines.ralm.events import RalmStatistics

FOUND = FoundPassage("/notes", "a.md", "A", b"\0\xff", 0, Chunk("head", 1, 7, "café\udcff"), 1.5)
REQUEST = AskRequest(
    Options(model="m.gguf", data_dir=Path("/data"), drafters=("prompt",), temperature=0.5),
    locate(Path("/data")),
    "What?\nÆ \udcff",
    attachments=(Attachment("a b.txt", 3, "text"),),
    stop=("END",),
)
MESSAGES: list[WireMessage] = [
    REQUEST,
    Accepted(True),
    Done(),
    Failed("InputError", "no question"),
    events.Opened("a model", ("it is small",)),
    events.Declined("another model is open"),
    events.Warned("costs.json cannot be written"),
    events.Resumed((Piece("so far", 1),)),
    events.Retrieved((FOUND, FOUND)),
    events.Retrieved((FOUND,), SearchOutcome(1, True, 2, 3)),
    events.Cited((FOUND,), SearchOutcome(1)),
    events.Speculated(RalmStatistics(strides=3, waited_s=0.5)),
    events.Interpolated(4),
    events.Interpolated(4, RalmStatistics(passes=2)),
    events.Interpolated(4, None, (Source("", "", 0, 1, 1, "", share=0.5, owner="chat:a:1"),)),
    events.Checking(1, 3),
    events.Dropped(3),
    events.Prefilling(1, 2),
    events.WroteText((Piece("a", 0), Piece("b", 4))),
    events.Remarked("check it"),
    events.Finished("stop", Statistics(tokens=3, seconds=0.5, by_origin={"chats": 2}), 7),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda one: type(one).__name__)
def test_every_message_is_read_as_it_was_sent(message: WireMessage) -> None:
    line = encode(message)
    assert line.count(b"\n") == 1
    assert decode(line) == message


def test_an_error_is_raised_as_in_the_other_process() -> None:
    assert isinstance(Failed("InputError", "x").error(), InputError)
    assert type(Failed("KeyboardInterrupt", "x").error()) is SpecchatError


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=6,
)


@given(st.sampled_from(MESSAGES), JSON)
def test_a_value_of_another_type_is_refused_or_kept(message: WireMessage, value: object) -> None:
    protocol, name, values = json.loads(encode(message).decode("utf-8", "surrogatepass"))
    for field in values:
        changed = json.dumps([protocol, name, {**values, field: value}]).encode() + b"\n"
        try:
            read = decode(changed)
        except MessageError:
            continue
        assert type(read) is type(message)


@given(st.binary() | JSON.map(lambda value: json.dumps([PROTOCOL, "Failed", value]).encode()))
def test_any_other_line_is_refused(line: bytes) -> None:
    with pytest.raises(MessageError):
        decode(line + b"\n")

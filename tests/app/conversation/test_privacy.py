"""Chats that stay apart: what they say reaches no live store."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from app.conversation.privacy import ChatIsolation
from datastores.chats.history import History
from tests.app.scripted import Recorder, scripted_engine

SECRET = "use the key AKIAIOSFODNN7EXAMPLE, please"


@pytest.mark.parametrize(("private", "text"), [(True, "hello"), (False, SECRET)])
def test_a_chat_apart_has_drafters_of_its_own_and_no_observers(
    tmp_path: Path, private: bool, text: str
) -> None:
    engine = scripted_engine(tmp_path)
    engine.observers.append(Recorder())
    history = History.open(tmp_path / "history.db")
    chat = replace(history.create_chat(), private=private)
    seclusion = ChatIsolation(engine, history.name)
    apart = seclusion.engine(chat, [text])
    assert apart.observers == []
    assert not {id(drafter) for drafter in apart.drafters} & {id(one) for one in engine.drafters}
    assert seclusion.engine(chat, [text]) is apart, "it remembers within its chat"
    history.close()


def test_other_chats_share_the_engine(tmp_path: Path) -> None:
    engine = scripted_engine(tmp_path)
    engine.observers.append(Recorder())
    history = History.open(tmp_path / "history.db")
    assert ChatIsolation(engine, history.name).engine(history.create_chat(), ["hello"]) is engine
    history.close()

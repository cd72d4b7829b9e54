"""`specchat ask` says which passage it checks, and where the words of `--docs knn` came from."""

from __future__ import annotations

import json
import sys
from itertools import chain
from threading import Event as Flag

import pytest

from app.cli.answer_printer import AS_JSON, NOT_ENCODED, SHOWN, WORDED, AnswerPrinter
from app.cli.output import CLEAR
from app.conversation.citations import SOURCES_KEY, Source
from app.conversation.events import Event, Opened
from app.conversation.statistics import STATES_KEY
from tests.app.interface.scripted import Script, events_of, passes_of

SOURCES = (
    Source("/notes", "bike.md", 0, 12, 20, "ab", "notes", share=0.31),
    Source("", "", 0, 1, 1, "", chat="Seals\x1b[31m", share=0.004, owner="chat:a:7", message=9),
)


def print_answer(states: int | None, *, as_json: bool = False) -> None:
    printer = AnswerPrinter(AS_JSON if as_json else SHOWN, formatted=False, expected=False)
    script = Script(passes_of("It is 40.", [0], 1), states=states, sources=SOURCES[: states or 0])
    opened: list[Event] = [Opened("scripted")]
    printer.print_all(chain(opened, events_of(script, Flag())), lambda: None)


def test_sources_are_printed_below_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    print_answer(900)
    printed = capsys.readouterr()
    assert printed.out == "It is 40.\n"
    assert printed.err.splitlines() == [
        WORDED,
        "[1] notes/bike.md:12-20 (31%)",
        "[2] Chats: Seals␛[31m (<1%)",
    ]
    print_answer(0)
    assert capsys.readouterr().err.splitlines() == [NOT_ENCODED]


def test_json_has_them_only_with_knn(capsys: pytest.CaptureFixture[str]) -> None:
    print_answer(900, as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert told[STATES_KEY] == 900
    assert [one["share"] for one in told[SOURCES_KEY]] == [0.31, 0.004]
    assert told[SOURCES_KEY][0]["file"] == "bike.md"
    assert told["citations"] == []
    print_answer(None, as_json=True)
    assert not {STATES_KEY, SOURCES_KEY} & json.loads(capsys.readouterr().out).keys()


def test_a_terminal_shows_which_passage_is_checked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    printer = AnswerPrinter(SHOWN, formatted=False, expected=False)
    script = Script(passes_of("It is 40.", [0], 1), checking=[(1, 2)], dropped=4)
    opened: list[Event] = [Opened("scripted")]
    printer.print_all(chain(opened, events_of(script, Flag())), lambda: None)
    printed = capsys.readouterr()
    checked, dropped = "checking passage 1 of 2…", "the oldest 4 messages no longer fit"
    assert f"{checked}{CLEAR}{dropped}\n" in printed.err
    assert printed.out == "It is 40.\n"

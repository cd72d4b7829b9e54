"""`specchat ask` prints the answer without the reasoning, which `--json` reports separately."""

from __future__ import annotations

import json
from itertools import chain
from threading import Event as Flag

import pytest

from app.cli.answer_printer import AS_JSON, ONLY_REASONING, SHOWN, AnswerPrinter
from app.conversation.events import Event, Opened
from tests.app.interface.scripted import Script, events_of, passes_of

CHANNELS = (
    "<|channel|>analysis<|message|>We need to add.<|end|>"
    "<|start|>assistant<|channel|>final<|message|>It is **40**."
)


def print_answer(text: str, *, as_json: bool = False) -> None:
    """Print an answer that arrives word by word."""
    printer = AnswerPrinter(AS_JSON if as_json else SHOWN, formatted=False, expected=False)
    events = events_of(Script(passes_of(text, [0], 1)), Flag())
    opened: list[Event] = [Opened("scripted")]
    assert printer.print_all(chain(opened, events), lambda: None) == 0


@pytest.mark.parametrize(
    ("text", "answer", "reasoning"),
    [
        (CHANNELS, "It is **40**.", "We need to add."),
        ("<think>\nWe need to add.\n</think>\n\nIt is 40.", "It is 40.", "We need to add."),
        (" It is 40.", "It is 40.", None),
    ],
)
def test_the_answer_alone_is_printed(
    capsys: pytest.CaptureFixture[str], text: str, answer: str, reasoning: str | None
) -> None:
    print_answer(text)
    assert capsys.readouterr().out == f"{answer}\n"
    print_answer(text, as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert (told["text"], told.get("reasoning")) == (answer, reasoning)


def test_an_answer_that_is_only_reasoning_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    print_answer("[THINK]We need to")
    printed = capsys.readouterr()
    assert printed.out == "\n"
    assert ONLY_REASONING in printed.err

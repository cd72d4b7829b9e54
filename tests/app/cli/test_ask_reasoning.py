"""`specchat ask` prints the answer without the reasoning, which `--json` reports separately."""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import Future
from pathlib import Path
from threading import Event as Flag
from typing import cast

import pytest

from app.cli.ask import ONLY_REASONING, PrintedAnswer, _print_end, converse, report
from app.conversation.events import Event
from app.runtime.model_thread import ModelThread
from tests.app.interface.scripted import Script, events_of, passes_of
from tests.app.scripted import scripted_engine

CHANNELS = (
    "<|channel|>analysis<|message|>We need to add.<|end|>"
    "<|start|>assistant<|channel|>final<|message|>It is **40**."
)


class AtOnce:
    """A model thread that runs everything on the calling thread."""

    def ask(
        self, begin: Callable[[object], Generator[Event]], take: Callable[[Event], None]
    ) -> Future[None]:
        for event in begin(None):
            take(event)
        done = Future[None]()
        done.set_result(None)
        return done


def printed(text: str) -> tuple[str, PrintedAnswer]:
    """The output for an answer that arrives word by word."""
    script, out = Script(passes_of(text, [0], 1)), list[str]()
    thread = cast(ModelThread, AtOnce())
    answer = converse(thread, lambda: events_of(script, Flag()), out.append)
    return "".join(out), answer


@pytest.mark.parametrize(
    ("text", "answer", "reasoning"),
    [
        (CHANNELS, "It is **40**.", "We need to add."),
        ("<think>\nWe need to add.\n</think>\n\nIt is 40.", "It is 40.", "We need to add."),
        (" It is 40.", "It is 40.", None),
    ],
)
def test_the_answer_alone_is_printed(
    tmp_path: Path, text: str, answer: str, reasoning: str | None
) -> None:
    out, found = printed(text)
    assert out == answer
    told = report(scripted_engine(tmp_path), found)
    assert (told["text"], told.get("reasoning")) == (answer, reasoning)


def test_an_answer_that_is_only_reasoning_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, found = printed("[THINK]We need to")
    assert out == ""
    _print_end(scripted_engine(tmp_path), found, as_json=False, expected=False)
    assert ONLY_REASONING in capsys.readouterr().err

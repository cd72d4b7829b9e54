"""A scripted assistant: real events and real steps, with no model behind them.

It answers from a script of pieces, each with its source, so that every figure on the screen is known in
advance; and it stores what it says, as the real one does.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from threading import Event as Flag

import numpy as np

from app.events import Event, Finished, Piece, Prefilling, Wrote
from app.statistics import Statistics
from datastores.errors import SpecchatError
from datastores.history import History
from datastores.records import ASSISTANT, USER
from engines.outlook import Outlook
from engines.sources import credited
from engines.step import Step, Timings
from engines.tree import DraftTree, chain, root_only

OUTLOOK = Outlook(0.05, True, False, 0.0, {"chats": 0.44, "prompt": 0.2, "recycle": 0.1})
"""20 tokens per second without drafts."""

Said = tuple[str, int]
"""Text of a token, and the source bits of its draft (0: nobody's)."""


@dataclass
class Script:
    """An answer: its tokens by forward pass, and how each pass goes.

    Attributes:
        cycle: seconds that each pass reports; wait: seconds that it really takes.
        rejected: draft tokens verified and not accepted in each pass.
        fails: raised after the last pass instead of finishing.
    """

    passes: Sequence[Sequence[Said]]
    cycle: float = 0.06
    wait: float = 0.0
    rejected: int = 1
    outlook: Outlook = OUTLOOK
    prefill: Sequence[tuple[int, int]] = ((12, 12),)
    finish: str = "stop"
    fails: SpecchatError | None = None


@dataclass
class ScriptedAssistant:
    """Answers `scripts` in turn, the last one for ever."""

    history: History
    scripts: list[Script]
    hold: Flag = field(default_factory=Flag)
    asked: list[str] = field(default_factory=list)
    _stop: Flag = field(default_factory=Flag)

    def stop(self) -> None:
        self._stop.set()

    def answer(self, chat: int, parent: int | None, text: str) -> Iterator[Event]:
        self._stop.clear()
        self.asked.append(text)
        script = self.scripts.pop(0) if len(self.scripts) > 1 else self.scripts[0]
        question = self.history.add_message(chat, parent, USER, text)
        if not self.history.chat(chat).title:
            self.history.rename(chat, text[:60])
        answer = self.history.add_message(chat, question.id, ASSISTANT, "", finish="")
        said: list[str] = []
        finish = "interrupted"
        try:
            for event in self._events(script):
                if isinstance(event, Wrote):
                    said += [piece.text for piece in event.pieces]
                if isinstance(event, Finished):
                    finish = event.finish
                yield event
        finally:
            self.history.extend_message(answer.id, "".join(said), [], {}, finish)

    def _events(self, script: Script) -> Iterator[Event]:
        statistics = Statistics(prompt_tokens=script.prefill[-1][1])
        for done, total in script.prefill:
            yield Prefilling(done, total)
            time.sleep(script.wait)
        for number, said in enumerate(script.passes):
            if self._stop.is_set():
                yield Finished("interrupted", statistics, 0)
                return
            event = wrote(number, said, script)
            statistics.observe(event.step)
            yield event
            time.sleep(script.wait)
        if script.fails is not None:
            raise script.fails
        while self.hold.is_set() and not self._stop.is_set():
            time.sleep(0.005)
        finish = "interrupted" if self._stop.is_set() else script.finish
        statistics.seconds = statistics.decode_seconds
        yield Finished(finish, statistics, 0)


def wrote(position: int, said: Sequence[Said], script: Script) -> Wrote:
    """One forward pass that says `said`; all but its last token were drafted."""
    sources = [bits for _, bits in said]
    tree = _tree(sources[:-1], script.rejected)
    accepted = 1 + sum(1 for bits in sources[:-1] if bits)
    step = Step(
        position=position,
        tokens=tuple(range(len(said))),
        sources=tuple(sources),
        gaps=(1.0,) * len(said),
        tree=tree,
        path=tuple(range(accepted)),
        proposals=(),
        hidden=np.zeros((len(said), 2), dtype=np.float32),
        top_tokens=[[0]] * len(said),
        top_logits=np.zeros((len(said), 1), dtype=np.float32),
        timings=Timings(target=script.cycle * 0.9, draft=script.cycle * 0.02, total=script.cycle),
        prefill=position == 0,
        finish="",
    )
    pieces = tuple(Piece(text, credited(bits)) for text, bits in said)
    return Wrote(pieces, step, script.outlook)


def _tree(drafted: Sequence[int], rejected: int) -> DraftTree:
    tree = root_only(0)
    for row, bits in enumerate(drafted):
        tree.add(row, row, bits, 0.5)
    for index in range(rejected if drafted else 0):
        tree.add(0, 100 + index, drafted[0], 0.5)
    return tree


def passes_of(text: str, pattern: Sequence[int], per_pass: int) -> list[list[Said]]:
    """`text` word by word, `per_pass` words in each pass, drafted by `pattern` in turn."""
    words = text.split(" ")
    tokens = [word if index == 0 else f" {word}" for index, word in enumerate(words)]
    passes: list[list[Said]] = []
    for start in range(0, len(tokens), per_pass):
        group = tokens[start : start + per_pass]
        bits = [pattern[(start + offset) % len(pattern)] for offset in range(len(group))]
        bits[-1] = 0
        passes.append(list(zip(group, bits, strict=True)))
    return passes


__all__ = ["ScriptedAssistant", "Script", "chain", "passes_of", "wrote"]

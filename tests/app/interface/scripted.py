"""A scripted assistant: real events and real steps without a model.

It answers from a script of passes with the origin of each word, so that every figure on the screen
is known in advance, and stores its answers as the real one does.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from threading import Event as Flag

import numpy as np

from app.conversation.attachments import Attachment, compose
from app.conversation.citations import (
    CITATIONS_KEY,
    NOTHING_FOUND,
    SEARCH_KEY,
    SOURCES_KEY,
    SearchOutcome,
    Source,
    citation_records,
    source_records,
)
from app.conversation.events import (
    Checking,
    Cited,
    Dropped,
    Event,
    Finished,
    Interpolated,
    Prefilling,
    Remarked,
    Resumed,
    Retrieved,
    Wrote,
)
from app.conversation.statistics import (
    ORIGINS_KEY,
    REMARK_KEY,
    STATES_KEY,
    Piece,
    Provenance,
    Statistics,
)
from app.indexing.passage_index import FoundPassage
from datastores.chats.answer_writer import reopen_answer
from datastores.chats.history import History
from datastores.chats.records import ASSISTANT, USER, StoredMessage
from datastores.errors import SpecchatError
from engines.budget.protocol import BudgetStatus
from engines.draft_tree import DraftTree, credited, root_only
from engines.step import Step, Timings

BUDGET_STATUS = BudgetStatus(0.05, True)
"""Plain decoding at 20 tokens per second."""

Said = tuple[str, int]
"""The text of a token, and the origins that drafted it (0 for none)."""


@dataclass
class Script:
    """An answer, pass by pass.

    Attributes:
        passes: tokens of each pass; the first one is sampled after the prefill.
        step_s: reported seconds of each pass.
        rejected: rejected draft tokens in each pass.
        fails: raised at the end instead of finishing.
        holds: whether the answer continues after the last pass until it is stopped.
        gate: called after the last pass.
        passages: retrieved passages, all of which it uses; None if nothing was searched.
        outcome: what else searching brought.
        checking: numbers of the passages that are checked, with that of all.
        states: datastore entries that KNN-LM used; None without KNN-LM.
        sources: of the words that it took from them.
        remark: a remark on the answer, or empty.
        possible: by origin, the share of tokens that drafts could have supplied.
    """

    passes: Sequence[Sequence[Said]]
    step_s: float = 0.06
    rejected: int = 1
    budget_status: BudgetStatus = BUDGET_STATUS
    checking: Sequence[tuple[int, int]] = ()
    prefill: Sequence[tuple[int, int]] = ((12, 12),)
    dropped: int = 0
    passages: tuple[FoundPassage, ...] | None = None
    outcome: SearchOutcome = NOTHING_FOUND
    states: int | None = None
    sources: tuple[Source, ...] = ()
    remark: str = ""
    possible: Mapping[str, float] = field(
        default_factory=lambda: {"chats": 0.44, "prompt": 0.2, "recycle": 0.1}
    )
    finish: str = "stop"
    fails: SpecchatError | None = None
    holds: bool = False
    gate: Callable[[], object] = lambda: None


@dataclass
class ScriptedAssistant:
    """Answers with `scripts` in turn, and then repeats the last one."""

    history: History
    scripts: list[Script]
    asked: list[str] = field(default_factory=list)
    attached: list[Sequence[Attachment]] = field(default_factory=list)
    _stop: Flag = field(default_factory=Flag)

    def stop(self) -> None:
        self._stop.set()

    def answer(
        self, chat: int, parent: int | None, text: str, attachments: Sequence[Attachment] = ()
    ) -> Generator[Event]:
        self.asked.append(text)
        self.attached.append(attachments)
        content, attached = compose(text, attachments)
        question = self.history.add_message(chat, parent, USER, content, attachments=attached)
        if not self.history.chat(chat).title:
            self.history.rename(chat, text[:60])
        yield from self._respond(chat, question.id)

    def edit(
        self, message: int, text: str, attachments: Sequence[Attachment] = ()
    ) -> Generator[Event]:
        edited = self.history.message(message)
        yield from self.answer(edited.chat, edited.parent, text, attachments)

    def regenerate(self, answer: int) -> Generator[Event]:
        given = self.history.message(answer)
        assert given.parent is not None
        yield from self._respond(given.chat, given.parent)

    def resume(self, answer: int) -> Generator[Event]:
        given = self.history.message(answer)
        assert given.parent is not None
        yield Resumed((Piece(given.content, 0),))
        begun = reopen_answer(self.history, answer)
        yield from self._respond(given.chat, given.parent, begun)

    def _respond(
        self, chat: int, question: int, begun: StoredMessage | None = None
    ) -> Generator[Event]:
        self._stop.clear()
        script = self.scripts.pop(0) if len(self.scripts) > 1 else self.scripts[0]
        if script.fails is not None and not script.passes:
            raise script.fails
        answer = begun or self.history.add_message(chat, question, ASSISTANT, "", finish="")
        said, finish, provenance = answer.content, "interrupted", Provenance()
        provenance.append([Piece(said, 0)] if said else [])
        try:
            for event in events_of(script, self._stop):
                if isinstance(event, Wrote):
                    said += "".join(piece.text for piece in event.pieces)
                    provenance.append(event.pieces)
                if isinstance(event, Finished):
                    finish = event.finish
                yield event
        finally:
            figures: dict[str, object] = {ORIGINS_KEY: provenance.runs()}
            if script.passages is not None:
                figures[CITATIONS_KEY] = citation_records(script.passages)
                figures[SEARCH_KEY] = asdict(script.outcome)
            if script.remark:
                figures[REMARK_KEY] = script.remark
            if script.states is not None:
                figures[STATES_KEY] = script.states
                figures[SOURCES_KEY] = source_records(script.sources)
            self.history.extend_message(answer.id, said, [], figures, finish)


def events_of(script: Script, stop: Flag) -> Generator[Event]:
    """The events of one answer, as `app.conversation.generation.generate` yields them."""
    statistics = Statistics(prompt_tokens=script.prefill[-1][1])
    for number, total in script.checking:
        yield Checking(number, total)
    if script.passages is not None:
        yield Retrieved(script.passages, script.outcome)
    if script.states is not None:
        yield Interpolated(script.states)
    if script.dropped:
        yield Dropped(script.dropped)
    for done, total in script.prefill:
        yield Prefilling(done, total)
    for number, said in enumerate(script.passes):
        if stop.is_set():
            break
        event = wrote(number, said, script)
        statistics.observe(event.step)
        yield event
    script.gate()
    if script.fails is not None:
        raise script.fails
    if script.holds:
        stop.wait()
    statistics.seconds = statistics.decode_seconds
    statistics.possible_by_origin = {
        name: round(share * statistics.tokens) for name, share in script.possible.items()
    }
    if script.passages is not None:
        yield Cited(script.passages, script.outcome)
    if script.states is not None:
        yield Interpolated(script.states, sources=script.sources)
    if script.remark:
        yield Remarked(script.remark)
    yield Finished("interrupted" if stop.is_set() else script.finish, statistics, 0)


def wrote(position: int, said: Sequence[Said], script: Script) -> Wrote:
    """One pass that writes `said`; its last token is the target's own."""
    origins = [bits for _, bits in said]
    tree = _tree(origins[:-1], script.rejected)
    step = Step(
        position=position,
        tokens=tuple(range(len(said))),
        origins=tuple(origins),
        tree=tree,
        path=tuple(range(len(said))),
        proposals=(),
        hidden=np.zeros((len(said), 2), dtype=np.float32),
        top_tokens=[[0]] * len(said),
        top_logits=np.zeros((len(said), 1), dtype=np.float32),
        timings=Timings(
            target=script.step_s * 0.9, draft=script.step_s * 0.01, total=script.step_s
        ),
        prefill=position == 0,
        finish="",
    )
    pieces = tuple(Piece(text, credited(bits)) for text, bits in said)
    return Wrote(pieces, step, script.budget_status)


def passes_of(text: str, pattern: Sequence[int], per_pass: int) -> list[list[Said]]:
    """`text` in passes of `per_pass` words, drafted by the origins in `pattern`."""
    words = [word if not index else f" {word}" for index, word in enumerate(text.split(" "))]
    passes: list[list[Said]] = [[(words[0], 0)]]
    for start in range(1, len(words), per_pass):
        group = words[start : start + per_pass]
        bits = [pattern[(start + offset) % len(pattern)] for offset in range(len(group) - 1)]
        passes.append(list(zip(group, [*bits, 0], strict=True)))
    return passes


def _tree(drafted: Sequence[int], rejected: int) -> DraftTree:
    tree = root_only(0)
    known = [bits for bits in drafted if bits]
    for row, bits in enumerate(known):
        tree.add(row, row, bits, 0.5)
    for index in range(rejected if known else 0):
        tree.add(0, 100 + index, known[0], 0.5)
    return tree

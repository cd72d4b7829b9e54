"""`specchat bench decode`: the same chats under several sets of drafters, interleaved and paired.

Each row answers every chat, one row right after the other, so that drift in the machine's speed
affects all alike. All answer the same prompts: later turns continue from plain decoding's answers.
Speed-ups are medians over chats of paired ratios, and ratios of total time. `verify_ms` measures
V(n), the time of one verification by its number of rows, which bounds the speed-up. Comparing the
automatic draft length with fixed ones shows the cost of its choices.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean, median
from threading import Event as Flag
from time import perf_counter

import numpy as np

from app.bench.forced import ForcedTarget
from app.bench.workloads import Workload
from app.chat_settings import AnswerEnd
from app.conversation.events import Wrote
from app.conversation.generation import GenerationRequest, generate
from app.conversation.statistics import Statistics
from app.engine.engine import Engine
from engines.chat_template.prompt_builder import Message
from engines.draft_tree import chain
from engines.sampler import Sampling, draw_gap
from engines.step import Step
from engines.target import Target

WIDTHS = (1, 2, 4, 6, 8, 16, 32, 64)
CONTEXT = 256
"""Tokens in the KV cache while verification is measured, as in a short chat."""
ROUNDS = 9


def verify_ms(target: Target, widths: Sequence[int] = WIDTHS) -> dict[str, float]:
    """Median milliseconds of verify and commit for each width, interleaved.

    Leaves the target with an empty cache. Widths the target does not take are left out.
    """
    for _ in target.prefill(range(min(CONTEXT, target.context_length // 2))):
        pass
    length = len(target.tokens)
    times: dict[int, list[float]] = {rows: [] for rows in widths if rows <= target.max_rows}
    for _ in range(ROUNDS):
        for rows, kept in times.items():
            tree = chain(1, list(range(2, rows + 1)), origin=1)
            started = perf_counter()
            target.verify(tree)
            target.commit([0])
            kept.append(1e3 * (perf_counter() - started))
            target.rewind(length)
    target.rewind(0)
    return {str(rows): round(median(kept), 3) for rows, kept in times.items()}


PLAIN = "none"
REREAD = "plain, prompt read in other chunks"
"""The row of `app.bench.yardstick`."""


@dataclass(frozen=True, slots=True)
class TimedAnswer:
    """One generated answer.

    Attributes:
        chain: draft tokens on the longest path of each draft, summed.
        rows: rows verified in each step.
        overhead: seconds outside the target, by part; see `overhead_parts`.
    """

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    chain: int
    rows: tuple[int, ...]
    statistics: Statistics
    text: str
    overhead: Mapping[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class DecodeRow:
    """One set of drafters: its answers by chat, in the order of the workload.

    Attributes:
        history, shape, fixed: what they draft from, and the shape or length of their drafts, for
            display; empty or None if the stores are empty, or the budget decides.
    """

    drafters: str
    engine: Engine
    history: str = ""
    shape: str = ""
    fixed: int | None = None
    chats: list[list[TimedAnswer]] = field(default_factory=list)

    def answers(self) -> list[TimedAnswer]:
        """All answers in one list."""
        return [answer for chat in self.chats for answer in chat]


def run(
    rows: Sequence[DecodeRow],
    workload: Sequence[Workload],
    sampling: Sampling,
    yardstick: DecodeRow | None = None,
) -> Iterator[int]:
    """Answer each chat with every row; yields the number of chats finished.

    The first row must be plain decoding. The order of the others rotates from chat to chat. The
    `yardstick` comes last, and leaves an empty KV cache.
    """
    for index, chat in enumerate(workload):
        plain = answer_chat(rows[0].engine, chat, (), sampling)
        turn = index % max(len(rows) - 1, 1) + 1
        done = {0: plain}
        for number in [*range(turn, len(rows)), *range(1, turn)]:
            done[number] = answer_chat(rows[number].engine, chat, plain, sampling)
        if yardstick is not None:
            again = answer_chat(yardstick.engine, chat, plain, sampling)
            yardstick.engine.target.rewind(0)
            yardstick.chats.append(again)
        for number, row in enumerate(rows):
            row.chats.append(done[number])
        yield index + 1


def answer_chat(
    engine: Engine, chat: Workload, plain: Sequence[TimedAnswer], sampling: Sampling
) -> list[TimedAnswer]:
    """Answer every question of a chat; earlier answers in the prompt are `plain`'s if given."""
    answers: list[TimedAnswer] = []
    messages: list[Message] = []
    for turn, question in enumerate(chat.questions):
        messages.append(Message("user", question))
        if chat.answers and isinstance(engine.target, ForcedTarget):
            ids = engine.vocabulary.encode(chat.answers[turn])
            engine.target.answer = [*ids, min(engine.vocabulary.stops)]
        answers.append(answer_question(engine, messages, sampling))
        said = plain[turn] if plain else answers[turn]
        messages.append(Message("assistant", said.text, said.tokens))
    return answers


def answer_question(engine: Engine, messages: Sequence[Message], sampling: Sampling) -> TimedAnswer:
    """Answer the last of `messages`."""
    statistics = Statistics()
    steps: list[Step] = []
    pieces: list[str] = []
    request = GenerationRequest(messages, sampling, AnswerEnd(engine.defaults.max_tokens))
    for event in generate(engine, request, statistics, Flag()):
        if isinstance(event, Wrote):
            steps.append(event.step)
            pieces.extend(piece.text for piece in event.pieces)
    decoded = [step for step in steps if not step.prefill]
    return TimedAnswer(
        prompt=tuple(engine.target.tokens[: statistics.prompt_tokens]),
        tokens=tuple(token for step in steps for token in step.tokens),
        chain=sum(max(step.tree.depths()) for step in decoded),
        rows=tuple(len(step.tree) for step in decoded),
        statistics=statistics,
        text="".join(pieces),
        overhead=overhead_parts(decoded),
    )


LOOP, PLANNING = "loop", "planning"


def overhead_parts(steps: Iterable[Step]) -> dict[str, float]:
    """Seconds of `steps` outside the target: of each drafter, of planning (the budget and the
    observers of steps) and of the loop itself (drawing tokens and keeping their states)."""
    parts = defaultdict[str, float](float)
    for step in steps:
        timings, consulted = step.timings, 0.0
        for proposal in step.proposals:
            parts[proposal.drafter] += proposal.seconds
            consulted += proposal.seconds
        parts[PLANNING] += timings.draft - consulted
        parts[LOOP] += timings.total - timings.target - timings.draft
    return parts


def summarise(
    row: DecodeRow,
    plain: DecodeRow,
    sampling: Sampling,
    costs: Mapping[str, float],
    fixed: Sequence[DecodeRow] = (),
) -> dict[str, object]:
    """The row's figures, as in `bench decode --json`.

    Args:
        costs: V(n) from `verify_ms`.
        fixed: the same drafters with fixed draft lengths, to compare `row` with.
    """
    answers = row.answers()
    pairs = list(zip(answers, plain.answers(), strict=True))
    total = total_statistics(answers)
    decoded = [answer.statistics for answer in answers if answer.statistics.steps]
    return {
        "drafters": row.drafters,
        "history": row.history,
        "shape": row.shape,
        "fixed": row.fixed,
        "chats": len(row.chats),
        "tokens": total.tokens,
        "steps": total.steps,
        "drafted": total.drafted,
        "accepted": total.accepted,
        "tokens_per_step": total.tokens_per_step,
        "acceptance_rate": total.acceptance_rate,
        "mean_acceptance_rate": mean_acceptance_rate(answers),
        "draft_length": sum(one.chain for one in answers) / max(total.steps, 1),
        "seconds": total.decode_seconds,
        "speedup": speedup(row, plain),
        "total_speedup": total_speedup(row, plain),
        "bound": bound(answers, costs),
        "of_best_fixed": min((speedup(row, one) for one in fixed), default=None),
        "of_hindsight": of_hindsight(row, fixed),
        "overhead_ms_per_step": median(
            [1e3 * one.overhead_seconds / one.steps for one in decoded] or [0.0]
        ),
        "overhead_ms_by_part": _overhead_ms(answers, max(total.steps, 1)),
        "identical": mean(one.tokens == other.tokens for one, other in pairs),
        "largest_fork_gap": max(
            (fork_gap(row.engine, sampling, one, other) for one, other in pairs), default=0.0
        ),
        "by_drafter": total.by_origin,
    }


def total_statistics(answers: Iterable[TimedAnswer]) -> Statistics:
    """The statistics of all answers together."""
    total = Statistics()
    for answer in answers:
        total.add(answer.statistics)
    return total


def _overhead_ms(answers: Sequence[TimedAnswer], steps: int) -> dict[str, float]:
    """Mean milliseconds of overhead per step, by part."""
    parts = dict.fromkeys((part for answer in answers for part in answer.overhead), 0.0)
    for answer in answers:
        for part, seconds in answer.overhead.items():
            parts[part] += 1e3 * seconds / steps
    return parts


def mean_acceptance_rate(answers: Sequence[TimedAnswer]) -> float:
    """The papers' MAR: accepted ÷ drafted tokens of the longest path for each prompt, averaged over
    prompts (DReSD section 4.3)."""
    rates = [answer.statistics.accepted / answer.chain for answer in answers if answer.chain]
    return mean(rates) if rates else 0.0


def speedup(row: DecodeRow, plain: DecodeRow) -> float:
    """Median over chats of plain seconds per token ÷ this row's, prefill excluded."""
    ratios = [
        _seconds_per_token(base) / _seconds_per_token(own)
        for own, base in zip(row.chats, plain.chats, strict=True)
        if _step_tokens(own) and _step_tokens(base)
    ]
    return median(ratios) if ratios else 1.0


def total_speedup(row: DecodeRow, plain: DecodeRow) -> float:
    """Plain seconds per token of all chats together ÷ this row's, prefill excluded; 1 where either
    has no steps."""
    own, base = row.answers(), plain.answers()
    if not (_step_tokens(own) and _step_tokens(base)):
        return 1.0
    return _seconds_per_token(base) / _seconds_per_token(own)


def bound(answers: Sequence[TimedAnswer], costs: Mapping[str, float]) -> float:
    """The speed-up if a step took V(n) and nothing else: τ ÷ (V(n) ÷ V(1)), 1 without steps.

    Args:
        costs: V by number of rows, in any unit; linear in between.
    """
    widths, times = zip(*((int(rows), cost) for rows, cost in costs.items()), strict=True)
    rows = [rows for answer in answers for rows in answer.rows]
    tokens = sum(answer.statistics.step_tokens for answer in answers)
    return tokens * times[0] / float(np.interp(rows, widths, times).sum()) if rows else 1.0


def of_hindsight(row: DecodeRow, fixed: Sequence[DecodeRow]) -> float | None:
    """Median over chats of the time with the best fixed length for that chat ÷ this row's time.

    None if there is nothing to compare with, or no chat has steps.
    """
    chats = [
        (own, others)
        for own, *others in zip(row.chats, *(one.chats for one in fixed), strict=True)
        if others and all(map(_step_tokens, (own, *others)))
    ]
    ratios = [
        min(map(_seconds_per_token, others)) / _seconds_per_token(own) for own, others in chats
    ]
    return median(ratios) if ratios else None


def fork_gap(engine: Engine, sampling: Sampling, answer: TimedAnswer, plain: TimedAnswer) -> float:
    """The gap between the two best scores where the answer forked from plain decoding, else 0.

    The common prefix is read again to compute it.
    """
    pairs = zip(answer.tokens, plain.tokens, strict=False)
    same = next((index for index, (one, other) in enumerate(pairs) if one != other), None)
    if same is None:
        return 0.0
    context = [*answer.prompt, *answer.tokens[:same]]
    with engine.busy:
        for _ in engine.target.prefill(context):
            pass
        return draw_gap(sampling, engine.target.last_row.logits[0], same, context)


def _step_tokens(answers: Sequence[TimedAnswer]) -> int:
    return sum(answer.statistics.step_tokens for answer in answers)


def _seconds_per_token(answers: Sequence[TimedAnswer]) -> float:
    return sum(answer.statistics.decode_seconds for answer in answers) / _step_tokens(answers)

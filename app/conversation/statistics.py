"""The figures of an answer, and the draft origin of each part of its text.

`Statistics` are the figures of `ask --json` and of the acceptance panel; `Provenance` attributes
the text to draft origins and is stored with the figures, as runs of (characters, origin name), the
name empty for the target itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

from engines.draft_tree import DRAFT_MODEL, ORIGIN_NAMES, DraftTree, credited

if TYPE_CHECKING:
    from engines.budget.protocol import BudgetStatus
    from engines.step import Context, Proposal, Step

PLAIN_SAMPLES = 5
"""Latest steps without a draft that measure how busy the machine is."""
MIN_PLAIN_STEPS = 3
"""Fewer steps without a draft are no measurement."""
MIN_STEADY_S = 0.01
"""Shorter steps right after a drafted one are not measured: llama.cpp rebuilds its graph then, in
0.65 ms."""


@dataclass(slots=True)
class Statistics:
    """Running totals over the steps of one answer, or of several (`add`).

    Attributes:
        prompt_tokens: tokens of the prompt, reused ones included.
        cached_tokens: those of them that were in the KV cache.
        tokens: tokens emitted, the stop token included.
        steps: steps, without the one whose token came from prefill.
        step_tokens: tokens emitted in those steps.
        drafted: draft tokens verified.
        accepted: draft tokens emitted.
        longest_drafted: draft tokens on the longest path of each verified tree; no more can be
            accepted, as branches exclude each other.
        seconds: wall time from the request to the end.
        first_token_seconds: wall time from the request to the first token.
        decode_seconds: wall time of the steps.
        target_seconds: part of it inside the target.
        plain_seconds: time of those steps without drafts, estimated by `compare`; 0 while unknown.
        by_origin: tokens credited to each origin, by its stable name.
        drafted_by_origin: draft tokens of each origin, along the longest path of each verified
            tree.
        possible_by_origin: tokens that drafts would have supplied if all had been verified, each
            credited to one origin.
        draft_model_compared: positions at which the draft model's likeliest draft, verified or not,
            can be compared with the text.
        draft_model_matched: those at which it was right.
    """

    prompt_tokens: int = 0
    cached_tokens: int = 0
    tokens: int = 0
    steps: int = 0
    step_tokens: int = 0
    drafted: int = 0
    accepted: int = 0
    longest_drafted: int = 0
    seconds: float = 0.0
    first_token_seconds: float = 0.0
    decode_seconds: float = 0.0
    target_seconds: float = 0.0
    plain_seconds: float = 0.0
    draft_model_compared: int = 0
    draft_model_matched: int = 0
    by_origin: dict[str, int] = field(default_factory=dict)
    drafted_by_origin: dict[str, int] = field(default_factory=dict)
    possible_by_origin: dict[str, int] = field(default_factory=dict)
    _ahead: list[tuple[DraftTree, int]] = field(default_factory=list)
    _slowdowns: deque[float] = field(default_factory=lambda: deque(maxlen=PLAIN_SAMPLES))
    _last_drafted: bool = False

    def begin(self, context: Context) -> None:
        """Nothing to do: the caller starts a new instance, or continues to count."""

    def observe(self, step: Step) -> None:
        """Count one step."""
        self.tokens += len(step.tokens)
        for origins in filter(None, step.origins):
            _count(self.by_origin, origins, 1)
        self._foresee(step)
        if step.prefill:
            return
        if step.drafted:
            for origin, _ in _levels(step.tree):
                _count(self.drafted_by_origin, origin, 1)
        for proposal in step.proposals:
            if proposal.drafter == ORIGIN_NAMES[DRAFT_MODEL]:
                compared, matched = compare_chain(proposal, step.tokens)
                self.draft_model_compared += compared
                self.draft_model_matched += matched
        self.steps += 1
        self.step_tokens += len(step.tokens)
        self.drafted += step.drafted
        self.accepted += step.accepted
        self.longest_drafted += max(step.tree.depths())
        self.decode_seconds += step.timings.total
        self.target_seconds += step.timings.target

    def _foresee(self, step: Step) -> None:
        """Count the tokens that drafts predicted, up to the first wrong token of each.

        An accepted token counts for the origin it is credited to, so that no origin has less here
        than in `by_origin`.
        """
        if not self._ahead:
            self._ahead = [(one.tree, 0) for one in step.proposals if not one.after]
        for token, accepted in zip(step.tokens, step.origins, strict=True):
            rows = ((tree, _child(tree, row, token)) for tree, row in self._ahead)
            self._ahead = [(tree, row) for tree, row in rows if row]
            foreseen = accepted or reduce(or_, (tree.origins[row] for tree, row in self._ahead), 0)
            if foreseen:
                _count(self.possible_by_origin, foreseen, 1)

    def compare(self, step: Step, budget_status: BudgetStatus) -> float:
        """Count the seconds that `step` would have taken without drafts, and return them.

        A step without a draft is its own measurement, less the time spent on deciding not to draft.
        For the others, the budget's measurement of plain decoding is scaled by the slowdown of the
        answer's latest steps without a draft. The step itself bounds the estimate, as a pass over
        fewer rows takes no longer.
        """
        # Imported here: it takes long, and a command that is answered elsewhere compares nothing.
        from statistics import median

        if step.prefill:
            return 0.0
        step_s, known = step.timings.total - step.timings.draft, budget_status.plain_seconds
        if step.drafted:
            slowdown = median(self._slowdowns) if len(self._slowdowns) >= MIN_PLAIN_STEPS else 1.0
            seconds = len(step.tokens) * min(known * slowdown, step_s)
        else:
            seconds = step_s
            if known > 0 and (not self._last_drafted or step_s >= MIN_STEADY_S):
                self._slowdowns.append(step_s / known)
        self._last_drafted = step.drafted > 0
        self.plain_seconds += seconds
        return seconds

    def after(self, earlier: Mapping[str, object]) -> Statistics:
        """The totals of a continued answer, whose figures were `earlier` when it was stopped.

        The prompt and the time to the first token are those of its beginning.
        """
        begun = stored_statistics(earlier)
        total = replace(begun, by_origin={**begun.by_origin})
        total.drafted_by_origin = {**begun.drafted_by_origin}
        total.add(self)
        if begun.tokens:
            total.prompt_tokens = begun.prompt_tokens
            total.cached_tokens = begun.cached_tokens
            total.first_token_seconds = begun.first_token_seconds
        return total

    def add(self, other: Statistics) -> None:
        """Add the totals of `other`."""
        for name in COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for totals, added in (
            (self.by_origin, other.by_origin),
            (self.drafted_by_origin, other.drafted_by_origin),
        ):
            for name, tokens in added.items():
                totals[name] = totals.get(name, 0) + tokens

    def figures(self) -> dict[str, object]:
        """The totals by name, as stored with an answer."""
        return {name: getattr(self, name) for name in (*COUNTS, "by_origin", "drafted_by_origin")}

    @property
    def tokens_per_step(self) -> float:
        """Tokens emitted per step; 0 before the first."""
        return self.step_tokens / self.steps if self.steps else 0.0

    @property
    def acceptance_rate(self) -> float:
        """Accepted tokens per token of the longest drafts; 0 if none was verified."""
        return self.accepted / self.longest_drafted if self.longest_drafted else 0.0

    @property
    def draft_model_acceptance(self) -> float:
        """Share of compared positions at which the draft model was right; 0 if there is none."""
        compared = self.draft_model_compared
        return self.draft_model_matched / compared if compared else 0.0

    @property
    def overhead_seconds(self) -> float:
        """Time of the loop outside the target."""
        return self.decode_seconds - self.target_seconds

    @property
    def tokens_per_second(self) -> float:
        """Speed of decoding, prefill excluded; 0 before the first step."""
        return self.step_tokens / self.decode_seconds if self.decode_seconds else 0.0


COUNTS = tuple(
    entry.name
    for entry in fields(Statistics)
    if not entry.name.startswith("_") and not entry.name.endswith("by_origin")
)
"""The attributes that are single numbers."""


def stored_statistics(figures: Mapping[str, object]) -> Statistics:
    """The statistics among an answer's stored figures; a restored chat may hold anything."""
    stored = Statistics()
    for name in COUNTS:
        value = figures.get(name)
        if isinstance(value, int | float):
            setattr(stored, name, type(getattr(stored, name))(value))
    # Earlier versions counted the drafts' side branches alone.
    stored.longest_drafted = stored.longest_drafted or stored.drafted
    for name, totals in (
        ("by_origin", stored.by_origin),
        ("drafted_by_origin", stored.drafted_by_origin),
    ):
        counts = figures.get(name)
        for origin, tokens in counts.items() if isinstance(counts, dict) else ():
            if origin in ORIGIN_NAMES.values() and isinstance(tokens, int):
                totals[origin] = tokens
    return stored


def _count(totals: dict[str, int], origins: int, tokens: int) -> None:
    """Count `tokens` of the origin that is credited for `origins`."""
    name = ORIGIN_NAMES[credited(origins)]
    totals[name] = totals.get(name, 0) + tokens


def _child(tree: DraftTree, row: int, token: int) -> int:
    """The child of `row` with `token`; 0 for none."""
    rows = range(row + 1, len(tree))
    return next((at for at in rows if tree.parents[at] == row and tree.tokens[at] == token), 0)


def _levels(tree: DraftTree) -> set[tuple[int, int]]:
    """The (credited origin, depth) pairs of the rows of `tree`."""
    rows = zip(tree.origins, tree.depths(), strict=True)
    return {(credited(origins), depth) for origins, depth in rows if depth}


def compare_chain(proposal: Proposal, tokens: Sequence[int]) -> tuple[int, int]:
    """The number of `tokens` compared with the likeliest path of a proposal, and of equal ones.

    Counts positions up to the first difference, as the rest was drafted for another text. In a
    tree, the first child of a row is its likeliest.
    """
    depth = len(proposal.after)
    if tuple(tokens[:depth]) != proposal.after:
        return 0, 0
    tree, row, matched = proposal.tree, 0, 0
    for child in range(1, len(tree)):
        if depth == len(tokens):
            break
        if tree.parents[child] == row:
            if tree.tokens[child] != tokens[depth]:
                return matched + 1, matched
            row, depth, matched = child, depth + 1, matched + 1
    return matched, matched


ORIGINS_KEY = "origins"
"""The key of the runs among an answer's stored figures."""

STATES_KEY = "worded_from"
"""The key of the number of datastore entries that KNN-LM searched; absent without KNN-LM."""
REMARK_KEY = "remark"
"""The key of a remark on an answer, if there is one."""

_BITS: Mapping[str, int] = {"": 0, **{name: bit for bit, name in ORIGIN_NAMES.items()}}


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of the answer's text and the origin bit its tokens are credited to (0: the model)."""

    text: str
    origin: int


class Provenance:
    """The runs of an answer in progress; adjacent ones of the same origin are joined."""

    def __init__(self) -> None:
        self._runs: list[tuple[int, str]] = []

    def append(self, pieces: Iterable[Piece]) -> None:
        """Add the text of new tokens."""
        for piece in pieces:
            name = ORIGIN_NAMES.get(piece.origin, "")
            length = len(piece.text)
            if self._runs and self._runs[-1][1] == name:
                length += self._runs.pop()[0]
            self._runs.append((length, name))

    def runs(self) -> list[tuple[int, str]]:
        """The runs so far."""
        return list(self._runs)


def attributed_pieces(text: str, runs: Sequence[Any]) -> list[Piece]:
    """`text` split by its stored runs; empty if they do not match the text."""
    pieces, at = [], 0
    for run in runs:
        match run:
            case [int(length), str(name)] if name in _BITS and length > 0:
                pieces.append(Piece(text[at : at + length], _BITS[name]))
                at += length
            case _:
                return []
    return pieces if at == len(text) else []

"""The numbers behind the acceptance panel: what drafting brings, of this answer and this session.

An observer of events. Formats nothing, times nothing: speeds come from the cycles that steps
report, and the moment of an event is handed in. Figures of one answer are those of `Statistics`, so
that the panel and `ask --json` agree.

Which stretch of an answer was drafted by whom, kept with the answer's figures.

Owns the form in which it is kept: runs of (characters, source), neighbours of one source joined,
the source by its stable name, and empty for the model itself.

What an answer cost and where its tokens came from: the figures of `ask --json` and of the panel.

An observer of `Step`. Counts; does not time anything itself and formats nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from engines.draft_tree import NAMES, credited
from engines.step import Context, Step

_BITS: Mapping[str, int] = {"": 0, **{name: bit for bit, name in NAMES.items()}}


@dataclass(slots=True)
class Statistics:
    """Running totals over the steps of one answer, or of many (`add`).

    Attributes:
        prompt_tokens: tokens of the prompt, reused ones included.
        tokens: tokens emitted, the stop token included.
        target_calls: forward passes, prefill and the token it yields excluded.
        call_tokens: tokens that came out of those calls.
        drafted: draft tokens verified; accepted: those that were emitted.
        seconds: wall time from the request to the end; first_token_seconds: to the first token.
        decode_seconds: wall time of the cycles of the loop; target_seconds: inside the target.
        by_source: tokens credited to each source, by its stable name.
    """

    prompt_tokens: int = 0
    tokens: int = 0
    target_calls: int = 0
    call_tokens: int = 0
    drafted: int = 0
    accepted: int = 0
    seconds: float = 0.0
    first_token_seconds: float = 0.0
    decode_seconds: float = 0.0
    target_seconds: float = 0.0
    by_source: dict[str, int] = field(default_factory=dict)

    def begin(self, context: Context) -> None:
        """Nothing to do: the caller starts a new one, or goes on counting."""

    def observe(self, step: Step) -> None:
        """Count one step."""
        self.tokens += len(step.tokens)
        for sources in step.sources:
            if sources:
                name = NAMES[credited(sources)]
                self.by_source[name] = self.by_source.get(name, 0) + 1
        if step.prefill:
            return
        self.target_calls += 1
        self.call_tokens += len(step.tokens)
        self.drafted += step.drafted
        self.accepted += step.accepted
        self.decode_seconds += step.timings.total
        self.target_seconds += step.timings.target

    def add(self, other: Statistics) -> None:
        """Count everything `other` counted."""
        for name in COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name, tokens in other.by_source.items():
            self.by_source[name] = self.by_source.get(name, 0) + tokens

    @property
    def tokens_per_call(self) -> float:
        """Tokens emitted by target calls ÷ target calls; 0 before the first call."""
        return self.call_tokens / self.target_calls if self.target_calls else 0.0

    @property
    def acceptance_rate(self) -> float:
        """Accepted ÷ verified draft tokens; 0 where none was verified."""
        return self.accepted / self.drafted if self.drafted else 0.0

    @property
    def overhead_seconds(self) -> float:
        """Time of the loop outside the target's calls."""
        return self.decode_seconds - self.target_seconds

    @property
    def tokens_per_second(self) -> float:
        """Speed of decoding, prefill excluded; 0 before the first call."""
        return self.call_tokens / self.decode_seconds if self.decode_seconds else 0.0


COUNTS = tuple(entry.name for entry in fields(Statistics) if entry.name != "by_source")
"""The attributes that add up."""

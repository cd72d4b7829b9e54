"""Counters since the start, in Prometheus' text form."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from app.conversation.statistics import Statistics

CONTENT_TYPE = "text/plain; version=0.0.4"

HELP = {
    "prompt_tokens": "Tokens of prompts, those reused from the KV cache included.",
    "cached_tokens": "Tokens of prompts that were reused from the KV cache.",
    "tokens": "Tokens written.",
    "steps": "Forward passes that wrote tokens.",
    "drafted": "Drafted tokens that were verified.",
    "accepted": "Drafted tokens that were accepted.",
    "seconds": "Seconds of answering, from the beginning of each answer.",
}
"""Figures of `Statistics` that are summed over all answers, and what they are."""


@dataclass(slots=True)
class Metrics:
    """The counters."""

    _requests: Counter[tuple[str, int]] = field(default_factory=Counter)
    _totals: Counter[str] = field(default_factory=Counter)

    def count_request(self, path: str, status: int) -> None:
        """Count a request to the route `path`."""
        self._requests[path, status] += 1

    def count_answer(self, statistics: Statistics) -> None:
        """Count a finished answer."""
        for name in HELP:
            self._totals[name] += getattr(statistics, name)

    def text(self, active: int) -> str:
        """All counters, and the number of `active` requests."""
        return "\n".join([*self._lines(active), ""])

    def _lines(self, active: int) -> Iterator[str]:
        yield "# HELP specchat_requests_total Requests by route and status."
        yield "# TYPE specchat_requests_total counter"
        for (path, status), count in sorted(self._requests.items()):
            yield f'specchat_requests_total{{path="{path}",status="{status}"}} {count}'
        yield "# HELP specchat_requests_active Requests that wait or are being answered."
        yield "# TYPE specchat_requests_active gauge"
        yield f"specchat_requests_active {active}"
        for name, text in HELP.items():
            yield f"# HELP specchat_{name}_total {text}"
            yield f"# TYPE specchat_{name}_total counter"
            yield f"specchat_{name}_total {self._totals[name]}"

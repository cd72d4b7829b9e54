"""Fetching a model while something else goes on: what has come, how fast, and how it ended.

Owns what its process tells and the figures a person wants meanwhile. Refuses to know screens.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

from app.children import AsyncChild

WINDOW = 10.0
"""Seconds over which the rate is taken: a shorter one jumps about."""


@dataclass(slots=True)
class Fetch:
    """One model on its way here.

    Attributes:
        wanted: as the person gave it.
        name: what the hub calls it; as wanted, before the hub has answered.
        done, total: bytes that are here, and all; 0 before the hub has answered.
        running: whether a process is at it.
        failure: why the last one failed; empty where it did not.
        path: the file to open; None until everything is here.
    """

    wanted: str
    name: str = ""
    done: int = 0
    total: int = 0
    running: bool = False
    failure: str = ""
    path: Path | None = None
    _seen: deque[tuple[float, int]] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self.name = self.name or self.wanted

    @property
    def share(self) -> float:
        """How much of it is here, 0 to 1."""
        return self.done / self.total if self.total else 0.0

    @property
    def rate(self) -> float:
        """Bytes per second of late; 0 while unknown."""
        if len(self._seen) < 2:
            return 0.0
        (before, least), (now, most) = self._seen[0], self._seen[-1]
        return max(most - least, 0) / (now - before) if now > before else 0.0

    @property
    def seconds_left(self) -> float | None:
        """At this rate; None while unknown."""
        return (self.total - self.done) / self.rate if self.rate else None

    def take(self, told: dict[str, Any], moment: float) -> None:
        """Take in what the process told at `moment`, in seconds of a clock that never goes back."""
        self.name = told.get("name", self.name)
        self.total = told.get("total", self.total)
        self.failure = told.get("failure", self.failure)
        if "path" in told:
            self.path = Path(told["path"])
        if "done" in told:
            self.done = told["done"]
            self._seen.append((moment, self.done))
            while moment - self._seen[0][0] > WINDOW:
                self._seen.popleft()

    async def run(self, cache: Path) -> AsyncGenerator[None]:
        """Fetch it into `cache`, or go on with it; yields whenever something changed.

        Closed or cancelled, it stops at once, and what has come stays.
        """
        self.failure, self.running = "", True
        self._seen.clear()
        yield
        told: dict[str, Any] = {}
        try:
            async with AsyncChild("app.models.pull_child", self.wanted, cache) as child:
                async for told in child:
                    self.take(told, monotonic())
                    yield
                code = await child.code()
        finally:
            self.running = False
        if not {"path", "failure"} & set(told):
            self.failure = f"fetching {self.wanted} broke off (exit code {code}): try again"

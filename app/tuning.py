"""What can be set for one chat: its system prompt, and how its answers are drawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Tuning:
    """The settings of a chat; `sampling` holds those that differ from the defaults, by name."""

    system: str = ""
    sampling: Mapping[str, object] = field(default_factory=dict)

    def told(self) -> str:
        """What is set, in few words; empty where nothing is."""
        drawn = [f"{name.replace('_', ' ')} {value}" for name, value in self.sampling.items()]
        return ", ".join([*drawn, *["system prompt"] * bool(self.system)])

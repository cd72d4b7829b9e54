"""What the person chose on the command line, for commands, interface and benchmarks alike."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

DRAFTERS = ("prompt", "recycle", "crest", "dense")
"""Every drafter, by the name it has on the command line."""


@dataclass(frozen=True, slots=True)
class Options:
    """The global options. None: not given, so the configuration or the default decides.

    Attributes:
        model: path of a GGUF file, or a model's name; None for the configured or the embedded one.
        data_dir: the one directory for all data, in place of the platform's.
        drafters: names out of `DRAFTERS`; empty for plain decoding.
        draft_tokens: draft tokens forced on each call; None lets the budget decide.
        seed: of the sampler.
        temperature: of the sampler; 0 is greedy.
        max_tokens: the longest answer, in tokens.
        exact: bitwise the same as plain decoding, on the CPU.
        gpu_layers: layers to offload; None for as many as fit.
    """

    model: str | None = None
    data_dir: Path | None = None
    drafters: tuple[str, ...] = DRAFTERS
    draft_tokens: int | None = None
    seed: int | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    exact: bool = False
    gpu_layers: int | None = None

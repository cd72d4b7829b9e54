"""A loaded model, ready for chats: target, vocabulary and template of one GGUF file.

Owns the order of loading. Refuses to know how the parts work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from llama_cpp import llama_cpp as lib

from engines.chat import Message
from engines.llama.abilities import usable_rows, widest_tree
from engines.llama.pace import Pace
from engines.llama.target import LlamaTarget, Shape
from engines.llama.threads import default_threads
from engines.llama.vocabulary import LlamaVocabulary
from engines.llama.weights import Context, Weights
from engines.weights import fingerprint


@dataclass(frozen=True, slots=True)
class LlamaModel:
    """What `load` returns.

    Attributes:
        name: the model's own name, else the file's.
        build: llama.cpp's version and how it was set up: what measured costs are filed under.
    """

    name: str
    build: str
    target: LlamaTarget
    vocabulary: LlamaVocabulary

    def render(self, messages: Sequence[Message]) -> list[int]:
        """The prompt's token ids; ends where the assistant's answer begins."""
        text = "".join(f"<|im_start|>{m.role}\n{m.content}<|im_end|>\n" for m in messages)
        return self.vocabulary.encode(text + "<|im_start|>assistant\n", special=True)


def load(
    path: Path,
    *,
    gpu_layers: int | None,
    threads: int,
    context_length: int,
    exact: bool,
    known: Path | None,
) -> LlamaModel:
    """Open a GGUF file.

    Raises:
        ModelError: missing, damaged or hostile, or it will not run here.
    """
    threads = threads or default_threads()
    weights = Weights(path, 0)
    rows = widest_tree(weights.on_device)
    length = min(context_length, weights.trained_length)
    context = Context(weights, length, rows=rows, threads=threads)
    usable = usable_rows(context, rows)
    shape = Shape(length, usable, chains_only=weights.keeps_states)
    pace = Pace(weights.parameters, threads, weights.on_device)
    return LlamaModel(
        name=weights.metadata("general.name") or path.stem,
        build=f"{lib.llama_version().decode()} t{threads}",
        target=LlamaTarget(context, shape, pace, fingerprint(path)),
        vocabulary=LlamaVocabulary(weights.vocabulary, weights),
    )

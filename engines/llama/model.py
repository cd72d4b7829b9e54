"""A loaded model, ready for chats: target, vocabulary and template of one GGUF file.

Owns the order of loading. Refuses to know how the parts work.

Exact mode: a width at which every decode of this file gives the same bits.

The kernels of a quantisation sum in an order that depends on how many rows a batch has, so logits
of one position differ in the last bits between a plain step and a draft's verification. Where every
decode has the same width they may still depend on the row's place in the batch. This module tries
widths until one is found at which they do not.

The trial crosses cell 256, where the KV cache's padded length changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from llama_cpp import llama_cpp as lib

from datastores.errors import ModelError
from engines.chat_message import Message
from engines.chat_template.template import ChatTemplate
from engines.draft_tree import chain
from engines.fingerprint import fingerprint
from engines.llama.context import (
    ContextLimits,
    LlamaContext,
    Weights,
    open_fitting,
    usable_rows,
    widest_tree,
)
from engines.llama.forward import PrefillChunkSize
from engines.llama.gguf import check_header
from engines.llama.probe import probe_once
from engines.llama.target import LlamaTarget
from engines.llama.threads import ThreadTuner, default_threads
from engines.llama.vocabulary import LlamaVocabulary
from engines.target import Floats

WIDTHS = (8, 16, 24, 32)
PADDING = 256
SEED = 20


def exact_shape(
    context: LlamaContext, shape: ContextLimits, pace: PrefillChunkSize
) -> ContextLimits:
    """`shape` with the narrowest stable width.

    Raises:
        ModelError: at no width are the logits bitwise stable, or the memory cannot step back.
    """
    fixed = ThreadTuner(1, learning=False)
    if shape.max_rows >= WIDTHS[0]:
        for width in WIDTHS:
            padded = replace(shape, chains_only=True, padded_rows=width, max_rows=width)
            if _stable(LlamaTarget(context, padded, pace, fixed, ""), width):
                return padded
    raise ModelError(
        f"{context.weights.path} gives no bitwise stable logits here: run it without --exact"
    )


def _stable(target: LlamaTarget, width: int) -> bool:
    """Whether a chain's rows equal plain steps bit by bit, wherever in the batch they stand."""
    random = np.random.default_rng(SEED)
    start = PADDING - width - 1
    tokens = random.integers(0, target.vocabulary_size, start + width).tolist()
    list(target.prefill(tokens[:start]))
    plain = _walk(target, tokens[start:], 1)
    for step in (3, width):
        target.rewind(start)
        if not np.array_equal(plain, _walk(target, tokens[start:], step)):
            return False
    target.rewind(0)
    return True


def _walk(target: LlamaTarget, tokens: list[int], step: int) -> Floats:
    """Logits and hidden states after each of `tokens`, verified and committed `step` at a time."""
    seen: list[Floats] = []
    for begin in range(0, len(tokens), step):
        part = tokens[begin : begin + step]
        rows = target.verify(chain(part[0], part[1:], 0))
        seen.append(np.hstack([rows.logits, rows.hidden]))
        target.commit(range(len(part)))
    return np.vstack(seen)


SHORTEST_CONTEXT = 256
"""Tokens below which no chat is possible; also the step in which llama.cpp grows its cache."""
LONGEST_NAME = 80


@dataclass(frozen=True, slots=True)
class LlamaModel:
    """What `load` returns. Native memory goes with the last reference to `target`.

    Attributes:
        name: the model's own name, else the file's.
        build: llama.cpp's version and how it was set up: what measured costs are filed under.
        layers: transformer blocks.
        threads: on the processor.
        gpu_layers: layers on a graphics card.
        limits: what is off for this model and why, a sentence each; for people.
    """

    name: str
    build: str
    target: LlamaTarget
    vocabulary: LlamaVocabulary
    template: ChatTemplate
    layers: int
    threads: int
    gpu_layers: int
    limits: tuple[str, ...]

    def render(self, messages: Sequence[Message]) -> list[int]:
        """The prompt's token ids; ends where the assistant's answer begins."""
        return self.template.render(messages)


def load(
    path: Path,
    *,
    gpu_layers: int | None = None,
    threads: int = 0,
    context_length: int = 8192,
    exact: bool = False,
    known: Path | None = None,
    rows: int = 0,
) -> LlamaModel:
    """Open a GGUF file.

    Args:
        gpu_layers: None for as many as fit where this build can use a graphics card (none in exact
            mode, which is the processor's).
        threads: 0 for one for each physical core.
        context_length: tokens; less where the model was trained for less.
        exact: chains only, every decode padded to a width at which logits are bitwise stable.
        known: file that remembers which model files were probed in a child process; None where
            the caller vouches for `path`.
        rows: of the widest tree that has to fit; less than is usual changes nothing.

    Raises:
        ModelError: missing, damaged or hostile, or it will not run here.
    """
    check_header(path)
    version = lib.llama_version().decode()
    if known is not None:
        probe_once(path, known, version)
    threads = threads or default_threads()
    weights, target = open_fitting(
        path,
        0 if exact and gpu_layers is None else gpu_layers,
        lambda opened: (opened, _make_target(opened, threads, context_length, exact, rows)),
    )
    vocabulary = LlamaVocabulary(weights.vocabulary, weights)
    template = ChatTemplate(weights.metadata("tokenizer.chat_template"), vocabulary)
    mode = f" w{target.padded_rows}" if exact else ""
    return LlamaModel(
        name=_name(weights),
        build=f"llama.cpp {version} t{threads} g{weights.gpu_layers}{mode}",
        target=target,
        vocabulary=vocabulary,
        template=template,
        layers=weights.layers,
        threads=threads,
        gpu_layers=weights.gpu_layers,
        limits=_limits(target, template),
    )


def _make_target(
    weights: Weights, threads: int, length: int, exact: bool, rows: int
) -> LlamaTarget:
    rows = max(rows, widest_tree(weights.on_device))
    length = min(length, weights.trained_length)
    if length < SHORTEST_CONTEXT:
        raise ModelError(
            f"{weights.path} would run with a context of {length} tokens;"
            f" specchat needs {SHORTEST_CONTEXT}: raise the context length or choose another file"
        )
    # In exact mode the last decodes of a full context still have their whole width.
    context = LlamaContext(weights, length + exact * max(WIDTHS), rows=rows, threads=threads)
    shape = ContextLimits(length, usable_rows(context, rows), chains_only=weights.keeps_states)
    pace = PrefillChunkSize(weights.parameters, threads, weights.on_device)
    if exact:
        shape = exact_shape(context, shape, pace)
    # Exact mode was tried with this many threads, and partitions may show in the last bits.
    governor = ThreadTuner(threads, learning=not (weights.on_device or exact))
    return LlamaTarget(context, shape, pace, governor, fingerprint(weights.path))


def _name(weights: Weights) -> str:
    """What the file calls itself, in printable characters and within one line; else its name."""
    claimed = "".join(filter(str.isprintable, weights.metadata("general.name")))
    return claimed.strip()[:LONGEST_NAME] or weights.path.stem


def _limits(target: LlamaTarget, template: ChatTemplate) -> tuple[str, ...]:
    limits = [template.problem] if template.problem else []
    if target.max_rows == 1:
        limits.append("no drafting: this model's memory cannot step back")
    elif target.chains_only and not target.padded_rows:
        steps = target.max_rows - 1
        limits.append(f"short drafts only: this model's memory steps back {steps} tokens at most")
    return tuple(limits)

"""Loads a GGUF file, ready for chats: target, vocabulary and chat template.

Decides how many layers go to a graphics card, and finds the width of exact mode.

Exact mode: a quantisation's kernels sum in an order that depends on the number of rows, so the
logits of a position differ in the last bits between a plain step and the verification of a draft. A
single row is always computed differently, but several widths agree: 2 to 16 rows of F16, Q8_0 and
Q4_1, 2 and 3 of Q4_K_M. So passes, prefill included, are padded to the least width that agrees with
wider ones, and limited to the widest. Both are found by a trial, which crosses cell 256, where the
KV cache's padded length changes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from llama_cpp import llama_cpp as lib

from datastores.errors import ModelError
from engines.chat_template.prompt_builder import Message, Tool
from engines.chat_template.template import ChatTemplate
from engines.draft_tree import chain
from engines.fingerprint import digest_of_norm, fingerprint
from engines.llama.call_grammar import FreeCalls, call_grammar, free_call_grammar
from engines.llama.context import (
    MAX_ROWS_CPU,
    MAX_ROWS_GPU,
    ContextLimits,
    LlamaContext,
    Weights,
    measure_limits,
    plain_attention_rows,
)
from engines.llama.devices import free_gpu_memory, offloads
from engines.llama.forward import PrefillChunkSize
from engines.llama.gguf import F16, check_header, read_norm
from engines.llama.grammar import Grammar, json_grammar
from engines.llama.heads_loading import open_heads, open_weights
from engines.llama.layer_states import LlamaLayerStates
from engines.llama.native import LOGGER
from engines.llama.probe import probe_heads, probe_once
from engines.llama.target import LlamaTarget
from engines.llama.threads import ThreadTuners, default_threads
from engines.llama.vocabulary import LlamaVocabulary
from engines.llama.workers import Workers
from engines.sampler import Constrain
from engines.target import Floats

CELL_PADDING = 256
"""llama.cpp grows the used part of its KV cache in steps of this many cells."""
MIN_CONTEXT = CELL_PADDING
"""Minimum context length for a chat."""
ALL_LAYERS = 1 << 20
"""More layers than any model has."""
FITTING_STEPS = 16
"""Number of steps from all layers on a graphics card to none."""
EXPERT_STEPS = 4
"""Number of steps from the experts of all layers on it to those of none."""
EXACT_WIDTHS = (2, 4, 8, 16, 24, 32)
"""Candidates of the least width, cheapest first."""
EXACT_ROWS = 16
"""Widest pass to try: each width costs a pass at every start."""
EXACT_SEED = 20

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LlamaModel:
    """A loaded model. Native memory is freed with the last reference to `target`.

    Attributes:
        build: llama.cpp's version and settings, the key under which measured costs are stored.
        trained_context: context length, in tokens, that the model was trained for.
        gpu_layers: number of layers on a graphics card.
        probe_problem: why each start has to probe the file; empty if it need not.
    """

    build: str
    target: LlamaTarget
    vocabulary: LlamaVocabulary
    template: ChatTemplate
    layers: int
    trained_context: int
    threads: int
    gpu_layers: int
    probe_problem: str = ""

    @property
    def reads_layers(self) -> bool:
        """Whether `layer_states` can read them."""
        weights = self.target.weights
        return self.layers > 1 and not weights.recurrent and weights.workers is None

    @property
    def norm_digest(self) -> str:
        """What all quantisations of these weights share (`engines.fingerprint.digest_of_norm`);
        else the fingerprint."""
        scales = read_norm(self.target.weights.path)
        return digest_of_norm(scales) if scales else self.target.fingerprint

    def layer_states(self, layers: Sequence[int]) -> LlamaLayerStates:
        """Reads the states after some of its layers, without the last.

        Raises:
            ModelError: they cannot be read.
        """
        return LlamaLayerStates(self.target.weights, layers, self.threads)

    def render(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> list[int]:
        """Token ids of the prompt, up to the beginning of the answer."""
        return self.template.render(messages, tools)

    def json_form(self, schema: Mapping[str, Any]) -> Constrain:
        """What restricts an answer to the JSON values that `schema` allows.

        Raises:
            InputError: the schema is invalid, or has what is not supported.
        """
        return Grammar(self.target.weights, json_grammar(schema)).constrain

    def call_form(
        self, tools: Sequence[Tool], strict: Collection[str], many: bool, free: bool
    ) -> Constrain:
        """What restricts an answer to a call of `tools`, or to `many`; see `call_grammar`. If the
        model is `free` to write text instead, only its calls are restricted.

        Raises:
            InputError: the schema of a tool named in `strict` is not supported.
        """
        form, weights = self.template.call_form, self.target.weights
        if not free:
            return Grammar(weights, call_grammar(form, tools, strict, many=many)).constrain
        grammar = Grammar(weights, free_call_grammar(form, tools, strict, many=many))
        return FreeCalls(grammar, self.vocabulary, form, tools).constrain

    @property
    def restrictions(self) -> tuple[str, ...]:
        """What does not work with this model and why, as sentences for the user."""
        restrictions = list(filter(None, (self.template.problem, self.probe_problem)))
        if self.target.max_rows == 1:
            restrictions.append("No drafting: this model's cache cannot be rewound.")
        if not self.target.width:
            restrictions.append(
                "No drafts from similar contexts: llama.cpp does not output this model's hidden"
                " states."
            )
        return tuple(restrictions)


@dataclass(frozen=True, slots=True)
class TargetSettings:
    """How to run a target, for any file; see `load`."""

    threads: int
    length: int
    exact: bool
    rows: int
    kv_type: str
    heads: bool

    def make_target(self, weights: Weights) -> LlamaTarget:
        """A context over `weights`, measured and ready.

        Raises:
            ModelError: it does not fit into memory, is too short, or has no stable width.
        """
        rows = max(self.rows, MAX_ROWS_GPU if weights.on_device else MAX_ROWS_CPU)
        length = min(self.length, weights.trained_length)
        if length < MIN_CONTEXT:
            raise ModelError(
                f"{weights.path} would run with a context of {length} tokens;"
                f" specchat needs {MIN_CONTEXT}: raise the context length or choose another file"
            )
        # In exact mode the last decodes of a full context are padded too, and the trial needs more
        # than the shortest context.
        cells = length + self.exact * 2 * max(EXACT_WIDTHS)
        context = LlamaContext(
            weights,
            cells,
            rows=rows,
            threads=self.threads,
            plain_rows=self._plain_rows(weights, cells),
            kv_type=self.kv_type,
        )
        # First, since heads that share the cache clear it.
        heads, problem = open_heads(context, cells, length) if self.heads else (None, "")
        limits = measure_limits(context, length, rows)
        chunk_size = PrefillChunkSize(weights.parameters, self.threads, weights.on_device)
        if self.exact:
            limits = exact_limits(context, limits, chunk_size)
        # Exact mode keeps the number of threads of its trial, as it may affect the last bits.
        tuners = ThreadTuners(self.threads, learning=not (weights.on_device or self.exact))
        return LlamaTarget(
            context, limits, chunk_size, tuners, fingerprint(weights.path), heads, problem
        )

    def mode(self, target: LlamaTarget) -> str:
        """The settings that affect the cost of a pass."""
        mode = target.weights.placement + (f" w{target.padded_rows}" if self.exact else "")
        if self.kv_type != F16:
            mode += f" kv {self.kv_type}"
        if self._plain_rows(target.weights, target.context_length):
            mode += " plain attention"
        return mode

    def _plain_rows(self, weights: Weights, cells: int) -> int:
        """As `plain_attention_rows`; 0 where attention has to be fused.

        Only the fused kernel reads a quantised cache, and exact mode is tested with that alone.
        """
        fused = self.exact or self.kv_type != F16
        return 0 if fused else plain_attention_rows(weights, cells)


def load(
    path: Path,
    *,
    gpu_layers: int | None = None,
    threads: int = 0,
    context_length: int = 8192,
    exact: bool = False,
    probe_cache: Path | None = None,
    rows: int = 0,
    kv_type: str = F16,
    heads: bool = False,
    workers: str = "",
) -> LlamaModel:
    """Open a GGUF file.

    Args:
        gpu_layers: None for as many as fit (none in exact mode, which runs on the CPU).
        threads: 0 for one per physical core.
        context_length: tokens; less if the model was trained for less.
        exact: chains only, and every decode padded to a width at which logits are bitwise stable.
        probe_cache: file that lists the model files that passed the probe in a child process; None
            to skip the probe of a `path` known to be safe.
        rows: rows of the widest tree, if more than usual.
        kv_type: type of the KV cache, from `KV_TYPES`.
        heads: also run its multi-token-prediction heads, if it has any.
        workers: addresses of the workers that hold its layers, separated by commas; empty for none.

    Raises:
        ModelError: missing, damaged or hostile, or it does not run on this machine.
    """
    check_header(path)
    if exact and workers:
        raise ModelError("--exact needs one machine: leave out --rpc")
    version = lib.llama_version().decode()
    probe_problem = probe_once(path, probe_cache, version) if probe_cache else ""
    heads_problem = probe_heads(path, probe_cache, version) if probe_cache and heads else ""
    threads, heads = threads or default_threads(), heads and not heads_problem
    settings = TargetSettings(threads, context_length, exact, rows, kv_type, heads)
    gpu_layers = 0 if exact and gpu_layers is None else gpu_layers
    found = Workers(workers) if workers else None
    target = open_fitting(path, gpu_layers, settings.make_target, heads=heads, workers=found)
    target.heads_problem = heads_problem or target.heads_problem
    build = f"llama.cpp {version} t{threads} {settings.mode(target)}"
    weights, vocabulary = target.weights, LlamaVocabulary(target.weights)
    return LlamaModel(
        build=build,
        target=target,
        vocabulary=vocabulary,
        template=ChatTemplate(weights.metadata("tokenizer.chat_template"), vocabulary),
        layers=weights.layers,
        trained_context=weights.trained_length,
        threads=threads,
        gpu_layers=weights.gpu_layers,
        probe_problem=probe_problem,
    )


def open_fitting(
    path: Path,
    gpu_layers: int | None,
    make: Callable[[Weights], T],
    *,
    heads: bool = False,
    workers: Workers | None = None,
) -> T:
    """Open `path` with `gpu_layers` on the graphics card or on `workers`, and return `make` of it.

    llama.cpp spreads the layers over workers by the memory that is free there.
    With None, as many layers as fit go to a card that this build can use. llama.cpp does not tell
    beforehand what fits, so fewer and fewer are tried until everything does, including the context
    that `make` opens.

    Raises:
        ModelError: the file cannot be loaded or run, or this build cannot use a graphics card.
    """
    if workers is not None:
        layers = ALL_LAYERS if gpu_layers is None else gpu_layers
        return make(open_weights(path, layers, heads=heads, workers=workers))
    if not offloads():
        if gpu_layers:
            raise ModelError(
                "this build of llama.cpp has no GPU support: remove --gpu-layers, or see"
                " `specchat doctor` for the build that does"
            )
        return make(open_weights(path, 0, heads=heads))
    if gpu_layers is not None:
        return make(open_weights(path, gpu_layers, heads=heads))
    refusal = ModelError(f"{path} cannot be loaded")
    for layers, experts in _placements(path):
        try:
            return make(open_weights(path, layers, heads=heads, cpu_experts=experts))
        except ModelError as error:
            LOGGER.info("%d layers on the card without %d's experts: %s", layers, experts, error)
            refusal = error
    raise refusal


def _placements(path: Path) -> Iterator[tuple[int, int]]:
    """Numbers of layers on the card and of layers whose experts stay on the CPU, fastest first.

    All layers; all without the experts of more and more layers (most of the weights, of which a
    token needs few); as many layers as the card's free memory holds, then fewer and fewer; none.
    A try whose weights do not fit fails before they are read.
    """
    yield ALL_LAYERS, 0
    weights = Weights(path)
    layers, kept = weights.layers, weights.layers if weights.experts else 0
    layer_bytes = int(lib.llama_model_size(weights.handle)) / (layers + 1)
    del weights  # the tries need their memory
    for part in range(1, EXPERT_STEPS + 1) if kept else ():
        yield ALL_LAYERS, max(kept * part // EXPERT_STEPS, 1)
    step = max(layers // FITTING_STEPS, 1)
    # The free memory is unknown (0) if a card shares the processor's memory.
    fitting = int(free_gpu_memory() / layer_bytes) or layers
    yield from ((count, kept) for count in range(min(fitting, layers - step), 0, -step))
    yield 0, 0


def exact_limits(
    context: LlamaContext, limits: ContextLimits, chunk_size: PrefillChunkSize
) -> ContextLimits:
    """`limits` with the least width whose logits agree bitwise with those of wider passes.

    Raises:
        ModelError: there is none by which the cache can be rewound.
    """
    tuners = ThreadTuners(1, learning=False)
    room = min(limits.max_rows, limits.rollback_rows + 1)
    length = limits.context_length
    limits = replace(limits, chains_only=True, context_length=length + max(EXACT_WIDTHS))
    for least in EXACT_WIDTHS:
        if least > room:
            break
        widest = max(least, min(EXACT_ROWS, room))
        padded = replace(limits, padded_rows=least, max_rows=widest)
        target = LlamaTarget(context, padded, chunk_size, tuners, "")
        widest = _widest_agreeing(target, least)
        if not widest:
            continue
        padded = replace(padded, max_rows=widest)
        if _is_stable(LlamaTarget(context, padded, chunk_size, tuners, ""), widest):
            return replace(padded, context_length=length)
    raise ModelError(
        f"{context.weights.path} gives no bitwise stable logits here: run it without --exact"
    )


def _widest_agreeing(target: LlamaTarget, least: int) -> int:
    """The width up to which passes of `least` rows and more equal plain steps; 0 if none does."""
    tokens, agreeing = _random_tokens(target, target.max_rows), 0
    plain = _evaluate(target, tokens, 1)
    for width in range(least, target.max_rows + 1):
        target.rewind(0)
        if not np.array_equal(_evaluate(target, tokens[:width], width), plain[:width]):
            break
        agreeing = width
    target.rewind(0)
    return agreeing


def _is_stable(target: LlamaTarget, width: int) -> bool:
    """Whether the rows of chains equal plain steps bitwise, wherever they are in the batch."""
    start = CELL_PADDING - width // 2
    tokens = _random_tokens(target, start + width)
    rows: list[Floats] = []
    for step in (1, 3, width):
        list(target.prefill(tokens[:start]))
        rows.append(_evaluate(target, tokens[start:], min(step, width)))
    target.rewind(0)
    return all(np.array_equal(rows[0], others) for others in rows[1:])


def _random_tokens(target: LlamaTarget, count: int) -> list[int]:
    random = np.random.default_rng(EXACT_SEED)
    tokens: list[int] = random.integers(0, target.vocabulary_size, count).tolist()
    return tokens


def _evaluate(target: LlamaTarget, tokens: list[int], step: int) -> Floats:
    """Logits and hidden states after each of `tokens`, verified and committed `step` at a time."""
    outputs: list[Floats] = []
    for begin in range(0, len(tokens), step):
        part = tokens[begin : begin + step]
        rows = target.verify(chain(part[0], part[1:], 0))
        outputs.append(np.hstack([rows.logits, rows.hidden]))
        target.commit(range(len(part)))
    return np.vstack(outputs)

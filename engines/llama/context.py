"""llama.cpp's model weights, contexts and batches as Python objects.

Defines how they are opened and freed, and translates llama.cpp's failures into messages.
"""

from __future__ import annotations

import ctypes
import sys
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from llama_cpp import llama_cpp as lib

from datastores.errors import ModelError
from engines.llama import native
from engines.llama.batch import MICRO_BATCH, Batch, evaluate
from engines.llama.checkpoint import Checkpoint
from engines.llama.gguf import ARCHITECTURE, DFLASH, EAGLE, F16, KV_TYPES, Q8_0, read_metadata
from engines.llama.recurrent_state import snapshot_count, state_bytes
from engines.llama.workers import Workers

MAX_ROWS_CPU, MAX_ROWS_GPU = 32, 64
"""Rows of the widest trees. A CPU's cost grows with every row; a GPU's stays flat for longer."""
PLAIN_MICRO_BATCH = 128
"""The same for plain attention, whose scores take memory for each row. Prefill is as fast as with
fused attention's 512 rows."""
MIN_PLAIN_ROWS, MAX_SCORE_BYTES = 32, 256 * 2**20
"""Minimum number of rows for plain attention, and maximum memory for its scores."""
MIN_PLAIN_WIDTH = 512
"""Model width below which attention is fused. Plain attention computes at least 256 cells, which
after 30 tokens costs a pass 20 % at width 256, 5 % at width 2,048 and, in SmolLM2-135M with its 30
layers of width 576, 14 %."""
EXPERTS = r"blk\.({layers})\.ffn_(up|down|gate|gate_up)_(ch|)exps"
"""Names of the expert tensors of some `layers`, as in llama.cpp's --n-cpu-moe."""


@dataclass(frozen=True, slots=True)
class ContextLimits:
    """What a context supports.

    Attributes:
        max_rows: rows of the widest tree, the root included.
        chains_only: whether branching is impossible (exact mode, recurrent memory).
        snapshots: past states that a recurrent memory keeps; None if any cells can be dropped.
        hidden_states: whether passes output hidden states along with logits.
        padded_rows: minimum width of every decode in exact mode; 0 otherwise.
    """

    context_length: int
    max_rows: int
    chains_only: bool
    snapshots: int | None = None
    hidden_states: bool = True
    padded_rows: int = 0

    @property
    def rollback_rows(self) -> int:
        """See `Target.rollback_rows`."""
        if self.snapshots is None:
            return self.max_rows
        return min(self.snapshots, self.max_rows - 1)


class Weights:
    """An open GGUF file. Freed with the last reference, after every context over it.

    Attributes:
        placement: which weights are on a graphics card, as text.

    Args:
        gpu_layers: number of layers on a graphics card; more than the model has puts all there.
        cpu_experts: the experts of this many first layers stay on the CPU.
        workers: hold the layers instead of graphics cards.
        vocabulary_only: read only the metadata and the tokenizer.
        heads: also read the tensors of its multi-token-prediction heads, if it has any.
        companion: the file has only the heads of another model, and writes nothing by itself.

    Raises:
        ModelError: llama.cpp cannot load the file, or specchat cannot run such a model.
    """

    def __init__(
        self,
        path: Path,
        gpu_layers: int = 0,
        *,
        cpu_experts: int = 0,
        workers: Workers | None = None,
        vocabulary_only: bool = False,
        heads: bool = False,
        companion: bool = False,
    ) -> None:
        parameters = lib.llama_model_default_params()
        parameters.n_gpu_layers = gpu_layers
        if cpu_experts:
            numbers = "|".join(map(str, range(cpu_experts)))
            overrides = native.keep_on_cpu(EXPERTS.format(layers=numbers))
            parameters.tensor_buft_overrides = ctypes.addressof(overrides)
        if workers is not None:
            parameters.devices = ctypes.addressof(workers.devices)
        parameters.vocab_only = vocabulary_only
        parameters.load_mtp = heads = heads or companion
        native.clear_errors()
        self.handle: Any = lib.llama_model_load_from_file(str(path).encode(), parameters)
        if workers is not None:
            workers.require()
        if not self.handle:
            raise ModelError(
                f"{path} cannot be loaded ({native.first_error() or 'llama.cpp gives no reason'}):"
                " choose another file or download it again"
            )
        free_with(self, lib.llama_model_free, self.handle)
        self.vocabulary: Any = lib.llama_model_get_vocab(self.handle)
        self.path = path
        self.heads = heads
        self.workers = workers
        self.gpu_layers = min(gpu_layers, self.layers + 1)
        self.placement = f"g{self.gpu_layers}" + (f" e{cpu_experts}" if cpu_experts else "")
        if workers is not None:
            self.placement += f" on {workers.names}"
        self._check_kind(companion)

    def _check_kind(self, companion: bool) -> None:
        if lib.llama_vocab_type(self.vocabulary) == lib.LLAMA_VOCAB_TYPE_NONE:
            raise ModelError(f"{self.path} holds no tokenizer: choose another file")
        if companion:
            return
        if (architecture := self.metadata(ARCHITECTURE)) in (EAGLE, DFLASH):
            raise ModelError(
                f"{self.path} drafts for another model: put it into that model's folder, with"
                f" {architecture} in its name"
            )
        if lib.llama_model_has_encoder(self.handle) or lib.llama_model_is_diffusion(self.handle):
            raise ModelError(
                f"{self.path} does not write text from left to right: choose another model"
            )

    @property
    def layers(self) -> int:
        """Transformer blocks."""
        return int(lib.llama_model_n_layer(self.handle))

    @property
    def experts(self) -> int:
        """Number of experts per layer; 0 if the model is no mixture of experts."""
        return int(self.metadata(f"{self.metadata(ARCHITECTURE)}.expert_count") or 0)

    @property
    def trained_length(self) -> int:
        """Context length the model was trained for."""
        return int(lib.llama_model_n_ctx_train(self.handle))

    @property
    def on_device(self) -> bool:
        """Whether layers are on a GPU, where decoding returns before the work is done."""
        return self.gpu_layers > 0

    @property
    def parameters(self) -> int:
        """Number of weights."""
        return int(lib.llama_model_n_params(self.handle))

    @property
    def vocabulary_size(self) -> int:
        """Number of token ids, the columns of the logits."""
        return int(lib.llama_vocab_n_tokens(self.vocabulary))

    @property
    def recurrent(self) -> bool:
        """Whether the memory is a running state, at least in part; see
        `engines.llama.checkpoint`."""
        return bool(
            lib.llama_model_is_recurrent(self.handle) or lib.llama_model_is_hybrid(self.handle)
        )

    @property
    def snapshots(self) -> int:
        """Number of past states that a context should keep; 0 if it is not recurrent."""
        if not self.recurrent:
            return 0
        state = state_bytes(read_metadata(self.path))
        return snapshot_count(state, int(lib.llama_model_size(self.handle)))

    @property
    def width(self) -> int:
        """Length of a hidden state."""
        return int(lib.llama_model_n_embd_out(self.handle))

    def metadata(self, key: str) -> str:
        """A metadata value as text; empty if the file has none."""
        capacity = 1 << 10
        while True:
            buffer = ctypes.create_string_buffer(capacity)
            count = lib.llama_model_meta_val_str(self.handle, key.encode(), buffer, capacity)
            if count < capacity:
                return buffer.value.decode("utf-8", "replace") if count >= 0 else ""
            capacity = count + 1


def plain_attention_rows(weights: Weights, cells: int) -> int:
    """Rows to compute at once with plain attention over `cells` cells; 0 for fused attention.

    llama.cpp's fused kernel (flash attention) saves memory, but on a CPU it reads the cache once
    per row. With two matrix products instead, passes of 1, 4 and 8 rows took .92, .91 and .90 of
    the time after 250 tokens, and .83, .59 and .60 after 700 (377 M weights, f16, width 2,048, two
    threads). Passes of 1, 4 and 16 rows of SmolLM2-135M, Q4_1, took 1.06, 1.05 and 1.04 of it
    after 200 tokens, 1.03, .90 and .80 after 700, and 1.01, .80 and .65 after 1,700. GPUs have
    better kernels.
    """
    if weights.on_device or weights.width < MIN_PLAIN_WIDTH:
        return 0
    row_bytes = 4 * cells * int(lib.llama_model_n_head(weights.handle))
    rows = PLAIN_MICRO_BATCH
    while rows * row_bytes > MAX_SCORE_BYTES:
        rows //= 2
    return rows if rows >= MIN_PLAIN_ROWS else 0


class LlamaContext:
    """A llama.cpp context: KV cache and compute buffers. Keeps its weights alive.

    Args:
        cells: size of the KV cache.
        rows: maximum number of rows that a decode may output, and number of sequences for the
            branches of a tree.
        plain_rows: rows to compute at once with plain attention; 0 for fused attention.
        kv_type: type of the KV cache, from `KV_TYPES`; only fused attention supports others than
            f16.

    Attributes:
        has_scratch: whether there is one more sequence, for texts other than the cached one.
        ggml_type: ggml's number of the KV cache's type.
        layout: all that the content of the KV cache depends on besides the weights.

    Raises:
        ModelError: it does not fit into memory, or the model does not generate text.
    """

    def __init__(
        self,
        weights: Weights,
        cells: int,
        *,
        rows: int,
        threads: int,
        plain_rows: int = 0,
        kv_type: str = F16,
    ) -> None:
        native.clear_errors()
        self.rows, self.plain_rows = rows, plain_rows
        self.has_scratch = not weights.recurrent
        sequences = rows + 1 if self.has_scratch else 1
        parameters = context_parameters(cells, rows, sequences, threads, plain_rows)
        parameters.n_rs_seq = weights.snapshots
        parameters.type_k = parameters.type_v = self.ggml_type = KV_TYPES[kv_type][0]
        self.handle: Any = lib.llama_init_from_model(weights.handle, parameters)
        if not self.handle:
            reason = native.first_error()
            raise ModelError(
                f"{weights.path} cannot be given a context of {cells} tokens"
                f" ({reason or 'out of memory?'}): {_way_out(reason, kv_type)}"
            )
        free_with(self, lib.llama_free, self.handle, weights)
        self.weights = weights
        types = f"k{parameters.type_k} v{parameters.type_v} a{parameters.flash_attn_type}"
        version = lib.llama_version().decode()
        self.layout = f"llama.cpp {version} c{cells} {types} {weights.placement}"
        self.memory: Any = lib.llama_get_memory(self.handle)
        if not self.memory:
            raise ModelError(f"{weights.path} does not generate text: choose another model")


def _way_out(reason: str, kv_type: str) -> str:
    """What to do if llama.cpp made no context, for `reason` (empty if it gave none)."""
    if kv_type == F16:
        return f'lower the context length, or set kv_type = "{Q8_0}"'
    # Out of memory, it names what it could not allocate; else the model allows no such cache.
    out_of_memory = not reason or "alloc" in reason
    return "lower the context length" if out_of_memory else f'set kv_type = "{F16}"'


def context_parameters(cells: int, rows: int, sequences: int, threads: int, plain_rows: int) -> Any:
    """Parameters that all contexts have in common; for the arguments see `LlamaContext`."""
    parameters = lib.llama_context_default_params()
    parameters.n_ctx = cells
    parameters.n_batch = parameters.n_ubatch = min(MICRO_BATCH, cells)
    if plain_rows:
        parameters.n_ubatch = min(plain_rows, cells)
        parameters.flash_attn_type = lib.LLAMA_FLASH_ATTN_TYPE_DISABLED
    parameters.n_seq_max = sequences
    # llama.cpp asserts that every sequence can have an output.
    parameters.n_outputs_max = max(rows, sequences)
    parameters.n_threads = parameters.n_threads_batch = threads
    parameters.pooling_type = lib.LLAMA_POOLING_TYPE_NONE
    parameters.embeddings = True
    parameters.kv_unified = True
    parameters.swa_full = True
    parameters.no_perf = True
    return parameters


def open_context(weights: Weights, parameters: Any, owner: object = None) -> Any:
    """A bare context over `weights`, which is freed with `owner`, or else with them.

    Raises:
        ModelError: llama.cpp cannot open it.
    """
    native.clear_errors()
    handle = lib.llama_init_from_model(weights.handle, parameters)
    if not handle:
        raise ModelError(f"{weights.path} cannot be opened: {native.first_error()}")
    if owner is None:
        free_with(weights, lib.llama_free, handle)
    else:
        free_with(owner, lib.llama_free, handle, weights)
    return handle


def free_with(owner: object, free: Callable[[Any], object], handle: Any, *needed: object) -> None:
    """Free `handle` with `owner`, and before any of the `needed`.

    Freeing a context reads its weights, and the garbage collector would free the objects of a cycle
    in the order of their creation. At exit nothing is freed, since a thread may still be decoding;
    except on macOS, where Metal aborts a process that exits without freeing.
    """
    finalizer = weakref.finalize(owner, _free, free, handle, needed)
    finalizer.atexit = sys.platform == "darwin"


def _free(free: Callable[[Any], object], handle: Any, _needed: tuple[object, ...]) -> None:
    free(handle)


def measure_limits(context: LlamaContext, context_length: int, rows: int) -> ContextLimits:
    """What this context supports, for trees of up to `rows` rows.

    Found by trial, since no metadata says it for every architecture. Evaluates two tokens, or four
    of a recurrent model, which also pages in the weights and warms up the threads.

    Raises:
        ModelError: llama.cpp cannot evaluate them.
    """
    batch = Batch(2)
    batch.position[1] = 1
    batch.struct.n_tokens = 2
    evaluate(context.handle, batch, context.weights.path)
    accepted = bool(native.seq_rm(context.memory, 0, 1, native.TO_END))
    dropped = accepted and native.seq_pos_max(context.memory, 0) == 0
    native.seq_rm(context.memory, 0, 0, native.TO_END)
    if not context.weights.recurrent:
        return ContextLimits(context_length, rows if dropped else 1, chains_only=False)
    snapshots = int(lib.llama_n_rs_seq(context.handle)) if dropped else 0
    hidden_states, restores = _try_checkpoint(context)
    max_rows = rows if restores else 1 + snapshots
    return ContextLimits(context_length, max_rows, True, snapshots, hidden_states)


def _try_checkpoint(context: LlamaContext) -> tuple[bool, bool]:
    """Whether passes output logits and hidden states together (LFM2 does not), and whether a
    checkpoint can be restored. The cache is empty before and afterwards.

    Raises:
        ModelError: llama.cpp cannot evaluate a token.
    """
    checkpoint, batch = Checkpoint(context.handle, context.memory), Batch(1)
    batch.struct.n_tokens = 1
    first_logit = ctypes.c_float.from_address(native.get_logits(context.handle))
    first_logit.value = np.nan
    evaluate(context.handle, batch, context.weights.path)
    hidden_states = not np.isnan(first_logit.value)
    try:
        checkpoint.save(1)
    except ModelError as error:
        native.LOGGER.info("%s", error)
    batch.position[0] = 1
    evaluate(context.handle, batch, context.weights.path)
    restores = checkpoint.restore()
    native.seq_rm(context.memory, 0, 0, native.TO_END)
    return hidden_states, restores

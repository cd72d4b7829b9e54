"""A GGUF file's weights and contexts over them, as native handles that free themselves.

Owns how files and contexts are opened and how llama.cpp's refusals are worded. Refuses to know what
is computed with them.

What a freshly opened context can do, found by trying.

Recurrent and hybrid memories refuse to drop a part of their tail beyond the states they keep, and
no metadata says so for every architecture.

How many layers go to a graphics card: all, where the build can and the card has room.

llama.cpp does not tell beforehand what fits, so fewer layers are tried until everything does.
"""

from __future__ import annotations

import ctypes
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from llama_cpp import llama_cpp as lib

from datastores.errors import ModelError
from engines.llama import native
from engines.llama.native import END, LOGGER

ROWS, ROWS_ON_DEVICE = 32, 64
"""Widest trees. A processor's cost grows with every row; a graphics card stays flat for longer."""


@dataclass(frozen=True, slots=True)
class ContextLimits:
    """What a context can do.

    Attributes:
        context_length: most tokens the cache may hold.
        max_rows: widest tree, the root included.
        chains_only: no branching (exact mode, recurrent memory).
        padded_rows: in exact mode the width of every decode; else 0.
    """

    context_length: int
    max_rows: int
    chains_only: bool
    padded_rows: int = 0


def widest_tree(on_device: bool) -> int:
    """Rows to build a context for."""
    return ROWS_ON_DEVICE if on_device else ROWS


def usable_rows(context: LlamaContext, rows: int) -> int:
    """How many rows of a tree can be taken back again; 1 where drafting is impossible.

    Evaluates two tokens, which also pages in the weights and warms up the threads.

    Raises:
        ModelError: not even that can be computed.
    """
    batch = Batch(2)
    batch.position[1] = 1
    batch.struct.n_tokens = 2
    if native.decode(context.handle, batch.struct):
        raise ModelError(f"{context.weights.path} cannot be run: {native.first_error()}")
    steps_back = bool(native.seq_rm(context.memory, 0, 1, END))
    stepped = native.seq_pos_max(context.memory, 0) == 0
    native.seq_rm(context.memory, 0, 0, END)
    if not (steps_back and stepped):
        return 1
    if context.weights.keeps_states:
        return min(rows, 1 + int(lib.llama_n_rs_seq(context.handle)))
    return rows


Made = TypeVar("Made")

QUARTERS = (3, 2, 1, 0)


def open_fitting(path: Path, gpu_layers: int | None, make: Callable[[Weights], Made]) -> Made:
    """Open `path` with `gpu_layers` on the card (None: as many as fit) and `make` something of it.

    `make` builds the context, whose KV cache has to fit as well.

    Raises:
        ModelError: the file cannot be loaded or run, or this build has no use for a card.
    """
    if not lib.llama_supports_gpu_offload():
        if gpu_layers:
            raise ModelError(
                "this build of llama.cpp uses no graphics card: leave --gpu-layers out, or see"
                " `specchat doctor` for the build that does"
            )
        return make(Weights(path, 0))
    if gpu_layers is not None:
        return make(Weights(path, gpu_layers))
    return _most_layers(path, make)


def _most_layers(path: Path, make: Callable[[Weights], Made]) -> Made:
    refusal = ModelError(f"{path} cannot be loaded")
    for layers in _descending(path):
        try:
            return make(Weights(path, layers))
        except ModelError as error:
            LOGGER.info("with %d layers on the graphics card: %s", layers, error)
            refusal = error
    raise refusal


def _descending(path: Path) -> Iterator[int]:
    yield ALL_LAYERS
    layers = Weights(path, 0).layers
    yield from (layers * quarters // 4 for quarters in QUARTERS)


MICRO_BATCH = 512
"""Most rows llama.cpp computes at once: its own default."""
ALL_LAYERS = 1 << 20
"""More than any model has."""
SNAPSHOTS = 4
"""Past states a recurrent memory keeps for stepping back; each costs a whole state."""


def _free_with(owner: object, free: Callable[[Any], None], handle: Any) -> None:
    """Free `handle` when `owner` goes.

    At exit the system does it, as a thread may still be decoding then; but Metal, on macOS, aborts
    a process that leaves without.
    """
    weakref.finalize(owner, free, handle).atexit = sys.platform == "darwin"


class Weights:
    """An open model. Freed with the last reference, after every context over it."""

    def __init__(self, path: Path, gpu_layers: int) -> None:
        parameters = lib.llama_model_default_params()
        parameters.n_gpu_layers = gpu_layers
        native.forget_errors()
        self.handle: Any = lib.llama_model_load_from_file(str(path).encode(), parameters)
        if not self.handle:
            raise ModelError(
                f"{path} cannot be loaded ({native.first_error() or 'llama.cpp gives no reason'}):"
                " choose another file or download it again"
            )
        _free_with(self, lib.llama_model_free, self.handle)
        self.vocabulary: Any = lib.llama_model_get_vocab(self.handle)
        self.path = path
        self.gpu_layers = min(gpu_layers, self.layers + 1)
        self._check_kind()

    def _check_kind(self) -> None:
        if lib.llama_vocab_type(self.vocabulary) == lib.LLAMA_VOCAB_TYPE_NONE:
            raise ModelError(f"{self.path} holds no tokenizer: choose another file")
        if lib.llama_model_has_encoder(self.handle) or lib.llama_model_is_diffusion(self.handle):
            raise ModelError(
                f"{self.path} does not write text from left to right: choose another model"
            )

    @property
    def layers(self) -> int:
        """Transformer blocks."""
        return int(lib.llama_model_n_layer(self.handle))

    @property
    def trained_length(self) -> int:
        """Context length the model was trained for."""
        return int(lib.llama_model_n_ctx_train(self.handle))

    @property
    def on_device(self) -> bool:
        """Whether layers lie on a GPU, so that decoding returns before the work is done."""
        return self.gpu_layers > 0

    @property
    def parameters(self) -> int:
        """Number of weights."""
        return int(lib.llama_model_n_params(self.handle))

    @property
    def vocabulary_size(self) -> int:
        """Number of token ids: columns of the logits."""
        return int(lib.llama_vocab_n_tokens(self.vocabulary))

    @property
    def keeps_states(self) -> bool:
        """Whether the memory is, wholly or in part, a running state (recurrent, hybrid)."""
        return bool(
            lib.llama_model_is_recurrent(self.handle) or lib.llama_model_is_hybrid(self.handle)
        )

    @property
    def width(self) -> int:
        """Length of a hidden state."""
        return int(lib.llama_model_n_embd_out(self.handle))

    def metadata(self, key: str) -> str:
        """A metadata value as text; empty where the file has none."""
        room = 1 << 10
        while True:
            buffer = ctypes.create_string_buffer(room)
            count = lib.llama_model_meta_val_str(self.handle, key.encode(), buffer, room)
            if count < room:
                return buffer.value.decode("utf-8", "replace") if count >= 0 else ""
            room = count + 1


class LlamaContext:
    """A llama.cpp context: KV cache and compute buffers. Keeps its weights alive.

    Attributes:
        rows: most rows a decode may output, and sequences for the branches of trees.
        spare: whether there is one sequence more.
    """

    def __init__(self, weights: Weights, cells: int, *, rows: int, threads: int) -> None:
        """Open a context of `cells` KV cells whose decodes output at most `rows` rows.

        Raises:
            ModelError: it does not fit into memory, or the model cannot generate.
        """
        native.forget_errors()
        self.rows = rows
        self.spare = not weights.keeps_states
        sequences = rows + 1 if self.spare else 1
        self.handle: Any = lib.llama_init_from_model(
            weights.handle, _context_parameters(cells, rows, sequences, threads)
        )
        if not self.handle:
            raise ModelError(
                f"{weights.path} cannot be given a context of {cells} tokens"
                f" ({native.first_error() or 'out of memory?'}): lower the context length"
            )
        _free_with(self, lib.llama_free, self.handle)
        self.weights = weights
        self.memory: Any = lib.llama_get_memory(self.handle)
        if not self.memory:
            raise ModelError(f"{weights.path} does not generate text: choose another model")


def _context_parameters(cells: int, rows: int, sequences: int, threads: int) -> Any:
    parameters = lib.llama_context_default_params()
    parameters.n_ctx = cells
    parameters.n_batch = parameters.n_ubatch = min(MICRO_BATCH, cells)
    parameters.n_seq_max = sequences
    # llama.cpp asserts that every sequence can have an output.
    parameters.n_outputs_max = max(rows, sequences)
    parameters.n_rs_seq = SNAPSHOTS
    parameters.n_threads = parameters.n_threads_batch = threads
    parameters.pooling_type = lib.LLAMA_POOLING_TYPE_NONE
    parameters.embeddings = True
    parameters.kv_unified = True
    parameters.swa_full = True
    parameters.no_perf = True
    return parameters


class Batch:
    """Up to `capacity` rows. All rows begin in sequence 0; `logits` decides which rows are output.

    Attributes:
        token, position: int32 [capacity].
        logits: int8 [capacity].
        struct: the C struct over the same memory; `struct.n_tokens` is the next width.
    """

    def __init__(self, capacity: int, sequences: int = 1) -> None:
        self.token = np.zeros(capacity, np.int32)
        self.position = np.zeros(capacity, np.int32)
        self.logits = np.ones(capacity, np.int8)
        self._counts = np.ones(capacity, np.int32)
        self._ids = np.zeros((capacity, sequences), np.int32)
        row_bytes = self._ids.strides[0]
        self._pointers = self._ids.ctypes.data + row_bytes * np.arange(capacity, dtype=np.uint64)
        self.struct = lib.llama_batch(
            n_tokens=0,
            token=_pointer(self.token, ctypes.c_int32),
            pos=_pointer(self.position, ctypes.c_int32),
            n_seq_id=_pointer(self._counts, ctypes.c_int32),
            seq_id=_pointer(self._pointers, ctypes.POINTER(ctypes.c_int32)),
            logits=_pointer(self.logits, ctypes.c_int8),
        )

    def place(self, row: int, sequences: Sequence[int]) -> None:
        """Put `row` into several sequences."""
        self._counts[row] = len(sequences)
        self._ids[row, : len(sequences)] = sequences


def _pointer(array: np.ndarray, kind: type) -> object:
    return ctypes.cast(array.ctypes.data, ctypes.POINTER(kind))

"""A GGUF file's weights and contexts over them, as native handles that free themselves.

Owns how files and contexts are opened and how llama.cpp's refusals are worded. Refuses to know what
is computed with them.
"""

from __future__ import annotations

import ctypes
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from llama_cpp import llama_cpp as lib

from datastores.errors import ModelError
from engines.llama import native

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


class Context:
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

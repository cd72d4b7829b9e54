"""States in the middle of a model: the residual stream after some layers, at the ends of texts.

llama.cpp outputs the last hidden state, and for some architectures the inputs of layers
(`engines.llama.target_states`). The callback of its scheduler is asked about every tensor by its
name: here it copies the outputs of the layers asked for, and ends the pass after the last of them.
Up to layer 18 of 28, a pass takes two thirds of its time.

The context is its own, so the target's KV cache stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from llama_cpp import llama_cpp as lib

from datastores.errors import ModelError
from datastores.tokens import common_prefix
from engines.llama import native
from engines.llama.batch import MICRO_BATCH, Batch, evaluate
from engines.llama.context import Weights, context_parameters, open_context
from engines.target import Floats, Stop, StoppedError, require_ends_fit

CELLS = 2048
"""Size of the KV cache: for Qwen2.5 1.5B 57 MB, for a model of 8 B 256 MB."""
MAX_ENDS = 16
"""Texts that are evaluated beside each other."""
OUTPUT = "l_out-"
"""llama.cpp's name of a layer's output, before its number, in nearly all architectures."""


@dataclass(frozen=True, slots=True)
class _Row:
    """A token to evaluate, and whether its states are wanted."""

    token: int
    position: int
    sequence: int
    wanted: bool = False


class _Taps:
    """Copies the outputs of layers while a pass runs, and ends the pass.

    Attributes:
        states: of the rows wanted, float32 [wanted, layers, width].
        seen: number of layers whose outputs were copied.
        stopped: whether the states are wanted no longer.
    """

    def __init__(self, layers: Sequence[int], width: int) -> None:
        self._places = {f"{OUTPUT}{layer}".encode(): place for place, layer in enumerate(layers)}
        self._width = width
        self.begin([], lambda: False)

    def begin(self, rows: Sequence[_Row], stop: Stop) -> None:
        """Prepare for a pass over `rows`."""
        self._rows, self._stop = len(rows), stop
        self._wanted = [number for number, row in enumerate(rows) if row.wanted]
        shape = (len(self._wanted), len(self._places), self._width)
        self.states: Floats = np.zeros(shape, np.float32)
        self.seen, self.stopped = 0, False

    @property
    def complete(self) -> bool:
        """Whether all layers were seen."""
        return self.seen == len(self._places)

    def on_tensor(self, tensor: Any, asks: bool, _: object) -> bool:
        """Whether to be given `tensor` once it is computed (if `asks`), else whether to go on."""
        name = native.tensor_name(tensor)
        if asks:
            return bool(name.startswith(OUTPUT.encode()))
        place, row_bytes = self._places.get(name), self.states.strides[1]
        # The last layer computes only rows with logits; reading others would abort the process.
        if place is not None and native.tensor_bytes(tensor) >= self._rows * row_bytes:
            for number, row in enumerate(self._wanted):
                to = self.states[number, place].ctypes.data
                native.copy_tensor(tensor, to, row * row_bytes, row_bytes)
            self.seen += 1
        # After the end of a pass on one device, the others are still asked about their tensors.
        self.stopped = self.stopped or self._stop()
        return not self.stopped and not self.complete


class LlamaLayerStates:
    """Implements `engines.target.LayerStates`. Thread-safe; the calls take turns.

    Args:
        layers: their numbers, from 0, in ascending order.
        threads: of each pass.
    """

    def __init__(self, weights: Weights, layers: Sequence[int], threads: int) -> None:
        """Raises:
        ModelError: the context does not fit into memory, or the layers of such a model cannot
            be read.
        """
        if weights.recurrent:
            raise _unreadable(weights.path, "its memory cannot be rewound")
        if weights.workers is not None:
            raise _unreadable(weights.path, "they are on other machines")
        self.layers = tuple(layers)
        self.width = int(lib.llama_model_n_embd(weights.handle))
        self.max_tokens = min(CELLS, weights.trained_length)
        self._weights = weights
        self._lock = Lock()
        self._batch = Batch(MICRO_BATCH)
        self._batch.logits[:] = 0
        self._beginning: Sequence[int] = ()
        self._taps = _Taps(layers, self.width)
        # Referenced here because llama.cpp stores only the bare pointer.
        self._callback = lib.ggml_backend_sched_eval_callback(self._taps.on_tensor)
        parameters = context_parameters(CELLS, 1, MAX_ENDS + 1, threads, plain_rows=0)
        parameters.embeddings = False
        parameters.cb_eval = self._callback
        self._context: Any = open_context(weights, parameters, owner=self)
        self._memory: Any = lib.llama_get_memory(self._context)
        self.read((), [[0]])

    def read(
        self, beginning: Sequence[int], ends: Sequence[Sequence[int]], stop: Stop = lambda: False
    ) -> Floats:
        """See `engines.target.LayerStates.read`."""
        require_ends_fit(self, beginning, ends)
        with self._lock:
            try:
                self._begin(beginning, stop)
                groups = list(self._groups(ends))
                found = [self._read_beside_each_other(group, stop) for group in groups]
            except BaseException:
                native.seq_rm(self._memory, native.ALL, 0, native.TO_END)
                self._beginning = ()
                raise
        return np.concatenate(found) if found else self._no_states()

    def _begin(self, beginning: Sequence[int], stop: Stop) -> None:
        """Hold `beginning` in sequence 0."""
        kept = common_prefix(self._beginning, beginning)
        native.seq_rm(self._memory, 0, kept, native.TO_END)
        self._beginning = beginning[:kept]
        rows = [_Row(token, place, 0) for place, token in enumerate(beginning)]
        self._evaluate(rows[kept:], stop)
        self._beginning = tuple(beginning)

    def _groups(self, ends: Sequence[Sequence[int]]) -> Iterator[Sequence[Sequence[int]]]:
        """`ends`, in order, as many at a time as fit."""
        group: list[Sequence[int]] = []
        room = self.max_tokens - len(self._beginning)
        for end in ends:
            if group and (len(group) == MAX_ENDS or sum(map(len, group)) + len(end) > room):
                yield group
                group = []
            group.append(end)
        if group:
            yield group

    def _read_beside_each_other(self, ends: Sequence[Sequence[int]], stop: Stop) -> Floats:
        """The states at the last tokens of `ends`, each in a sequence of its own."""
        rows, start = [], len(self._beginning)
        for sequence, end in enumerate(ends, 1):
            native.seq_cp(self._memory, 0, sequence, 0, native.TO_END)
            for place, token in enumerate(end, 1):
                rows.append(_Row(token, start + place - 1, sequence, wanted=place == len(end)))
        states = self._evaluate(rows, stop)
        for sequence in range(1, len(ends) + 1):
            native.seq_rm(self._memory, sequence, 0, native.TO_END)
        return states

    def _evaluate(self, rows: Sequence[_Row], stop: Stop) -> Floats:
        """Evaluate `rows`; returns the states of those wanted, float32 [wanted, layers, width]."""
        found = [self._no_states()]
        for start in range(0, len(rows), MICRO_BATCH):
            found.append(self._evaluate_at_once(rows[start : start + MICRO_BATCH], stop))
        return np.concatenate(found)

    def _evaluate_at_once(self, rows: Sequence[_Row], stop: Stop) -> Floats:
        for number, row in enumerate(rows):
            self._batch.token[number], self._batch.position[number] = row.token, row.position
            self._batch.place(number, (row.sequence,))
        self._batch.struct.n_tokens = len(rows)
        self._taps.begin(rows, stop)
        evaluate(self._context, self._batch, self._weights.path)
        if self._taps.stopped:
            raise StoppedError
        if not self._taps.complete:
            raise _unreadable(self._weights.path, "llama.cpp does not output them")
        return self._taps.states

    def _no_states(self) -> Floats:
        return np.empty((0, len(self.layers), self.width), np.float32)


def _unreadable(path: Path, reason: str) -> ModelError:
    return ModelError(f"the layers of {path} cannot be read: {reason}")

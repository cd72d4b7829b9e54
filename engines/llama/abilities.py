"""What a freshly opened context can do, found by trying.

Recurrent and hybrid memories refuse to drop a part of their tail beyond the states they keep, and
no metadata says so for every architecture.
"""

from __future__ import annotations

from dataclasses import dataclass

from llama_cpp import llama_cpp as lib

from datastores.errors import ModelError
from engines.llama import native
from engines.llama.batch import Batch
from engines.llama.branches import END
from engines.llama.weights import Context

ROWS, ROWS_ON_DEVICE = 32, 64
"""Widest trees. A processor's cost grows with every row; a graphics card stays flat for longer."""


@dataclass(frozen=True, slots=True)
class Shape:
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


def usable_rows(context: Context, rows: int) -> int:
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

"""The second target: GGUF files and safetensors folders through transformers and torch.

Owns a model on one device and its cache; verifies a tree in one forward pass by a four-dimensional
mask (a row sees its ancestors only) and explicit positions. Refuses to know text, chats and which
drafts are worth verifying.

A key-value cache for transformers models that can rewind and keep one branch of a tree.

Owns one preallocated buffer per layer; growing is a write, rewinding an assignment, committing a
gather of a few cells. transformers' own dynamic cache copies all of itself at every step, and its
sliding layers forget what a rewind needs. Refuses to know about tokens, masks and positions.

Who sees whom: additive attention masks and positions for trees, as transformers wants them.

Owns the geometry of a tree behind a cache, with full and sliding-window attention. Refuses to know
about weights and caches' contents.
"""

from __future__ import annotations

import contextlib
import io
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from safetensors import SafetensorError
from transformers.cache_utils import Cache, CacheLayerMixin

from datastores.errors import ModelError
from datastores.tokens import common_prefix
from engines.draft_tree import DraftTree
from engines.fingerprint import fingerprint
from engines.target import Floats, ForwardOutput, require_prompt_fits, require_tree_fits


class BufferLayer(CacheLayerMixin):
    """Keys and values of one layer, [1, heads, capacity, head width], filled up to `length`."""

    def __init__(self, capacity: int) -> None:
        CacheLayerMixin.__init__(self)
        self._capacity = capacity
        self._buffers: tuple[torch.Tensor, torch.Tensor] = (torch.empty(0), torch.empty(0))
        self.length = 0

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Allocate the buffers in the shape, type and place of the first states to come."""
        keys, values = (
            states.new_empty((*states.shape[:2], self._capacity, states.shape[3]))
            for states in (key_states, value_states)
        )
        self._buffers = (keys, values)
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: object, **__: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append; views of all that stands in the cache."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        keys, values = self._buffers
        end = self.length + key_states.shape[2]
        keys[:, :, self.length : end] = key_states
        values[:, :, self.length : end] = value_states
        self.length = end
        return keys[:, :, :end], values[:, :, :end]

    def keep(self, start: int, rows: Sequence[int]) -> None:
        """Of the cells from `start` on, keep those at `rows` (offsets from `start`), in order."""
        if not self.is_initialized:
            return
        cells = [start + row for row in rows]
        for buffer in self._buffers:
            buffer[:, :, start : start + len(cells)] = buffer[:, :, cells]
        self.length = start + len(cells)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.length + query_length, 0

    def get_seq_length(self) -> int:
        return self.length

    def get_max_length(self) -> int:
        return self._capacity


class RewindableCache(Cache):
    """One `BufferLayer` for each layer of a model.

    Args:
        layers: layers of the model.
        capacity: cells: tokens and tree rows that stand in the cache at the same time.
    """

    def __init__(self, layers: int, capacity: int) -> None:
        self._buffers = [BufferLayer(capacity) for _ in range(layers)]
        super().__init__(layers=list(self._buffers))

    def rewind(self, length: int) -> None:
        """Forget every cell from `length` on."""
        for layer in self._buffers:
            layer.length = min(layer.length, length)

    def keep(self, start: int, path: Sequence[int]) -> None:
        """Of the tree that was written from cell `start` on, keep the rows of `path`, in order."""
        if all(row == place for place, row in enumerate(path)):
            self.rewind(start + len(path))
            return
        with torch.inference_mode():  # the buffers were born in it
            for layer in self._buffers:
                layer.keep(start, path)


FULL = "full_attention"
SLIDING = "sliding_attention"

Mask = torch.Tensor | dict[str, torch.Tensor]
Attention = Callable[[DraftTree, int], tuple[torch.Tensor, Mask]]
"""(tree, tokens before it) → positions [1, rows] and masks [1, 1, rows, tokens + rows]."""


def attention_of(config: Any, device: torch.device, dtype: torch.dtype) -> Attention:
    """What maps a tree to positions and masks for the model of `config`.

    Models that mix full and sliding layers take a mask for each kind, by name; others take one.

    Raises:
        ModelError: some layer keeps a running state, which cannot be rewound.
    """
    window: int | None = getattr(config, "sliding_window", None)
    kinds = set(getattr(config, "layer_types", None) or [SLIDING if window else FULL])
    if kinds - {FULL, SLIDING}:
        strange = ", ".join(sorted(kinds - {FULL, SLIDING}))
        raise ModelError(f"{config.model_type}: {strange} cannot be rewound; use llama.cpp for it")
    windows = {kind: window if kind == SLIDING else None for kind in kinds}

    def attention(tree: DraftTree, past: int) -> tuple[torch.Tensor, Mask]:
        depths = np.asarray(tree.depths()) + past
        seen = _seen(tree, past)
        masks = {
            kind: _additive(_within(seen, depths, past, reach), device, dtype)
            for kind, reach in windows.items()
        }
        positions = torch.from_numpy(depths[None]).to(device)
        return positions, masks if len(masks) > 1 else next(iter(masks.values()))

    return attention


def _seen(tree: DraftTree, past: int) -> NDArray[np.bool_]:
    """[rows, past + rows]: the cached tokens, the row's ancestors and the row itself."""
    rows = len(tree)
    seen = np.zeros((rows, past + rows), dtype=np.bool_)
    seen[:, :past] = True
    for row, parent in enumerate(tree.parents):
        if parent >= 0:
            seen[row, past:] = seen[parent, past:]
        seen[row, past + row] = True
    return seen


def _within(
    seen: NDArray[np.bool_], depths: NDArray[np.int64], past: int, window: int | None
) -> NDArray[np.bool_]:
    """What of `seen` lies less than `window` positions back."""
    if window is None:
        return seen
    positions = np.concatenate([np.arange(past), depths])
    near: NDArray[np.bool_] = depths[:, None] - positions[None, :] < window
    return seen & near


def _additive(seen: NDArray[np.bool_], device: torch.device, dtype: torch.dtype) -> torch.Tensor:
    """0 where seen, the type's lowest value elsewhere: what every attention kernel accepts."""
    mask = torch.zeros(seen.shape, dtype=dtype, device=device)
    mask.masked_fill_(torch.from_numpy(~seen).to(device), torch.finfo(dtype).min)
    return mask[None, None]


if TYPE_CHECKING:
    from transformers import PreTrainedModel

CHUNK = 256
"""Rows of one prefill pass: how long a person who interrupts may have to wait."""
MAX_ROWS = 64
"""The widest tree. Wider ones do not pay on any device this was measured on."""

UNREADABLE = (OSError, ValueError, KeyError, RuntimeError, struct.error, SafetensorError)
"""What transformers raises over files that are missing, damaged or unknown to it."""


class HfTarget:
    """`engines.target.Target` over a causal language model of transformers.

    Args:
        model: loaded, on one device, attention layers only.
        identity: fingerprint of the weights.
        context_length: tokens the cache holds.
    """

    def __init__(self, model: PreTrainedModel, identity: str, context_length: int) -> None:
        config = model.config.get_text_config()
        self._model = model.eval()
        self._attention: Attention = attention_of(config, model.device, model.dtype)
        self._cache = RewindableCache(config.num_hidden_layers, context_length)
        self._identity = identity
        self._context_length = context_length
        self._width = int(config.hidden_size)
        self._vocabulary_size = int(config.vocab_size)
        self._tokens: list[int] = []
        self._tree: DraftTree | None = None
        self._last_row: ForwardOutput | None = None

    @property
    def fingerprint(self) -> str:
        return self._identity

    @property
    def place(self) -> str:
        """Device and type of numbers, as measured costs depend on them."""
        return f"{self._model.device} {str(self._model.dtype).removeprefix('torch.')}"

    @property
    def vocabulary_size(self) -> int:
        return self._vocabulary_size

    @property
    def width(self) -> int:
        return self._width

    @property
    def context_length(self) -> int:
        return self._context_length

    @property
    def max_rows(self) -> int:
        return MAX_ROWS

    @property
    def chains_only(self) -> bool:
        return False

    @property
    def tokens(self) -> Sequence[int]:
        return self._tokens

    @property
    def last_row(self) -> ForwardOutput:
        """See `Target.last_row`."""
        if self._last_row is None:
            raise RuntimeError("last_row is valid only right after a finished prefill")
        return self._last_row

    def prefill(self, tokens: Sequence[int]) -> Iterator[int]:
        """See `Target.prefill`."""
        require_prompt_fits(self, len(tokens))
        self.rewind(min(common_prefix(self._tokens, tokens), len(tokens) - 1))
        while len(self._tokens) < len(tokens):
            start = len(self._tokens)
            chunk = list(tokens[start : start + CHUNK])
            parents = list(range(-1, len(chunk) - 1))
            row = self._forward(DraftTree(chunk, parents), keep=1)
            self._tokens.extend(chunk)
            if len(self._tokens) == len(tokens):
                self._last_row = row
            yield len(self._tokens)

    def verify(self, tree: DraftTree) -> ForwardOutput:
        """See `Target.verify`."""
        require_tree_fits(self, len(tree))
        self.rewind(len(self._tokens))
        self._tree = tree
        return self._forward(tree, keep=len(tree))

    def commit(self, path: Sequence[int]) -> None:
        """See `Target.commit`."""
        if self._tree is None:
            raise RuntimeError("commit without a verified tree")
        self._cache.keep(len(self._tokens), path)
        self._tokens.extend(self._tree.tokens[row] for row in path)
        self._tree = None

    def rewind(self, length: int) -> None:
        """See `Target.rewind`."""
        self._cache.rewind(length)
        del self._tokens[length:]
        self._tree = None
        self._last_row = None

    def _forward(self, tree: DraftTree, keep: int) -> ForwardOutput:
        """Evaluate the rows of `tree` after the cached tokens; the last `keep` rows' outcome."""
        positions, mask = self._attention(tree, len(self._tokens))
        with torch.inference_mode():
            out = self._model(
                input_ids=torch.tensor([tree.tokens], device=self._model.device),
                position_ids=positions,
                attention_mask=mask,
                past_key_values=self._cache,
                use_cache=True,
                output_hidden_states=True,
                logits_to_keep=keep,
            )
        return ForwardOutput(_array(out.logits[0]), _array(out.hidden_states[-1][0, -keep:]))


def load(
    path: Path, *, device: str = "auto", dtype: str = "auto", context_length: int | None = None
) -> HfTarget:
    """Load a GGUF file or a folder with safetensors and a config; nothing is ever downloaded.

    Args:
        path: of the file or the folder.
        device: as torch names it; `auto` takes CUDA where there is one.
        dtype: as torch names it; `auto` is float32 on the CPU, bfloat16 elsewhere.
        context_length: tokens; as long as the model was trained for if not given.

    Raises:
        ModelError: the file is missing, damaged, or of an architecture this engine cannot rewind.
    """
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if dtype == "auto":
        dtype = "float32" if device == "cpu" else "bfloat16"
    model = _read(path, device, getattr(torch, dtype))
    trained = int(model.config.get_text_config().max_position_embeddings)
    length = min(context_length or trained, trained)
    return HfTarget(model, fingerprint(path), length)


def _read(path: Path, device: str, dtype: torch.dtype) -> PreTrainedModel:
    folder, gguf = (path, None) if path.is_dir() else (path.parent, path.name)
    # Progress bars would be drawn across a full-screen interface; failures arrive as exceptions.
    with contextlib.redirect_stderr(io.StringIO()):
        try:
            return transformers.AutoModelForCausalLM.from_pretrained(
                folder,
                gguf_file=gguf,
                dtype=dtype,
                device_map={"": device},
                local_files_only=True,
                use_safetensors=True,
                trust_remote_code=False,
            )
        except UNREADABLE as error:
            reason = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
            raise ModelError(f"transformers cannot load {path}: {reason}") from error


def _array(tensor: torch.Tensor) -> Floats:
    return np.asarray(tensor.float().cpu().numpy(), dtype=np.float32)

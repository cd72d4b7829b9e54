"""A transformers model as a `Target`: prefill, verify, commit, rewind.

A tree is verified in one forward pass by a four-dimensional mask (each row sees only its ancestors)
and explicit positions. The cache preallocates one buffer per layer, so appending is a write,
rewinding an assignment, and committing a gather of a few cells. transformers' own dynamic cache
copies itself at every step, and its sliding layers drop what a rewind needs.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from transformers.cache_utils import Cache, CacheLayerMixin

from datastores.errors import ModelError, SpecchatError
from datastores.tokens import common_prefix
from engines.draft_tree import DraftTree
from engines.fingerprint import fingerprint
from engines.target import Floats, ForwardOutput, require_prompt_fits, require_tree_fits

if TYPE_CHECKING:
    from transformers import PreTrainedModel

CHUNK = 256
"""Tokens of one prefill pass, which an interrupt waits for."""
MAX_ROWS = 64
"""Rows of the widest tree; wider ones paid on no measured device."""
MAX_REASON_CHARACTERS = 300
"""Limit for transformers' messages, which can have many lines."""

DTYPES = {"cpu": "float32", "cuda": "bfloat16", "mps": "float16"}
"""The default dtype on each kind of device."""

FULL = "full_attention"
SLIDING = "sliding_attention"

Mask = torch.Tensor | dict[str, torch.Tensor]
Attention = Callable[[DraftTree, int], tuple[torch.Tensor, Mask]]
"""(tree, cached tokens) → positions [1, rows] and additive masks [1, 1, rows, tokens + rows]."""


class BufferLayer(CacheLayerMixin):
    """Keys and values of one layer, [1, heads, capacity, head width], filled up to `length`."""

    def __init__(self, capacity: int) -> None:
        CacheLayerMixin.__init__(self)
        self._capacity = capacity
        self._buffers: tuple[torch.Tensor, torch.Tensor] = (torch.empty(0), torch.empty(0))
        self.length = 0

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Allocate the buffers with the shape, type and device of the first states."""
        keys, values = (
            states.new_empty((*states.shape[:2], self._capacity, states.shape[3]))
            for states in (key_states, value_states)
        )
        self._buffers = (keys, values)
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: object, **__: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append, and return views of all cached states."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        keys, values = self._buffers
        end = self.length + key_states.shape[2]
        keys[:, :, self.length : end] = key_states
        values[:, :, self.length : end] = value_states
        self.length = end
        return keys[:, :, :end], values[:, :, :end]

    def keep(self, start: int, rows: Sequence[int]) -> None:
        """Keep, of the cells from `start` on, those at the offsets `rows`, in order."""
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
        capacity: maximum number of cells in use, by tokens and tree rows together.
    """

    def __init__(self, layers: int, capacity: int) -> None:
        self._buffers = [BufferLayer(capacity) for _ in range(layers)]
        super().__init__(layers=list(self._buffers))

    def rewind(self, length: int) -> None:
        """Drop every cell from `length` on."""
        for layer in self._buffers:
            layer.length = min(layer.length, length)

    def keep(self, start: int, path: Sequence[int]) -> None:
        """Keep, of the tree written from cell `start` on, the rows of `path`, in order."""
        if all(row == place for place, row in enumerate(path)):
            self.rewind(start + len(path))
            return
        with torch.inference_mode():  # as where the buffers were allocated
            for layer in self._buffers:
                layer.keep(start, path)


def make_attention(config: Any, device: torch.device, dtype: torch.dtype) -> Attention:
    """Create the function that maps trees to positions and masks.

    Models that mix full and sliding layers take a mask for each kind, by name; others take one.

    Raises:
        ModelError: a layer has a running state, which cannot be rewound.
    """
    window: int | None = getattr(config, "sliding_window", None)
    kinds = set(getattr(config, "layer_types", None) or [SLIDING if window else FULL])
    if kinds - {FULL, SLIDING}:
        others = ", ".join(sorted(kinds - {FULL, SLIDING}))
        raise ModelError(f"{config.model_type}: {others} cannot be rewound; use llama.cpp for it")
    windows = {kind: window if kind == SLIDING else None for kind in kinds}

    def attention(tree: DraftTree, past: int) -> tuple[torch.Tensor, Mask]:
        depths = np.asarray(tree.depths()) + past
        visible = _visible(tree, past)
        masks = {
            kind: _additive(_within_window(visible, depths, past, size), device, dtype)
            for kind, size in windows.items()
        }
        positions = torch.from_numpy(depths[None]).to(device)
        return positions, masks if len(masks) > 1 else next(iter(masks.values()))

    return attention


def _visible(tree: DraftTree, past: int) -> NDArray[np.bool_]:
    """[rows, past + rows]: the cached tokens, the row's ancestors and the row itself."""
    rows = len(tree)
    visible = np.zeros((rows, past + rows), dtype=np.bool_)
    visible[:, :past] = True
    for row, parent in enumerate(tree.parents):
        if parent >= 0:
            visible[row, past:] = visible[parent, past:]
        visible[row, past + row] = True
    return visible


def _within_window(
    visible: NDArray[np.bool_], depths: NDArray[np.int64], past: int, window: int | None
) -> NDArray[np.bool_]:
    """`visible`, limited to the last `window` positions."""
    if window is None:
        return visible
    positions = np.concatenate([np.arange(past), depths])
    near: NDArray[np.bool_] = depths[:, None] - positions[None, :] < window
    return visible & near


def _additive(visible: NDArray[np.bool_], device: torch.device, dtype: torch.dtype) -> torch.Tensor:
    """0 where visible, the dtype's minimum elsewhere, which every attention kernel accepts."""
    mask = torch.zeros(visible.shape, dtype=dtype, device=device)
    mask.masked_fill_(torch.from_numpy(~visible).to(device), torch.finfo(dtype).min)
    return mask[None, None]


class HfTarget:
    """Implements `engines.target.Target`.

    Args:
        model: a causal language model on one device, with attention layers only.
        fingerprint: identity of the weights.

    Attributes:
        trained_length: context length that the model was trained for.
    """

    def __init__(self, model: PreTrainedModel, fingerprint: str, context_length: int) -> None:
        config = model.config.get_text_config()
        self.fingerprint = fingerprint
        self.vocabulary_size = int(config.vocab_size)
        self.width = int(config.hidden_size)
        self.context_length = context_length
        self.trained_length = int(config.max_position_embeddings)
        self.max_rows = MAX_ROWS
        self.chains_only = False
        self.rollback_rows = MAX_ROWS
        self._model = model.eval()
        self._attention: Attention = make_attention(config, model.device, model.dtype)
        self._cache = RewindableCache(config.num_hidden_layers, context_length)
        self._tokens: list[int] = []
        self._tree: DraftTree | None = None
        self._last_row: ForwardOutput | None = None

    @property
    def device_and_dtype(self) -> str:
        """Such as `cpu float32`."""
        return f"{self._model.device} {str(self._model.dtype).removeprefix('torch.')}"

    @property
    def layers(self) -> int:
        """Transformer blocks."""
        return int(self._model.config.get_text_config().num_hidden_layers)

    @property
    def model(self) -> Any:
        """The model that it runs."""
        return self._model

    @property
    def norm_scales(self) -> Floats:
        """The scales of the final norm, float32 [width]; [0] if it has an uncommon name."""
        norm = getattr(self._model.base_model, "norm", None)
        scales = getattr(norm, "weight", None)
        return np.empty(0, np.float32) if scales is None else as_array(scales.detach())

    @property
    def tokens(self) -> Sequence[int]:
        """The cached token ids, in order. A live view: copy it to keep it."""
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
        output = self._forward(tree, keep=len(tree))
        self._tree = tree
        return output

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
        """Evaluate `tree` after the cached tokens, and output its last `keep` rows."""
        positions, mask = self._attention(tree, len(self._tokens))
        with torch.inference_mode():
            out = self._model(
                input_ids=torch.tensor([tree.tokens], device=self._model.device),
                position_ids=positions,
                attention_mask=mask,
                cache=self._cache,
                use_cache=True,
                output_hidden_states=True,
                logits_to_keep=keep,
            )
        return ForwardOutput(as_array(out.logits[0]), as_array(out.hidden_states[-1][0, -keep:]))


def load_target(
    path: Path, *, device: str = "auto", dtype: str = "auto", context_length: int | None = None
) -> HfTarget:
    """Load a GGUF file, or a folder with safetensors and a config; nothing is downloaded.

    Args:
        device: torch's name; `auto` is CUDA or MPS if available, else the CPU.
        dtype: torch's name; `auto` is float32 on the CPU, bfloat16 on CUDA, float16 on MPS.
        context_length: in tokens; by default what the model was trained for.

    Raises:
        ModelError: the file is missing, damaged, or of an architecture this engine cannot rewind.
    """
    if device == "auto":
        device = _best_device()
    if dtype == "auto":
        dtype = DTYPES[device.partition(":")[0]]
    with translate_load_errors(f"transformers cannot load {path}"):
        model = _load_model(path, device, getattr(torch, dtype))
        trained_length = int(model.config.get_text_config().max_position_embeddings)
        length = min(context_length or trained_length, trained_length)
        return HfTarget(model, fingerprint(path), length)


@contextlib.contextmanager
def translate_load_errors(failure: str) -> Iterator[None]:
    """Turn any error into a ModelError that begins with `failure`.

    transformers raises all kinds of exceptions over damaged files.
    """
    try:
        yield
    except SpecchatError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:MAX_REASON_CHARACTERS] or repr(error)
        raise ModelError(f"{failure}: {reason}") from error


def _best_device() -> str:
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def _load_model(path: Path, device: str, dtype: torch.dtype) -> PreTrainedModel:
    folder, gguf = (path, None) if path.is_dir() else (path.parent, path.name)
    # Progress bars would be drawn over a full-screen interface.
    with contextlib.redirect_stderr(io.StringIO()):
        return transformers.AutoModelForCausalLM.from_pretrained(
            folder,
            gguf_file=gguf,
            dtype=dtype,
            device_map={"": device},
            local_files_only=True,
            use_safetensors=True,
            trust_remote_code=False,
        )


def as_array(tensor: torch.Tensor) -> Floats:
    """`tensor` as float32, in memory of the CPU."""
    return np.asarray(tensor.float().cpu().numpy(), dtype=np.float32)

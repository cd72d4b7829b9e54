"""The second target: GGUF files and safetensors folders through transformers and torch.

Owns a model on one device and its cache; verifies a tree in one forward pass by a four-dimensional
mask (a row sees its ancestors only) and explicit positions. Refuses to know text, chats and which
drafts are worth verifying.
"""

from __future__ import annotations

import contextlib
import io
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
import transformers
from safetensors import SafetensorError

from datastores.errors import ContextOverflowError, ModelError
from datastores.tokens import common_prefix
from engines.target import Floats, Rows
from engines.transformers_cache import RewindableCache
from engines.transformers_masks import Attention, attention_of
from engines.tree import DraftTree
from engines.weights import fingerprint

if TYPE_CHECKING:
    from transformers import PreTrainedModel

CHUNK = 256
"""Rows of one prefill pass: how long a person who interrupts may have to wait."""
MAX_ROWS = 64
"""The widest tree. Wider ones do not pay on any device this was measured on."""

UNREADABLE = (OSError, ValueError, KeyError, RuntimeError, struct.error, SafetensorError)
"""What transformers raises over files that are missing, damaged or unknown to it."""


class TransformersTarget:
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
        self._cache = RewindableCache(config.num_hidden_layers, context_length + MAX_ROWS)
        self._identity = identity
        self._context_length = context_length
        self._width = int(config.hidden_size)
        self._vocabulary_size = int(config.vocab_size)
        self._tokens: list[int] = []
        self._tree: DraftTree | None = None
        self._tail: Rows | None = None

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
    def tail(self) -> Rows:
        """The row of the last prefilled token.

        Raises:
            ValueError: nothing was prefilled since the last verify or rewind.
        """
        if self._tail is None:
            raise ValueError("tail: no prefill since the last verify or rewind")
        return self._tail

    def prefill(self, tokens: Sequence[int]) -> Iterator[int]:
        """See `Target.prefill`."""
        if not 0 < len(tokens) <= self._context_length:
            raise ContextOverflowError(
                f"the prompt has {len(tokens)} tokens and the context {self._context_length}: "
                "shorten it, or load the model with a longer context"
            )
        self.rewind(min(common_prefix(self._tokens, tokens), len(tokens) - 1))
        while len(self._tokens) < len(tokens):
            start = len(self._tokens)
            chunk = list(tokens[start : start + CHUNK])
            parents = list(range(-1, len(chunk) - 1))
            self._tail = self._forward(DraftTree(chunk, parents), keep=1)
            self._tokens.extend(chunk)
            yield len(self._tokens)

    def verify(self, tree: DraftTree) -> Rows:
        """See `Target.verify`.

        Raises:
            ContextOverflowError: the tree does not fit behind the cached tokens.
        """
        if len(tree) > MAX_ROWS or len(self._tokens) + len(tree) > self._context_length + MAX_ROWS:
            raise ContextOverflowError(
                f"a tree of {len(tree)} rows does not fit behind {len(self._tokens)} of "
                f"{self._context_length} tokens"
            )
        self.rewind(len(self._tokens))
        self._tree = tree
        return self._forward(tree, keep=len(tree))

    def commit(self, path: Sequence[int]) -> None:
        """See `Target.commit`.

        Raises:
            ValueError: no tree stands in the cache.
        """
        if self._tree is None:
            raise ValueError("commit: no verified tree")
        self._cache.keep(len(self._tokens), path)
        self._tokens.extend(self._tree.tokens[row] for row in path)
        self._tree = None

    def rewind(self, length: int) -> None:
        """See `Target.rewind`."""
        self._cache.rewind(length)
        del self._tokens[length:]
        self._tree = None
        self._tail = None

    def _forward(self, tree: DraftTree, keep: int) -> Rows:
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
        return Rows(_array(out.logits[0]), _array(out.hidden_states[-1][0, -keep:]))


def load(
    path: Path, *, device: str = "auto", dtype: str = "auto", context_length: int | None = None
) -> TransformersTarget:
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
    return TransformersTarget(model, fingerprint(path), length)


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

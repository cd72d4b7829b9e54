"""States in the middle of a transformers model, at the ends of texts, with a cache of their own."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from datastores.errors import ModelError
from datastores.tokens import common_prefix
from engines.draft_tree import DraftTree
from engines.hf.target import CHUNK, RewindableCache, as_array, make_attention
from engines.target import Floats, Stop, StoppedError, require_ends_fit

if TYPE_CHECKING:
    from transformers import PreTrainedModel

MAX_TOKENS = 2048


class HfLayerStates:
    """Implements `engines.target.LayerStates`. Thread-safe; the calls take turns.

    Args:
        layers: their numbers, from 0, in ascending order, without the last, whose output
            transformers normalises.
    """

    def __init__(self, model: PreTrainedModel, layers: Sequence[int]) -> None:
        """Raises:
        ModelError: there is no such layer.
        """
        config = model.config.get_text_config()
        self.layers = tuple(layers)
        if not all(0 <= one < config.num_hidden_layers - 1 for one in layers):
            raise ModelError(f"{model.name_or_path} cannot be read after its layers {self.layers}")
        self.width = int(config.hidden_size)
        self.max_tokens = min(MAX_TOKENS, int(config.max_position_embeddings))
        self._model = model
        self._attention = make_attention(config, model.device, model.dtype)
        self._cache = RewindableCache(config.num_hidden_layers, MAX_TOKENS)
        self._tokens: list[int] = []
        self._lock = Lock()

    def read(
        self, beginning: Sequence[int], ends: Sequence[Sequence[int]], stop: Stop = lambda: False
    ) -> Floats:
        """See `engines.target.LayerStates.read`."""
        require_ends_fit(self, beginning, ends)
        states = np.empty((len(ends), len(self.layers), self.width), np.float32)
        with self._lock:
            for row, end in enumerate(ends):
                states[row] = self._evaluate([*beginning, *end], stop)
        return states

    def _evaluate(self, tokens: list[int], stop: Stop) -> Floats:
        """The states of the last of `tokens`, float32 [layers, width]."""
        start = min(common_prefix(self._tokens, tokens), len(tokens) - 1)
        self._cache.rewind(start)
        self._tokens = tokens[:start]
        for begin in range(start, len(tokens), CHUNK):
            if stop():
                raise StoppedError
            chunk = tokens[begin : begin + CHUNK]
            out = self._forward(chunk)
            self._tokens += chunk
        return as_array(torch.stack([out.hidden_states[one + 1][0, -1] for one in self.layers]))

    def _forward(self, chunk: list[int]) -> Any:
        """Evaluate `chunk` after the cached tokens."""
        tree = DraftTree(chunk, list(range(-1, len(chunk) - 1)))
        positions, mask = self._attention(tree, len(self._tokens))
        try:
            with torch.inference_mode():
                return self._model(
                    input_ids=torch.tensor([chunk], device=self._model.device),
                    position_ids=positions,
                    attention_mask=mask,
                    cache=self._cache,
                    use_cache=True,
                    output_hidden_states=True,
                    logits_to_keep=1,
                )
        except RuntimeError as error:
            raise ModelError(f"this model's layers cannot be read: {error}") from error

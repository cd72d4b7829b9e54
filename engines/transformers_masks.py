"""Who sees whom: additive attention masks and positions for trees, as transformers wants them.

Owns the geometry of a tree behind a cache, with full and sliding-window attention. Refuses to know
about weights and caches' contents.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from datastores.errors import ModelError
from engines.tree import DraftTree

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

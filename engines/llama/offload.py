"""How many layers go to a graphics card: all, where the build can and the card has room.

llama.cpp does not tell beforehand what fits, so fewer layers are tried until everything does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from llama_cpp import llama_cpp as lib

from datastores.errors import ModelError
from engines.llama.native import LOGGER
from engines.llama.weights import ALL_LAYERS, Weights

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

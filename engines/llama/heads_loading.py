"""Finds a model's prediction heads, checks that llama.cpp can run them, and opens them."""

from __future__ import annotations

from pathlib import Path

from llama_cpp import llama_cpp as lib

from datastores.errors import ModelError
from engines.llama.chained_heads import SHARING_ARCHITECTURES, ChainedHeads, state_width
from engines.llama.context import LlamaContext, Weights
from engines.llama.dflash import BlockHead
from engines.llama.drafter_file import KINDS, require_fits
from engines.llama.gguf import ARCHITECTURE, DFLASH, heads_file, read_metadata
from engines.llama.native import LOGGER
from engines.llama.prediction_heads import PredictionHeads
from engines.llama.target_states import UNAVAILABLE
from engines.llama.workers import Workers

CHAINED_ARCHITECTURES = frozenset(
    {
        "bailingmoe3",
        "cohere2moe",
        "deepseek2",
        "deepseek32",
        "deepseek4",
        "glm-dsa",
        "glm4moe",
        "nemotron_h_moe",
        "qwen35",
        "qwen35moe",
        "qwen3next",
    }
)
"""Architectures with a single head; llama.cpp aborts the process if there is a second."""
DEPTH_ARCHITECTURES = frozenset({"hy_v3", "mimo2", "step35"})
"""Architectures with a head for each depth, or one."""


def open_weights(
    path: Path,
    gpu_layers: int,
    *,
    heads: bool,
    cpu_experts: int = 0,
    workers: Workers | None = None,
) -> Weights:
    """The weights of a model, including its heads if `heads` and if it has them; see `Weights`.

    Raises:
        ModelError: see `Weights`.
    """
    if heads and not UNAVAILABLE:
        try:
            return Weights(path, gpu_layers, heads=True, cpu_experts=cpu_experts, workers=workers)
        except ModelError as error:  # some files lack the heads that their header names
            if not read_metadata(path).number("nextn_predict_layers"):
                raise
            LOGGER.info("without its prediction heads: %s", error)
    return Weights(path, gpu_layers, cpu_experts=cpu_experts, workers=workers)


def open_heads(target: LlamaContext, cells: int, length: int) -> tuple[PredictionHeads | None, str]:
    """The heads of the target's model, from its own file or one in the same folder.

    Args:
        target: the context whose states they read; it must not have read anything yet.
        cells: size of its cache.
        length: length of the longest text.

    Returns:
        The heads, or None and the reason, which is empty if the model has none.
    """
    weights = target.weights
    try:
        if int(lib.llama_model_n_layer_nextn(weights.handle)):
            return _open(weights, target, cells, length), ""
        path = heads_file(weights.path, weights.metadata(ARCHITECTURE))
        if path is not None:
            separate = Weights(path, weights.gpu_layers, companion=True)
            return _open(separate, target, cells, length), ""
    except ModelError as error:
        return None, str(error)
    return None, ""


def _open(weights: Weights, target: LlamaContext, cells: int, length: int) -> PredictionHeads:
    _require_runnable(weights, target.weights)
    kind = BlockHead if weights.metadata(ARCHITECTURE) == DFLASH else ChainedHeads
    return kind(weights, target, cells, length)


def _require_runnable(weights: Weights, target: Weights) -> None:
    """Raise ModelError for heads over which llama.cpp would abort the process."""
    if UNAVAILABLE:
        raise ModelError(UNAVAILABLE)
    architecture = weights.metadata(ARCHITECTURE)
    if architecture in KINDS:
        require_fits(weights, target)
        return
    heads = int(lib.llama_model_n_layer_nextn(weights.handle))
    one = architecture in CHAINED_ARCHITECTURES
    if not heads or not (one or architecture in DEPTH_ARCHITECTURES | SHARING_ARCHITECTURES):
        raise ModelError(f"llama.cpp runs no prediction heads of the architecture {architecture}")
    if not weights.heads:
        raise ModelError("its prediction heads are missing in the file, or do not fit into memory")
    if one and heads > 1:
        raise ModelError(f"llama.cpp runs one prediction head of {architecture}, not {heads}")
    width, given = state_width(weights), state_width(target)
    if width != given:
        raise ModelError(
            f"its heads are for states of length {width}, not {given}: they belong to another model"
        )

"""Whether a model fits into memory, decided before anything is allocated.

Estimates the weights, KV cache and compute buffers of llama.cpp from the model's header, and
compares them with the memory available now: of the machine, of the container, and of graphics cards
with dedicated memory. If an estimate is a little too low, llama.cpp refuses or is slower.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from app.models.description import read_header
from app.models.gguf_files import model_parts
from app.models.safetensors import (
    CHUNK_ROWS,
    CUDA,
    NUMBER_BYTES,
    PYTORCH_BYTES,
    read_safetensors,
    torch_device,
)
from datastores.errors import ModelError
from engines.llama.gguf import F16, KV_TYPES, Metadata, check_header, heads_file
from engines.llama.recurrent_state import snapshot_count, state_bytes

MASK_BYTES = 2
"""Size of an element of the attention mask."""
OTHER_BYTES = 100_000_000
"""Memory besides the model: the interpreter, drafters, stores."""
MIN_CONTEXT_TOKENS = 512
"""The shortest context that is suggested, and the granularity of suggestions."""
BATCH_ROWS, OUTPUT_ROWS, FLOAT_BYTES = 512, 32, 4
"""Rows of a batch of llama.cpp, rows whose logits it keeps, and the size of a float."""
SCORE_ROWS = 128
"""Most rows whose attention scores are kept at once, without fused attention."""

CGROUP = Path("/sys/fs/cgroup")
"""The control group that limits a container's memory on Linux, as seen from inside."""


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Bytes that a model takes.

    Attributes:
        weights: size of its files, including a separate one of prediction heads.
        fixed: everything else that does not depend on the context.
        token: bytes per token of context.
    """

    weights: int
    fixed: int
    token: int

    def total(self, context: int) -> int:
        """Bytes with a context of `context` tokens."""
        return self.weights + self.fixed + self.token * context

    def max_context(self, free: int) -> int:
        """The longest context, in tokens, that fits into `free` bytes; may be negative."""
        return (free - self.weights - self.fixed) // max(self.token, 1)


def require_memory(
    path: Path,
    context_length: int,
    gpu_layers: int | None = None,
    kv_type: str = F16,
    *,
    heads: bool = True,
) -> None:
    """Check that the model fits with a context of `context_length` tokens, or its own maximum.

    Args:
        gpu_layers: layers on graphics cards; at 0 their memory does not count.
        kv_type: type of the KV cache, from `KV_TYPES`.
        heads: count a separate file of prediction heads, which is loaded too.

    Raises:
        ModelError: it does not fit (the message has the figures and a context that would), or the
            file is missing or damaged.
    """
    if path.is_dir():
        problem = read_safetensors(path).problem
        if problem:
            raise ModelError(f"{path} cannot be used: {problem}")
    else:
        check_header(path)
    free = available_memory(cards=gpu_layers != 0)
    shortage = memory_shortage(path, context_length, free, kv_type, heads=heads)
    if shortage:
        raise ModelError(shortage)


def memory_shortage(
    path: Path, context_length: int, free: int, kv_type: str = F16, *, heads: bool = True
) -> str:
    """Why the model does not fit into `free` bytes, and what to do; empty if it fits.

    Args:
        kv_type, heads: see `require_memory`.

    Raises:
        ModelError: its header cannot be read.
    """
    need, context = memory_estimate(path, context_length, kv_type, heads=heads)
    if need.total(context) <= free:
        return ""
    alone, _ = memory_estimate(path, context_length, kv_type, heads=False)
    longest = need.max_context(free) // MIN_CONTEXT_TOKENS * MIN_CONTEXT_TOKENS
    way_out = f"set context = {longest} in config.toml, " if longest > 0 else ""
    if alone.total(context) <= free:
        way_out += "leave mtp out of --drafters, "
    return (
        f"{path} needs {_gb(need.total(context))} of memory ({_gb(need.weights)} for its weights,"
        f" {_gb(need.token * context)} for a context of {context} tokens,"
        f" {_gb(need.fixed)} to compute with), and {_gb(free)} are free:"
        f" {way_out}close other programs, or choose a smaller model"
    )


def memory_estimate(
    path: Path, context_length: int, kv_type: str = F16, *, heads: bool = True
) -> tuple[MemoryEstimate, int]:
    """The memory of a model, and the context it would run with, limited by its own maximum.

    Only the weights of prediction heads count: their cache is that of a few layers.

    Args:
        kv_type, heads: see `require_memory`.

    Raises:
        ModelError: its files cannot be read.
    """
    if path.is_dir():
        return _estimate_folder(path, context_length)
    metadata = read_header(path)
    need = estimate(metadata, _size(path), kv_type)
    if heads and not metadata.number("nextn_predict_layers"):  # else the model file has them
        separate = heads_file(path, metadata.architecture)
        need = replace(need, weights=need.weights + (_size(separate) if separate else 0))
    return need, min(context_length, metadata.number("context_length", context_length))


def freed_by_closing(path: Path, context_length: int, kv_type: str = F16) -> int:
    """Bytes that closing this model would add to `available_memory`.

    Weights mapped from a GGUF file count as available even while it runs.

    Raises:
        ModelError: its header cannot be read.
    """
    need, context = memory_estimate(path, context_length, kv_type)
    # PyTorch's copies of the weights are freed with the model.
    return need.total(context) - (0 if path.is_dir() else need.weights)


def estimate(metadata: Metadata, size: int, kv_type: str = F16) -> MemoryEstimate:
    """The memory that llama.cpp takes for a model of `size` bytes.

    The KV cache is exact if all layers that have attention have the same; latent attention keeps no
    values. Attention scores are an upper bound: fused attention has none. The compute buffers are
    fitted to llama.cpp's report to within 5 %, for models of 0.1 and 0.5 billion parameters at
    contexts of 2,048 and 16,384 tokens.
    """
    width, inner = metadata.number("embedding_length"), metadata.number("feed_forward_length")
    experts = metadata.number("expert_feed_forward_length") * metadata.number("expert_used_count")
    buffers = BATCH_ROWS * FLOAT_BYTES * (4 * width + 3 * max(inner, experts))
    logits = OUTPUT_ROWS * FLOAT_BYTES * metadata.number("vocab_size")
    mask = BATCH_ROWS * MASK_BYTES
    scores = SCORE_ROWS * FLOAT_BYTES * metadata.number("attention.head_count")
    cell = round(KV_TYPES[kv_type][1] * _cached_numbers(metadata)) + mask + scores
    # The current state of a recurrent model, its snapshots and a checkpoint.
    state = state_bytes(metadata)
    states = state * (2 + snapshot_count(state, size))
    return MemoryEstimate(size, OTHER_BYTES + buffers + logits + states, cell)


def _estimate_folder(path: Path, context_length: int) -> tuple[MemoryEstimate, int]:
    """The main memory that PyTorch takes: next to nothing with CUDA, where PyTorch itself reports a
    shortage of the card's memory."""
    model, device = read_safetensors(path), torch_device()
    context = min(context_length, model.context_length or context_length)
    if device == CUDA:
        return MemoryEstimate(0, OTHER_BYTES + PYTORCH_BYTES, 0), context
    number = NUMBER_BYTES[device]
    states = number * CHUNK_ROWS * model.width * (model.layers + 1)
    fixed = OTHER_BYTES + PYTORCH_BYTES + states
    token = number * (model.cached_numbers + CHUNK_ROWS)
    return MemoryEstimate(number * model.parameters, fixed, token), context


def available_memory(cards: bool = True) -> int:
    """Bytes available without swapping, with `cards` including graphics cards."""
    free = min(psutil.virtual_memory().available, _cgroup_memory())
    if not cards:
        return free
    from engines.llama.devices import free_gpu_memory

    return free + free_gpu_memory()


def _size(path: Path) -> int:
    try:
        return sum(part.stat().st_size for part in model_parts(path))
    except OSError as error:
        raise ModelError(f"{error.filename} cannot be read: {error.strerror}") from error


def _cached_numbers(metadata: Metadata) -> int:
    """Elements of the KV cache per token."""
    layers = metadata.number("block_count")
    interval = metadata.number("full_attention_interval", 1)
    heads = metadata.number("attention.head_count", 1)
    length = metadata.number("embedding_length") // max(heads, 1)
    keys = metadata.number("attention.key_length", length)
    latent = metadata.number("attention.key_length_mla")
    values = 0 if latent else metadata.number("attention.value_length", length)
    pairs = metadata.total("attention.head_count_kv", layers, heads) // max(interval, 1)
    return pairs * (keys + values)


def _cgroup_memory() -> int:
    """Bytes left to this container; the machine's total if there is no limit.

    The group's file cache counts as free, since the kernel evicts it when memory is short.
    """
    try:
        limit = int((CGROUP / "memory.max").read_text())
        used = int((CGROUP / "memory.current").read_text())
        lines = (CGROUP / "memory.stat").read_text().splitlines()
    except (OSError, ValueError):  # no such group, or no limit: `max`
        return psutil.virtual_memory().total
    counts = dict(line.split(maxsplit=1) for line in lines)
    files = int(counts.get("inactive_file", 0)) + int(counts.get("active_file", 0))
    return max(limit - used + files, 0)


def _gb(size: int) -> str:
    return f"{size / 1e9:.2g} GB" if size < 1e10 else f"{size / 1e9:.0f} GB"

"""Describes the model in a safetensors folder, and where PyTorch would run it.

Reads `config.json` and the headers of `*.safetensors` within size limits, and imports neither torch
nor transformers, which takes seconds. A file consists of eight bytes with the length of its header,
the header as JSON, and the tensors (https://huggingface.co/docs/safetensors).
"""

from __future__ import annotations

import json
import os
import platform
import re
import struct
import sys
from collections import Counter
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from datastores.errors import ModelError

CONFIG_FILE, INDEX_FILE = "config.json", "model.safetensors.index.json"
SUFFIX = ".safetensors"
TOKENIZER_CONFIG = "tokenizer_config.json"
TEMPLATE_FILES = ("chat_template.jinja", "chat_template.json")
TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json")
MAX_HEADER_BYTES = 1 << 24
"""Largest header or index; parsed JSON takes up to thirty times its size."""
MAX_CONFIG_BYTES = 1 << 22
MAX_TENSORS = 1 << 17
MAX_NUMBER = 1 << 40
"""A larger number in a configuration is damage and counts as missing."""
CPU, CUDA, MPS = "cpu", "cuda", "mps"
NUMBER_BYTES = {CPU: 4, CUDA: 2, MPS: 2}
"""Size of a weight and of an element of the KV cache on each of PyTorch's devices."""
PYTORCH_BYTES = 600_000_000
"""Memory of PyTorch and transformers without a model."""
CHUNK_ROWS = 256
"""Tokens of a prefill chunk, whose hidden states of all layers are kept."""
REQUIRED_SIZES = ("max_position_embeddings", "hidden_size", "num_hidden_layers")
TIMES_WIDTH = ("hidden_size", "num_hidden_layers", "vocab_size", "intermediate_size")
"""Each of these sizes times the model's width is a lower bound of its number of weights."""
ATTENTION_LAYERS = frozenset({"full_attention", "sliding_attention"})

_CUDA_BUILD = re.compile(r"^(?:cuda|hip)\b[^=]*=\s*'", re.MULTILINE)
"""A line of torch/version.py in a build with a GPU backend."""
_UNREADABLE = (
    OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError, OverflowError,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SafetensorsModel:
    """The model in a folder.

    Attributes:
        architecture: transformers' model type, such as `qwen2`.
        size: size of its weight files in bytes.
        dtype: the most common type of its weights, such as `BF16`.
        context_length: tokens of the context it was trained with; 0 if unknown.
        cached_numbers: elements of the KV cache per token.
        problem: why it cannot be used; empty if it can.
        chats: whether it has a chat template, or one that cannot be read.
    """

    architecture: str
    parameters: int
    size: int
    dtype: str
    context_length: int
    layers: int
    width: int
    cached_numbers: int
    problem: str
    chats: bool


def is_model_folder(path: Path) -> bool:
    """Whether `path` is a folder with a model's configuration."""
    return os.path.isfile(path / CONFIG_FILE)


def has_weights(path: Path) -> bool:
    """Whether `path` is such a folder with safetensors weights."""
    return is_model_folder(path) and any(path.glob(f"*{SUFFIX}"))


def is_model(path: Path) -> bool:
    """Whether `path` is a file, of any kind, or a folder with a model's configuration."""
    return os.path.isfile(path) or is_model_folder(path)


def read_safetensors(folder: Path) -> SafetensorsModel:
    """The model in `folder`.

    Raises:
        ModelError: it is missing, incomplete or damaged.
    """
    config = _config(folder)
    kinds: Counter[str] = Counter()
    files = _weight_files(folder)
    for file in files:
        kinds.update(_tensors(file))
    size = sum(file.stat().st_size for file in files)
    try:
        return _described(folder, config, kinds, size)
    except _UNREADABLE as error:
        raise ModelError(f"{folder / CONFIG_FILE} is damaged: download it again") from error


def _described(
    folder: Path, config: dict[str, Any], kinds: Counter[str], size: int
) -> SafetensorsModel:
    """The model with this configuration and these numbers of weights by type."""
    text = config.get("text_config", config)
    if not _fits(text, kinds.total()):
        raise ValueError("sizes")
    heads = _number(text, "num_attention_heads", 1)
    width, layers = _number(text, "hidden_size"), _number(text, "num_hidden_layers")
    head = _number(text, "head_dim", width // max(heads, 1))
    return SafetensorsModel(
        architecture=str(config.get("model_type", "")),
        parameters=kinds.total(),
        size=size,
        dtype=max(kinds, key=lambda kind: kinds[kind], default=""),
        context_length=_number(text, "max_position_embeddings"),
        layers=layers,
        width=width,
        cached_numbers=2 * layers * head * _number(text, "num_key_value_heads", heads),
        problem=_problem(folder, config, text),
        chats=_has_template(folder),
    )


@cache
def torch_device() -> str:
    """The device on which the installed PyTorch runs models: `cuda`, `mps` or `cpu`."""
    if sys.platform == "darwin":
        return MPS if platform.machine() == "arm64" else CPU
    from engines.llama.devices import find_gpus

    return CUDA if find_gpus() and _has_cuda() else CPU


def remark(device: str) -> str:
    """Advice before a safetensors model is chosen."""
    if device == CPU:
        return "safetensors, through PyTorch: slower than a GGUF on this CPU"
    return "safetensors, through PyTorch: runs on your GPU"


def _has_cuda() -> bool:
    """Whether the installed PyTorch was built for CUDA or ROCm."""
    found = find_spec("torch")
    if found is None or found.origin is None:
        return False
    version = Path(found.origin).parent / "version.py"
    return version.is_file() and bool(_CUDA_BUILD.search(version.read_text("utf-8")))


def _config(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG_FILE
    try:
        with path.open("rb") as file:
            config = json.loads(file.read(MAX_CONFIG_BYTES))
    except FileNotFoundError:
        raise ModelError(
            f"{folder} holds no model: give a GGUF file, or a folder with {CONFIG_FILE} and"
            f" *{SUFFIX}"
        ) from None
    except _UNREADABLE as error:
        raise ModelError(f"{path} is damaged: download it again") from error
    if not isinstance(config, dict) or not isinstance(config.get("text_config", {}), dict):
        raise ModelError(f"{path} is damaged: download it again")
    return config


def _weight_files(folder: Path) -> list[Path]:
    """The weight files. Raises ModelError if one is missing."""
    index = folder / INDEX_FILE
    if not index.is_file():
        files = sorted(folder.glob(f"*{SUFFIX}"))
        if not files:
            raise ModelError(f"{folder} has no *{SUFFIX}: download the model again")
        return files
    try:
        with index.open("rb") as file:
            parsed = json.loads(file.read(MAX_HEADER_BYTES))
        names = {str(name) for name in parsed["weight_map"].values()}
    except _UNREADABLE as error:
        raise ModelError(f"{index} is damaged: download it again") from error
    there = {name for name in names if Path(name).name == name and os.path.isfile(folder / name)}
    missing = names - there
    if missing:
        raise ModelError(
            f"{folder} lacks {len(missing)} of its {len(names)} files: download the model again"
        )
    return [folder / name for name in sorted(names)]


def _tensors(path: Path) -> Counter[str]:
    """Type → number of weights in the file."""
    damaged = ModelError(f"{path} is damaged: download it again")
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > MAX_HEADER_BYTES:
                raise damaged
            header = json.loads(file.read(length))
        tensors = [tensor for name, tensor in header.items() if name != "__metadata__"]
        end = max((int(tensor["data_offsets"][1]) for tensor in tensors), default=0)
        found: Counter[str] = Counter()
        for tensor in tensors:
            found[str(tensor["dtype"])] += _weights(tensor["shape"], 8 * end)
        whole = path.stat().st_size == 8 + length + end and len(tensors) <= MAX_TENSORS
    except (*_UNREADABLE, struct.error) as error:
        raise damaged from error
    if not whole:
        raise damaged
    return found


def _weights(shape: Any, most: int) -> int:
    """The number of weights of a tensor. Raises ValueError if it is not between 0 and `most`."""
    count = 1
    for size in map(int, shape):
        count *= size
        if not 0 <= count <= most:
            raise ValueError(shape)
    return count


def _problem(folder: Path, config: dict[str, Any], text: dict[str, Any]) -> str:
    """Why the folder's model cannot be used; empty if it can."""
    architectures = [str(name) for name in config.get("architectures") or ()]
    if not any(name.endswith("ForCausalLM") for name in architectures):
        return "not a text-only model"
    if config.get("quantization_config"):
        return "quantised safetensors; use a GGUF version of it"
    if set(text.get("layer_types") or ()) - ATTENTION_LAYERS:
        return "its cache cannot be rewound in PyTorch; use a GGUF version of it"
    if not any((folder / name).is_file() for name in TOKENIZER_FILES):
        return "it has no tokenizer"
    if not all(_number(text, name) for name in REQUIRED_SIZES):
        return "its configuration does not give its size; use a GGUF version of it"
    return ""


def _fits(text: dict[str, Any], parameters: int) -> bool:
    """Whether the sizes in the configuration are possible with this number of weights.

    Impossible ones would fill the memory before PyTorch compares them with the weights.
    """
    width = _number(text, "hidden_size", 1)
    sizes = [text[name] for name in TIMES_WIDTH if isinstance(text.get(name), int | float)]
    return width * max(sizes, default=1) <= parameters


def _has_template(folder: Path) -> bool:
    if any((folder / name).is_file() for name in TEMPLATE_FILES):
        return True
    try:
        with (folder / TOKENIZER_CONFIG).open("rb") as file:
            return bool(json.loads(file.read(MAX_CONFIG_BYTES)).get("chat_template"))
    except FileNotFoundError:
        return False
    except _UNREADABLE:
        return True  # reported when the tokenizer is loaded


def _number(config: dict[str, Any], name: str, default: int = 0) -> int:
    value = config.get(name)
    return value if isinstance(value, int) and 0 < value <= MAX_NUMBER else default

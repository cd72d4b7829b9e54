"""Describes a model by its file, and whether it can be used.

A file's header is parsed once, since that takes up to a tenth of a second.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from app.models.gguf_files import ModelCandidate, quantisation
from app.models.safetensors import (
    SafetensorsModel,
    read_safetensors,
    remark,
    torch_device,
)
from datastores.errors import ModelError
from engines.llama.gguf import DFLASH, EAGLE, EMBEDDINGS, OUTPUT, Metadata, Tensor, read_metadata

MAX_CACHED_HEADERS = 1024
"""Headers in the cache, a few kilobytes each."""


def read_header(path: Path) -> Metadata:
    """The header of the file at `path`.

    Raises:
        ModelError: it cannot be read, or is not a GGUF file.
    """
    try:
        status = path.stat()
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}") from error
    return _read(path, status.st_size, status.st_mtime_ns)


@lru_cache(MAX_CACHED_HEADERS)
def _read(path: Path, size: int, changed: int) -> Metadata:
    """Cached by size and modification time, so that a changed file is read again."""
    return read_metadata(path)


BASE = "probably a base model: no chat template, so it is asked in a plain form"
EMBEDS = "an embedding model, which writes no text"
_BESIDE = "drafter: put it into the folder of its model, with {} in its name"
DRAFTS = {
    EAGLE: f"an EAGLE-3 {_BESIDE.format(EAGLE)}",
    DFLASH: f"a DFlash {_BESIDE.format(DFLASH)}",
}
RANK_POOLING = 4
"""llama.cpp's pooling type of rerankers."""
_KINDS = {
    "adapter": "an adapter, not a whole model",
    "imatrix": "an importance matrix, not a model",
    "mmproj": "an image projector, not a model",
    "vocab": "a vocabulary, not a model",
}


@dataclass(frozen=True, slots=True)
class FoundModel:
    """A model on this machine.

    Attributes:
        name: unique name that a person types.
        place: the program it belongs to.
        path: the file to open.
        size: size of all its parts in bytes.
        quantisation: such as `Q4_K_M`; empty if unknown.
        architecture: such as `llama`; empty if the header cannot be read.
        context_length: tokens of the context it was trained with.
        problem: why it cannot chat; empty if it can.
        remark: advice before choosing it; may be empty.
    """

    name: str
    place: str
    path: Path
    size: int
    quantisation: str = ""
    architecture: str = ""
    parameters: int = 0
    context_length: int = 0
    problem: str = ""
    remark: str = ""

    @property
    def embeds(self) -> bool:
        """Whether it is an embedding model."""
        return self.problem == EMBEDS


def describe(candidate: ModelCandidate) -> FoundModel:
    """Describe a candidate by the headers of its files."""
    if candidate.files[0].is_dir():
        return _describe_folder(candidate)
    named = quantisation(candidate.name.rpartition(":")[2])
    known = FoundModel(candidate.name, candidate.place, candidate.files[0], 0, named)
    if candidate.missing:
        parts = candidate.missing + len(candidate.files)
        return replace(known, problem=f"{candidate.missing} of its {parts} parts are missing")
    try:
        size = sum(file.stat().st_size for file in candidate.files)
        metadata = [read_header(file) for file in candidate.files]
        parameters = sum(map(count_parameters, candidate.files, metadata))
    except OSError as error:
        return replace(known, problem=f"{error.filename}: {error.strerror}")
    except ModelError as error:
        return replace(known, problem=str(error))
    first = metadata[0]
    return replace(
        known,
        size=size,
        quantisation=named or header_quantisation(first),
        architecture=first.architecture,
        parameters=parameters,
        context_length=first.number("context_length"),
        problem=_problem(first, parameters),
        remark="" if first.text("tokenizer.chat_template") else BASE,
    )


def _describe_folder(candidate: ModelCandidate) -> FoundModel:
    known = FoundModel(candidate.name, candidate.place, candidate.files[0], 0)
    try:
        model = read_safetensors(candidate.files[0])
    except ModelError as error:
        return replace(known, problem=str(error))
    return replace(
        known,
        size=model.size,
        quantisation=model.dtype,
        architecture=model.architecture,
        parameters=model.parameters,
        context_length=model.context_length,
        problem=model.problem,
        remark="" if model.problem else _remarks(model),
    )


def _remarks(model: SafetensorsModel) -> str:
    return "; ".join([remark(torch_device()), *[BASE] * (not model.chats)])


def header_quantisation(metadata: Metadata) -> str:
    """The quantisation that the header declares, else the most common type of its weights."""
    from gguf.constants import GGMLQuantizationType, LlamaFileType

    declared = metadata.values.get("general.file_type")
    for file_type in LlamaFileType:
        if file_type.value == declared:
            return file_type.name.partition("_")[2]
    most_common = max(metadata.weights, key=lambda kind: metadata.weights[kind], default=None)
    return next((kind.name for kind in GGMLQuantizationType if kind.value == most_common), "")


MAX_TABLE_ROW_BYTES = 1 << 20
SAMPLED_ROWS = 8
MIN_TIED_SIMILARITY = 0.9
"""Cosine above which two matrices are quantisations of the same one; it is near 0 if untied."""


def count_parameters(path: Path, metadata: Metadata) -> int:
    """Number of weights in the file at `path`, with tied embeddings counted once.

    Files may contain tied embeddings again as the output matrix, in another quantisation: a model
    of 494 million parameters then has a file of 630 million weights.
    """
    tables = [metadata.tables.get(name) for name in (EMBEDDINGS, OUTPUT)]
    found = [table for table in tables if table is not None and len(table.shape) == 2]
    if len(found) < 2 or found[0].shape != found[1].shape:
        return metadata.parameters
    first, second = (_sampled_rows(path, metadata.size, table) for table in found)
    if not len(first) or len(first) != len(second):
        return metadata.parameters
    with np.errstate(all="ignore"):  # a damaged file may hold any numbers
        cosine = first @ second / np.sqrt((first @ first) * (second @ second))
    return metadata.parameters - prod(found[0].shape) * bool(cosine > MIN_TIED_SIMILARITY)


def _sampled_rows(path: Path, header: int, table: Tensor) -> NDArray[np.float64]:
    """Some rows of a matrix, concatenated, float64 [n]; empty if they cannot be read."""
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
    from gguf.quants import dequantize

    width, rows = table.shape
    kind = next((one for one in GGMLQuantizationType if one.value == table.kind), None)
    block, size = GGML_QUANT_SIZES[kind] if kind is not None else (0, 0)
    length = width // block * size if block and width % block == 0 else 0
    if kind is None or not 0 < length <= MAX_TABLE_ROW_BYTES:
        return np.empty(0)
    sampled = [rows * at // SAMPLED_ROWS for at in range(min(rows, SAMPLED_ROWS))]
    with path.open("rb") as file:
        raw = [_read_at(file, header + table.offset + row * length, length) for row in sampled]
    if any(len(one) < length for one in raw):
        return np.empty(0)
    try:
        with np.errstate(all="ignore"):
            values = dequantize(np.frombuffer(b"".join(raw), np.uint8).reshape(-1, length), kind)
    except NotImplementedError:  # a type that gguf cannot dequantise
        return np.empty(0)
    return np.asarray(values, np.float64).ravel()


def _read_at(file: BinaryIO, offset: int, length: int) -> bytes:
    """Up to `length` bytes at `offset`, which a hostile header may put beyond the end."""
    try:
        file.seek(offset)
    except (OSError, OverflowError):
        return b""
    return file.read(length)


def _problem(metadata: Metadata, parameters: int) -> str:
    """Why a file with this header is not a chat model; empty if it may be one."""
    architecture, kind = metadata.architecture, metadata.text("general.type")
    if kind in _KINDS or architecture == "clip":
        return _KINDS.get(kind, _KINDS["mmproj"])
    if not parameters:
        return _KINDS["vocab"]
    if architecture in DRAFTS:
        return DRAFTS[architecture]
    if metadata.number("pooling_type") == RANK_POOLING:
        return "a reranker, which writes no text"
    if metadata.number("pooling_type") or architecture.endswith("bert") or not _causal(metadata):
        return EMBEDS
    if metadata.text("tokenizer.ggml.model") in ("", "no_vocab", "none"):
        return "it has no tokenizer"
    return ""


def _causal(metadata: Metadata) -> bool:
    return metadata.values.get(f"{metadata.architecture}.attention.causal", True) is not False

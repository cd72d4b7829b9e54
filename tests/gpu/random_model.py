"""`python -m tests.gpu.random_model VOCABULARY.gguf FILE q4_0|q8_0|f16 [small]`: a Llama of 8 B.

Weights are random, so what it writes is noise, but every pass costs what one of a real model of
this size costs. The tokenizer is that of another file, filled up to Llama 3's size. `small` makes a
model of 20 M, to rehearse with.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter

SIZES = {"": (32, 4096, 14336, 32, 8, 128_256), "small": (4, 256, 768, 4, 2, 49_152)}
"""Layers, width, feed-forward width, heads, key-value heads, vocabulary."""
SEED_BYTES = 2**24
"""Random bytes that all weights repeat: making more takes longer than writing them."""
TOKENIZER = ("model", "pre", "tokens", "token_type", "merges", "bos_token_id", "eos_token_id")
UNUSED = 5
"""llama.cpp's type of a token that is never written."""


def blocks(kind: str, rows: int, columns: int, noise: np.ndarray[Any, Any]) -> Any:
    """A matrix of small random weights as bytes of its type: [rows, bytes of a row], or float16."""
    deviation = columns**-0.5
    if kind == "f16":
        values = (noise.view(np.int8).astype(np.float32) * (deviation / 74.0)).astype(np.float16)
        return np.resize(values, (rows, columns))
    size, spread = {"q4_0": (18, 4.6), "q8_0": (34, 74.0)}[kind]
    count = len(noise) // size
    made = noise[: count * size].reshape(count, size).copy()
    made[:, :2] = np.array([deviation / spread], np.float16).view(np.uint8)
    return np.resize(made, (rows, columns // 32 * size))


def shapes(size: str) -> Iterator[tuple[str, int, int]]:
    """Name, rows and columns of every matrix."""
    layers, width, inner, heads, shared, vocabulary = SIZES[size]
    yield "token_embd", vocabulary, width
    yield "output", vocabulary, width
    for layer in range(layers):
        for name, rows, columns in (
            ("attn_q", width, width),
            ("attn_k", width * shared // heads, width),
            ("attn_v", width * shared // heads, width),
            ("attn_output", width, width),
            ("ffn_gate", inner, width),
            ("ffn_up", inner, width),
            ("ffn_down", width, inner),
        ):
            yield f"blk.{layer}.{name}", rows, columns


def add_tokenizer(writer: GGUFWriter, vocabulary: Path, size: int) -> None:
    """The tokenizer of the file `vocabulary`, with unused tokens up to `size`."""
    fields = GGUFReader(vocabulary).fields
    for name in TOKENIZER:
        field = fields.get(f"tokenizer.ggml.{name}")
        if field is None:
            continue
        value = field.contents()
        if name == "tokens":
            value += [f"<|unused {number}|>" for number in range(len(value), size)]
        if name == "token_type":
            value += [UNUSED] * (size - len(value))
        if isinstance(value, list):
            writer.add_array(field.name, value)
        elif isinstance(value, str):
            writer.add_string(field.name, value)
        else:
            writer.add_uint32(field.name, value)
    template = fields["tokenizer.chat_template"].contents()
    writer.add_chat_template(template)


def main(vocabulary: Path, file: Path, kind: str, size: str = "") -> None:
    """Write the model."""
    layers, width, inner, heads, shared, tokens = SIZES[size]
    writer = GGUFWriter(file, "llama")
    writer.add_name(f"random-{kind}")
    writer.add_block_count(layers)
    writer.add_context_length(8192)
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(heads)
    writer.add_head_count_kv(shared)
    writer.add_rope_freq_base(500_000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(tokens)
    add_tokenizer(writer, vocabulary, tokens)
    noise = np.random.default_rng(1).integers(0, 256, SEED_BYTES, np.uint8)
    types = {"q4_0": GGMLQuantizationType.Q4_0, "q8_0": GGMLQuantizationType.Q8_0, "f16": None}
    for name, rows, columns in shapes(size):
        data = blocks(kind, rows, columns, noise)
        writer.add_tensor(f"{name}.weight", data, raw_dtype=types[kind])
    ones = np.ones(width, np.float32)
    for layer in range(layers):
        writer.add_tensor(f"blk.{layer}.attn_norm.weight", ones)
        writer.add_tensor(f"blk.{layer}.ffn_norm.weight", ones)
    writer.add_tensor("output_norm.weight", ones)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:5])

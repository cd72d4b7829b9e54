"""Writes tiny GGUF models with random weights and a given vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gguf import GGUFWriter, PoolingType, TokenType

WIDTH, HEADS, FORWARD, CONTEXT = 64, 2, 96, 4096
Shape = tuple[int, ...]
ATTENTION = ("q", "k", "v", "output")


@dataclass(frozen=True)
class TinyVocabulary:
    """Like SentencePiece's: <unk>, <s>, </s>, more control tokens, bytes, pieces."""

    controls: Sequence[str] = ()
    pieces: Sequence[str] = ()
    add_bos: bool = True
    add_space: bool = True

    @property
    def tokens(self) -> list[str]:
        """Every token's text, by id."""
        return [*self.special_tokens, *(f"<0x{byte:02X}>" for byte in range(256)), *self.pieces]

    @property
    def special_tokens(self) -> list[str]:
        """Tokens without text."""
        return ["<unk>", "<s>", "</s>", *self.controls]

    @property
    def types(self) -> list[TokenType]:
        """Every token's type."""
        return [
            TokenType.UNKNOWN,
            *[TokenType.CONTROL] * (len(self.special_tokens) - 1),
            *[TokenType.BYTE] * 256,
            *[TokenType.NORMAL] * len(self.pieces),
        ]


def write_vocabulary(writer: GGUFWriter, vocabulary: TinyVocabulary) -> None:
    """Add the tokenizer's metadata."""
    writer.add_tokenizer_model("llama")
    writer.add_token_list(vocabulary.tokens)
    writer.add_token_scores([float(-index) for index in range(len(vocabulary.tokens))])
    writer.add_token_types(vocabulary.types)
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(vocabulary.add_bos)
    writer.add_add_space_prefix(vocabulary.add_space)


def open_writer(
    path: Path,
    architecture: str,
    vocabulary: TinyVocabulary,
    blocks: int,
    *,
    width: int = WIDTH,
) -> GGUFWriter:
    """A writer with the metadata that attention models share."""
    writer = GGUFWriter(path, architecture)
    writer.add_block_count(blocks)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    write_vocabulary(writer, vocabulary)
    return writer


def transformer_shapes(
    vocabulary: TinyVocabulary, blocks: int, norms: Sequence[str], *, width: int = WIDTH
) -> dict[str, Shape]:
    """The tensors that attention models share."""
    shapes: dict[str, Shape] = {
        "token_embd": (len(vocabulary.tokens), width),
        "output_norm": (width,),
    }
    for block in range(blocks):
        shapes |= {f"blk.{block}.attn_{part}": (WIDTH, width) for part in "qkv"}
        shapes[f"blk.{block}.attn_output"] = (width, WIDTH)
        shapes |= {f"blk.{block}.ffn_{part}": (FORWARD, width) for part in ("gate", "up")}
        shapes[f"blk.{block}.ffn_down"] = (width, FORWARD)
        shapes |= {f"blk.{block}.{part}_norm": (width,) for part in norms}
    return shapes


def write_llama(path: Path, vocabulary: TinyVocabulary) -> Path:
    """A Llama of one block, whose output matrix is its embedding."""
    writer = open_writer(path, "llama", vocabulary, 1)
    return write_tensors(writer, path, transformer_shapes(vocabulary, 1, ("attn", "ffn")))


def write_mixture(path: Path, vocabulary: TinyVocabulary, experts: int = 4) -> Path:
    """A Llama of four blocks with experts, two of which each token uses."""
    writer = open_writer(path, "llama", vocabulary, 4)
    writer.add_expert_count(experts)
    writer.add_expert_used_count(2)
    shapes = transformer_shapes(vocabulary, 4, ("attn", "ffn"))
    for block in range(4):
        shapes[f"blk.{block}.ffn_gate_inp"] = (experts, WIDTH)
        for part in ("gate", "up", "down"):
            shape = shapes.pop(f"blk.{block}.ffn_{part}")
            shapes[f"blk.{block}.ffn_{part}_exps"] = (experts, *shape)
    return write_tensors(writer, path, shapes)


def write_gemma(path: Path, vocabulary: TinyVocabulary, window: int) -> Path:
    """A Gemma 2 of two blocks: one attends to the last `window` tokens only, one to all."""
    writer = open_writer(path, "gemma2", vocabulary, 2)
    writer.add_key_length(WIDTH // HEADS)
    writer.add_value_length(WIDTH // HEADS)
    writer.add_sliding_window(window)
    norms = ("attn", "post_attention", "ffn", "post_ffw")
    return write_tensors(writer, path, transformer_shapes(vocabulary, 2, norms))


HEAD_SIZE = 48
"""In models whose heads together are wider than the stream."""


def write_relative(
    path: Path, vocabulary: TinyVocabulary, architecture: str, blocks: int = 2, window: int = 8
) -> Path:
    """A model like a Llama, tied, with shared key heads and what its architecture has beside it.

    Args:
        architecture: `qwen2`, `qwen3` or `gemma3`.
        window: tokens that all but each sixth block of a Gemma attend to.
    """
    has_biases, is_gemma = architecture == "qwen2", architecture == "gemma3"
    size = WIDTH // HEADS if has_biases else HEAD_SIZE
    writer = GGUFWriter(path, architecture)
    writer.add_block_count(blocks)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(100000.0)
    if not has_biases:
        writer.add_key_length(size)
        writer.add_value_length(size)
    if is_gemma:
        writer.add_sliding_window(window)
    write_vocabulary(writer, vocabulary)
    output_norms = ("post_attention", "post_ffw") if is_gemma else ()
    shapes = transformer_shapes(vocabulary, blocks, ("attn", "ffn", *output_norms))
    for block in range(blocks):
        name = f"blk.{block}.attn"
        shapes |= {f"{name}_q": (HEADS * size, WIDTH), f"{name}_output": (WIDTH, HEADS * size)}
        shapes |= {f"{name}_k": (size, WIDTH), f"{name}_v": (size, WIDTH)}
        if has_biases:
            shapes |= {f"{name}_{part}.bias": shapes[f"{name}_{part}"][:1] for part in "qkv"}
        else:
            shapes |= {f"{name}_{part}_norm": (size,) for part in "qk"}
    return write_tensors(writer, path, shapes)


def write_gpt2(path: Path, vocabulary: TinyVocabulary, context: int) -> Path:
    """A GPT-2 of two blocks, which knows no position from `context` on."""
    writer = GGUFWriter(path, "gpt2")
    writer.add_block_count(2)
    writer.add_context_length(context)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(FORWARD)
    writer.add_head_count(HEADS)
    writer.add_layer_norm_eps(1e-5)
    write_vocabulary(writer, vocabulary)
    biased: dict[str, Shape] = {"output_norm": (WIDTH,)}
    for block in range(2):
        parts = {
            "attn_norm": (WIDTH,),
            "attn_qkv": (3 * WIDTH, WIDTH),
            "attn_output": (WIDTH, WIDTH),
            "ffn_norm": (WIDTH,),
            "ffn_up": (FORWARD, WIDTH),
            "ffn_down": (WIDTH, FORWARD),
        }
        biased |= {f"blk.{block}.{part}": shape for part, shape in parts.items()}
    shapes: dict[str, Shape] = {
        "token_embd": (len(vocabulary.tokens), WIDTH),
        "position_embd": (context, WIDTH),
        **biased,
        **{f"{name}.bias": shape[:1] for name, shape in biased.items()},
    }
    return write_tensors(writer, path, shapes)


def write_mamba(path: Path, vocabulary: TinyVocabulary) -> Path:
    """A recurrent model, whose cache is one state and cannot be rewound."""
    inner, state, rank, kernel = 2 * WIDTH, 8, 4, 4
    writer = GGUFWriter(path, "mamba")
    writer.add_block_count(1)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(0)
    writer.add_head_count(0)
    writer.add_ssm_conv_kernel(kernel)
    writer.add_ssm_inner_size(inner)
    writer.add_ssm_state_size(state)
    writer.add_ssm_time_step_rank(rank)
    writer.add_layer_norm_rms_eps(1e-5)
    write_vocabulary(writer, vocabulary)
    shapes: dict[str, Shape] = {
        "token_embd": (len(vocabulary.tokens), WIDTH),
        "output_norm": (WIDTH,),
        "blk.0.attn_norm": (WIDTH,),
        "blk.0.ssm_in": (2 * inner, WIDTH),
        "blk.0.ssm_conv1d": (inner, kernel),
        "blk.0.ssm_conv1d.bias": (inner,),
        "blk.0.ssm_x": (rank + 2 * state, inner),
        "blk.0.ssm_dt": (inner, rank),
        "blk.0.ssm_dt.bias": (inner,),
        "blk.0.ssm_a": (inner, state),
        "blk.0.ssm_d": (inner,),
        "blk.0.ssm_out": (WIDTH, inner),
    }
    return write_tensors(writer, path, shapes)


def write_bert(
    path: Path,
    vocabulary: TinyVocabulary,
    *,
    width: int = WIDTH,
    context: int = 64,
    pooling: PoolingType = PoolingType.MEAN,
) -> Path:
    """An embedding model of one block, which attends both ways."""
    writer = GGUFWriter(path, "bert")
    writer.add_block_count(1)
    writer.add_context_length(context)
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(FORWARD)
    writer.add_head_count(HEADS)
    writer.add_layer_norm_eps(1e-5)
    writer.add_causal_attention(False)
    writer.add_pooling_type(pooling)
    writer.add_token_type_count(1)
    write_vocabulary(writer, vocabulary)
    shapes: dict[str, Shape] = {
        "token_embd": (len(vocabulary.tokens), width),
        "token_types": (1, width),
        "position_embd": (context, width),
        "token_embd_norm": (width,),
        "token_embd_norm.bias": (width,),
    }
    parts: dict[str, Shape] = {
        **{f"attn_{part}": (width, width) for part in ATTENTION},
        "attn_output_norm": (width,),
        "ffn_up": (FORWARD, width),
        "ffn_down": (width, FORWARD),
        "layer_output_norm": (width,),
    }
    for part, shape in parts.items():
        shapes |= {f"blk.0.{part}": shape, f"blk.0.{part}.bias": shape[:1]}
    return write_tensors(writer, path, shapes)


def write_tensors(writer: GGUFWriter, path: Path, shapes: dict[str, Shape]) -> Path:
    """Write random float32 tensors: norms near one, state matrices negative."""
    random = np.random.default_rng(11)
    for name, shape in shapes.items():
        data = random.standard_normal(shape).astype(np.float32) / np.float32(shape[-1] ** 0.5)
        if name.endswith("norm"):
            data = 1 + data / 10
        if name.endswith("ssm_a"):
            data = -np.abs(data) - 1
        is_weight = not name.endswith(("bias", "ssm_a", "ssm_d"))
        writer.add_tensor(f"{name}.weight" if is_weight else name, data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path

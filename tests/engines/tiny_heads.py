"""Writes tiny GGUF models with random weights that have prediction heads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from gguf import GGUFWriter

from engines.llama.gguf import DFLASH, DRAFT_VOCABULARY, EAGLE
from tests.engines.tiny import (
    ATTENTION,
    CONTEXT,
    FORWARD,
    HEADS,
    WIDTH,
    Shape,
    TinyVocabulary,
    open_writer,
    transformer_shapes,
    write_tensors,
)

HEAD = WIDTH // HEADS
ASSISTANT_WIDTH = 48
STATE, GROUPS, KERNEL = 16, 2, 4
"""Of a linear attention layer."""
POST_NORMS = ("attn", "post_attention")
RANK = 8
"""Of a DSpark drafter's Markov head."""


def write_depth_heads(path: Path, vocabulary: TinyVocabulary, heads: int) -> Path:
    """A Step-3.5 of two blocks with a head for each depth, or one that is chained."""
    architecture, blocks = "step35", 2
    writer = _open(path, architecture, vocabulary, blocks, heads)
    _add_window(writer, architecture, [True] + [False] * (blocks + heads - 1))
    writer.add_expert_feed_forward_length(FORWARD)
    shapes = transformer_shapes(vocabulary, blocks + heads, ("attn", "ffn"))
    shapes["output"] = shapes["token_embd"]
    for block in range(blocks, blocks + heads):
        shapes |= _head(block)
    return write_tensors(writer, path, shapes)


def write_mixture(path: Path, vocabulary: TinyVocabulary, heads: int = 1) -> Path:
    """A GLM-4.5: one dense block, and a head whose feed-forward layer is a mixture of experts."""
    writer = _open(path, "glm4moe", vocabulary, 1, heads)
    writer.add_expert_count(2)
    writer.add_expert_used_count(1)
    writer.add_expert_shared_count(1)
    writer.add_leading_dense_block_count(1)
    writer.add_expert_feed_forward_length(FORWARD)
    shapes = transformer_shapes(vocabulary, 1, POST_NORMS)
    for block in range(1, 1 + heads):
        shapes |= _head(block)
        shapes |= {f"blk.{block}.attn_{part}": (WIDTH, WIDTH) for part in ATTENTION}
        shapes |= {f"blk.{block}.{part}_norm": (WIDTH,) for part in POST_NORMS}
        shapes |= {f"blk.{block}.ffn_gate_inp": (2, WIDTH), f"blk.{block}.exp_probs_b.bias": (2,)}
        for part, shape in _forward().items():
            shapes |= {f"blk.{block}.ffn_{part}_exps": (2, *shape)}
            shapes |= {f"blk.{block}.ffn_{part}_shexp": shape}
    return write_tensors(writer, path, shapes)


def write_hybrid(path: Path, vocabulary: TinyVocabulary) -> Path:
    """A Qwen3.5 of two blocks, the first of which is recurrent, and a head."""
    inner, mixed = STATE * GROUPS, 3 * STATE * GROUPS
    writer = _open(path, "qwen35", vocabulary, 2, 1)
    writer.add_rope_dimension_sections([4, 4, 4, 4])
    writer.add_uint32("qwen35.full_attention_interval", 2)
    writer.add_ssm_conv_kernel(KERNEL)
    writer.add_ssm_inner_size(inner)
    writer.add_ssm_state_size(STATE)
    writer.add_ssm_time_step_rank(GROUPS)
    writer.add_ssm_group_count(GROUPS)
    shapes: dict[str, Shape] = {
        "token_embd": (len(vocabulary.tokens), WIDTH),
        "output_norm": (WIDTH,),
        "blk.0.attn_qkv": (mixed, WIDTH),
        "blk.0.attn_gate": (inner, WIDTH),
        "blk.0.ssm_conv1d": (mixed, KERNEL),
        "blk.0.ssm_dt.bias": (GROUPS,),
        "blk.0.ssm_a": (GROUPS,),
        "blk.0.ssm_beta": (GROUPS, WIDTH),
        "blk.0.ssm_alpha": (GROUPS, WIDTH),
        "blk.0.ssm_norm": (STATE,),
        "blk.0.ssm_out": (WIDTH, inner),
    }
    for block in range(3):
        shapes |= {f"blk.{block}.{part}_norm": (WIDTH,) for part in POST_NORMS}
        shapes |= {f"blk.{block}.ffn_{part}": shape for part, shape in _forward().items()}
    for block in (1, 2):
        shapes |= {f"blk.{block}.attn_{part}": (WIDTH, WIDTH) for part in ("k", "v", "output")}
        shapes |= {f"blk.{block}.attn_q": (2 * WIDTH, WIDTH)}
        shapes |= {f"blk.{block}.attn_{part}_norm": (HEAD,) for part in ("q", "k")}
    return write_tensors(writer, path, shapes | _head(2))


def write_sharing(folder: Path, vocabulary: TinyVocabulary) -> Path:
    """A Gemma 4 of two blocks and, in a file beside it, heads that share its cache."""
    path, pattern = folder / "gemma.gguf", [True, False]
    norms = ("attn", "post_attention", "ffn", "post_ffw")
    writer = _open(path, "gemma4", vocabulary, 2, 0)
    _add_window(writer, "gemma4", pattern)
    writer.add_uint32("gemma4.embedding_length_per_layer_input", 0)
    shapes = transformer_shapes(vocabulary, 2, norms) | {"rope_freqs": (HEAD // 2,)}
    for block in range(2):
        shapes |= {f"blk.{block}.attn_{part}_norm": (HEAD,) for part in ("q", "k")}
    write_tensors(writer, path, shapes)

    architecture, width = "gemma4-assistant", ASSISTANT_WIDTH
    beside = folder / "mtp-gemma.gguf"
    writer = _open(beside, architecture, vocabulary, 0, 2, width=width)
    writer.add_uint32(f"{architecture}.embedding_length_out", WIDTH)
    _add_window(writer, architecture, pattern)
    shapes = {
        "token_embd": (len(vocabulary.tokens), width),
        "output_norm": (width,),
        "rope_freqs": (HEAD // 2,),
        "nextn.pre_projection": (width, 2 * WIDTH),
        "nextn.post_projection": (WIDTH, width),
    }
    for block in range(2):
        shapes |= {
            f"blk.{block}.attn_q": (WIDTH, width),
            f"blk.{block}.attn_output": (width, WIDTH),
        }
        shapes |= {f"blk.{block}.attn_q_norm": (HEAD,), f"blk.{block}.layer_output_scale": (1,)}
        shapes |= {f"blk.{block}.{part}_norm": (width,) for part in norms}
        shapes |= {f"blk.{block}.ffn_{part}": shape for part, shape in _forward(width).items()}
    write_tensors(writer, beside, shapes)
    return path


def write_four_blocks(path: Path, vocabulary: TinyVocabulary) -> Path:
    """A Llama of four blocks, for which the drafters below are."""
    writer = open_writer(path, "llama", vocabulary, 4)
    return write_tensors(writer, path, transformer_shapes(vocabulary, 4, ("attn", "ffn")))


def write_eagle(folder: Path, vocabulary: TinyVocabulary, *, drafted: int = 0) -> Path:
    """A Llama and, in a file beside it, its EAGLE-3 drafter."""
    write_eagle_drafter(folder / "llama-eagle3.gguf", vocabulary, drafted=range(5, 5 + drafted))
    return write_four_blocks(folder / "llama.gguf", vocabulary)


def write_eagle_drafter(
    path: Path,
    vocabulary: TinyVocabulary,
    *,
    drafted: Sequence[int] = (),
    layers: Sequence[int] = (0, 2, 3),
    reads: int = WIDTH,
) -> Path:
    """An EAGLE-3 drafter.

    Args:
        drafted: the only tokens that it can draft, for which it has an output matrix; none for all,
            with its target's matrix.
        layers: the target's layers whose inputs it reads.
        reads: width of its target.
    """
    writer = open_writer(path, EAGLE, vocabulary, 1)
    writer.add_array(f"{EAGLE}.target_layers", list(layers))
    writer.add_uint32(f"{EAGLE}.target_hidden_size", reads)
    shapes = transformer_shapes(vocabulary, 1, ("attn", "ffn"))
    shapes |= {"fc": (WIDTH, 3 * reads), "blk.0.attn_norm_2": (WIDTH,)}
    shapes |= {f"blk.0.attn_{part}": (WIDTH, 2 * WIDTH) for part in "qkv"}
    del shapes["token_embd"]
    if drafted:
        shapes["output"] = (len(drafted), WIDTH)
        writer.add_tensor(DRAFT_VOCABULARY, np.array(drafted, np.int64))
    return write_tensors(writer, path, shapes)


def write_dflash(
    folder: Path, vocabulary: TinyVocabulary, *, drafted: int = 0, markov: bool = False
) -> Path:
    """A Llama and, in a file beside it, its DFlash drafter."""
    beside, some = folder / "llama-dflash.gguf", range(5, 5 + drafted)
    write_dflash_drafter(beside, vocabulary, drafted=some, markov=markov)
    return write_four_blocks(folder / "llama.gguf", vocabulary)


def write_dflash_drafter(
    path: Path,
    vocabulary: TinyVocabulary,
    *,
    drafted: Sequence[int] = (),
    layers: Sequence[int] = (1, 3),
    reads: int = WIDTH,
    block: int = 6,
    mask: int = 0,
    markov: bool = False,
    dimensions: int = 1,
) -> Path:
    """A DFlash drafter of two layers.

    Args:
        drafted, layers, reads: see `write_eagle_drafter`.
        block: tokens of its block, the root included.
        mask: the token that stands for tokens to be drafted; negative if the file names none.
        markov: write a DSpark drafter.
        dimensions: of its positions.
    """
    writer = open_writer(path, DFLASH, vocabulary, 2, width=reads)
    writer.add_key_length(HEAD)
    writer.add_value_length(HEAD)
    writer.add_array(f"{DFLASH}.target_layers", list(layers))
    writer.add_uint32(f"{DFLASH}.block_size", block)
    if mask >= 0:
        writer.add_uint32("tokenizer.ggml.mask_token_id", mask)
    if dimensions > 1:
        writer.add_rope_dimension_sections([HEAD // 2, *[0] * (dimensions - 1)])
    shapes = transformer_shapes(vocabulary, 2, ("attn", "ffn"), width=reads)
    shapes |= {"fc": (reads, len(layers) * reads), "enc.output_norm": (reads,)}
    for number in range(2):
        shapes |= {f"blk.{number}.attn_{part}_norm": (HEAD,) for part in "qk"}
    del shapes["token_embd"]
    if markov:
        tokens = len(vocabulary.tokens)
        shapes |= {"markov_w1": (tokens, RANK), "markov_w2": (len(drafted) or tokens, RANK)}
        shapes |= {"conf_proj": (1, reads + RANK), "conf_proj.bias": (1,)}
    if drafted:
        shapes["output"] = (len(drafted), reads)
        writer.add_tensor(DRAFT_VOCABULARY, np.array(drafted, np.int64))
    return write_tensors(writer, path, shapes)


def _open(
    path: Path,
    architecture: str,
    vocabulary: TinyVocabulary,
    blocks: int,
    heads: int,
    *,
    width: int = WIDTH,
) -> GGUFWriter:
    writer = open_writer(path, architecture, vocabulary, blocks + heads, width=width)
    writer.add_key_length(HEAD)
    writer.add_value_length(HEAD)
    if heads:
        writer.add_uint32(f"{architecture}.nextn_predict_layers", heads)
    return writer


def _add_window(writer: GGUFWriter, architecture: str, pattern: list[bool]) -> None:
    writer.add_sliding_window(CONTEXT)
    writer.add_array(f"{architecture}.attention.sliding_window_pattern", pattern)
    for part in ("key", "value"):
        writer.add_uint32(f"{architecture}.attention.{part}_length_swa", HEAD)


def _head(block: int) -> dict[str, Shape]:
    """What a block needs to be a head."""
    norms = ("enorm", "hnorm", "shared_head_norm")
    shapes: dict[str, Shape] = {f"blk.{block}.nextn.{part}": (WIDTH,) for part in norms}
    return shapes | {f"blk.{block}.nextn.eh_proj": (WIDTH, 2 * WIDTH)}


def _forward(width: int = WIDTH) -> dict[str, Shape]:
    return {"gate": (FORWARD, width), "up": (FORWARD, width), "down": (width, FORWARD)}

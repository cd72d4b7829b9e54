"""Tiny GGUF models with random weights of the recurrent and hybrid architectures.

Two or three blocks each, the first of them recurrent; hybrid ones have a block of attention. What
each architecture needs follows llama.cpp's `load_arch_hparams` and `load_arch_tensors`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from gguf import GGUFWriter

from tests.engines.tiny import (
    CONTEXT,
    FORWARD,
    HEADS,
    WIDTH,
    Shape,
    TinyVocabulary,
    write_mamba,
    write_tensors,
    write_vocabulary,
)

KERNEL, STATE, GROUPS, RANK, INNER = 4, 16, 1, 4, 2 * WIDTH
HEAD, LORA = WIDTH // HEADS, 8
Shapes = dict[str, Shape]


class Family(NamedTuple):
    """An architecture.

    Attributes:
        rollback: whether llama.cpp keeps snapshots of its state.
        values: metadata of its own: integers, or lists with one for each block.
        blocks: the tensors of each block.
        others: further tensors, without the embedding and the norm before the output.
    """

    rollback: bool
    values: dict[str, int | list[int]]
    blocks: list[Shapes]
    others: Shapes


def _mamba2() -> Shapes:
    mixed = INNER + 2 * GROUPS * STATE
    return {
        "attn_norm": (WIDTH,),
        "ssm_in": (INNER + mixed + RANK, WIDTH),
        "ssm_conv1d": (mixed, KERNEL),
        "ssm_conv1d.bias": (mixed,),
        "ssm_dt.bias": (RANK,),
        "ssm_a": (RANK, 1),
        "ssm_d": (RANK, 1),
        "ssm_norm": (GROUPS, INNER // GROUPS),
        "ssm_out": (WIDTH, INNER),
    }


def _attention(*, query: int = WIDTH) -> Shapes:
    return {
        "attn_norm": (WIDTH,),
        "attn_q": (query, WIDTH),
        "attn_k": (WIDTH, WIDTH),
        "attn_v": (WIDTH, WIDTH),
        "attn_output": (WIDTH, WIDTH),
    }


def _forward(norm: str = "ffn_norm") -> Shapes:
    return {
        norm: (WIDTH,),
        "ffn_gate": (FORWARD, WIDTH),
        "ffn_up": (FORWARD, WIDTH),
        "ffn_down": (WIDTH, FORWARD),
    }


def _delta_net() -> Shapes:
    key, value = STATE * GROUPS, STATE * RANK
    return {
        "attn_norm": (WIDTH,),
        "attn_qkv": (2 * key + value, WIDTH),
        "attn_gate": (value, WIDTH),
        "ssm_conv1d": (2 * key + value, KERNEL),
        "ssm_dt.bias": (RANK,),
        "ssm_a": (RANK,),
        "ssm_beta": (RANK, WIDTH),
        "ssm_alpha": (RANK, WIDTH),
        "ssm_norm": (STATE,),
        "ssm_out": (WIDTH, value),
    }


def _short_convolution() -> Shapes:
    return {
        "attn_norm": (WIDTH,),
        "shortconv.conv": (WIDTH, KERNEL),
        "shortconv.in_proj": (3 * WIDTH, WIDTH),
        "shortconv.out_proj": (WIDTH, WIDTH),
    }


def _rwkv7() -> Shapes:
    vectors = ("w0", "a0", "v0", "k_k", "k_a", "r_k", "ln", "ln.bias")
    shapes: Shapes = {f"time_mix_{name}": (WIDTH,) for name in vectors}
    shapes |= {f"time_mix_{name}1": (LORA, WIDTH) for name in "wavg"}
    shapes |= {f"time_mix_{name}2": (WIDTH, LORA) for name in "wavg"}
    for name in ("key", "value", "receptance", "output"):
        shapes[f"time_mix_{name}"] = (WIDTH, WIDTH)
    for norm in ("attn_norm", "attn_norm_2"):
        shapes |= {norm: (WIDTH,), f"{norm}.bias": (WIDTH,)}
    return shapes | {
        "time_mix_lerp_fused": (6, 1, 1, WIDTH),
        "channel_mix_lerp_k": (1, 1, WIDTH),
        "channel_mix_key": (FORWARD, WIDTH),
        "channel_mix_value": (WIDTH, FORWARD),
    }


_SSM: dict[str, int | list[int]] = {
    "ssm.conv_kernel": KERNEL,
    "ssm.inner_size": INNER,
    "ssm.state_size": STATE,
    "ssm.time_step_rank": RANK,
    "ssm.group_count": GROUPS,
}
_SECOND_ATTENDS: dict[str, int | list[int]] = {"attention.head_count_kv": [0, HEADS]}
_HEAD_NORMS: Shapes = {"attn_q_norm": (HEAD,), "attn_k_norm": (HEAD,)}
_RWKV: dict[str, int | list[int]] = {
    "wkv.head_size": WIDTH,
    "token_shift_count": 2,
    "attention.head_count": 0,
    **{
        f"attention.{name}_lora_rank": LORA
        for name in ("decay", "iclr", "value_residual_mix", "gate")
    },
}

FAMILIES: dict[str, Family] = {
    "qwen35": Family(
        True,
        {
            **_SSM,
            "ssm.inner_size": STATE * RANK,
            "full_attention_interval": 2,
            "attention.key_length": HEAD,
            "attention.value_length": HEAD,
            "rope.dimension_sections": [HEAD // 8] * 4,
        },
        [
            _delta_net() | _forward("post_attention_norm"),
            _attention(query=2 * WIDTH) | _HEAD_NORMS | _forward("post_attention_norm"),
        ],
        {},
    ),
    "nemotron_h": Family(
        True,
        {
            **_SSM,
            "attention.head_count_kv": [0, HEADS, 0],
            "feed_forward_length": [0, 0, FORWARD],
        },
        [
            _mamba2(),
            _attention(),
            {"attn_norm": (WIDTH,), "ffn_up": (FORWARD, WIDTH), "ffn_down": (WIDTH, FORWARD)},
        ],
        {},
    ),
    "lfm2": Family(
        True,
        {"shortconv.l_cache": KERNEL, **_SECOND_ATTENDS},
        [_short_convolution() | _forward(), _attention() | _HEAD_NORMS | _forward()],
        {},
    ),
    "granitehybrid": Family(
        False,
        {**_SSM, **_SECOND_ATTENDS},
        [_mamba2() | _forward(), _attention() | _forward()],
        {},
    ),
    "mamba2": Family(False, {**_SSM, "attention.head_count": 0}, [_mamba2(), _mamba2()], {}),
    "rwkv7": Family(
        False,
        _RWKV,
        [_rwkv7(), _rwkv7()],
        {"token_embd_norm": (WIDTH,), "token_embd_norm.bias": (WIDTH,)},
    ),
}
"""Those of `write_recurrent`, beside `mamba`, by llama.cpp's names."""

KINDS = (*FAMILIES, "mamba")


def write_recurrent(folder: Path, kind: str) -> Path:
    """A model of one of `KINDS`."""
    path, vocabulary = folder / f"{kind}.gguf", TinyVocabulary()
    if kind == "mamba":
        return write_mamba(path, vocabulary)
    family = FAMILIES[kind]
    writer = GGUFWriter(path, kind)
    writer.add_block_count(len(family.blocks))
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_layer_norm_eps(1e-5)
    writer.add_rope_dimension_count(HEAD)
    write_vocabulary(writer, vocabulary)
    common = {"feed_forward_length": FORWARD, "attention.head_count": HEADS}
    for key, value in {**common, **family.values}.items():
        add: Callable[[str, object], None] = (
            writer.add_array if isinstance(value, list) else writer.add_uint32  # type: ignore[assignment]
        )
        add(f"{kind}.{key}", value)
    size = len(vocabulary.tokens)
    last = "token_embd_norm" if kind == "lfm2" else "output_norm"
    shapes: Shapes = {"token_embd": (size, WIDTH), last: (WIDTH,), "output": (size, WIDTH)}
    if kind == "rwkv7":
        shapes["output_norm.bias"] = (WIDTH,)
    shapes |= family.others
    for number, block in enumerate(family.blocks):
        shapes |= {f"blk.{number}.{name}": shape for name, shape in block.items()}
    return write_tensors(writer, path, shapes)

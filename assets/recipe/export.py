"""Writes a trained model as one F16 GGUF file for llama.cpp, transformers and `specchat`.

Owns the names of the files and their layout. llama.cpp rotates adjacent pairs where training
rotates halves, so the rows of q and k are rearranged.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import gguf
import numpy as np
import torch
from torch import Tensor

from assets.recipe.settings import Shape
from assets.recipe.tokens import CHAT_TEMPLATE, END_OF_TEXT, IM_END, SPECIALS
from assets.recipe.training import load_weights
from engines.distillation.weights import interleave

TARGET_FILE = "target-f16.gguf"
STUDENT_FILE = "student-f16.gguf"

_BLOCK = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "q_proj": "attn_q",
    "k_proj": "attn_k",
    "v_proj": "attn_v",
    "o_proj": "attn_output",
    "gate_proj": "ffn_gate",
    "up_proj": "ffn_up",
    "down_proj": "ffn_down",
}


def export(checkpoint: Path, tokenizer: Path, shape: Shape, name: str, path: Path) -> None:
    """Write the model in ``checkpoint`` to ``path``, replacing the file atomically."""
    weights = load_weights(checkpoint)
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    writer = gguf.GGUFWriter(fresh, "llama")
    _describe(writer, shape, name)
    _add_tokenizer(writer, tokenizer)
    for key, weight in weights.items():
        _add_tensor(writer, key, weight, shape)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    os.replace(fresh, path)


def _describe(writer: gguf.GGUFWriter, shape: Shape, name: str) -> None:
    writer.add_name(name)
    writer.add_license("cc-by-4.0")
    writer.add_author("tldr-pages contributors (text), specchat (recipe)")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_block_count(shape.layers)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_feed_forward_length(shape.hidden)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.heads)
    writer.add_layer_norm_rms_eps(shape.epsilon)
    writer.add_rope_freq_base(shape.rope_base)
    writer.add_rope_dimension_count(shape.width // shape.heads)
    writer.add_vocab_size(shape.vocabulary)


def _add_tokenizer(writer: gguf.GGUFWriter, path: Path) -> None:
    model = json.loads(path.read_text(encoding="utf-8"))["model"]
    tokens = sorted(model["vocab"], key=lambda token: int(model["vocab"][token]))
    control, normal = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([control if token in SPECIALS else normal for token in tokens])
    writer.add_token_merges(merges)
    writer.add_bos_token_id(END_OF_TEXT)
    writer.add_eos_token_id(IM_END)
    writer.add_pad_token_id(END_OF_TEXT)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)


def _add_tensor(writer: gguf.GGUFWriter, key: str, weight: Tensor, shape: Shape) -> None:
    if key == "embed_tokens":
        name = "token_embd"
    elif key == "norm":
        name = "output_norm"
    else:
        _, number, part = key.split(".")
        name = f"blk.{number}.{_BLOCK[part]}"
        if part in ("q_proj", "k_proj"):
            weight = interleave(weight, shape.heads)
    kind = torch.float16 if weight.ndim == 2 else torch.float32
    writer.add_tensor(f"{name}.weight", np.ascontiguousarray(weight.to(kind).numpy()))

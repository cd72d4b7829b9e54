"""``python -m assets.recipe.embedding_model FOLDER FILE``: an embedding model as one GGUF file.

FOLDER holds a BERT model with mean pooling as sentence-transformers saves it (config.json,
tokenizer.json, model.safetensors). Nothing is trained. Matrices become 8-bit (Q8_0), which changes
an inner product by .003 at most and halves the file; the rest stays as it is.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from safetensors.numpy import load_file

WORD_BEGINS, WORD_GOES_ON = "▁", "##"
"""llama.cpp marks pieces that begin a word, BERT those that continue one."""
SPECIALS = {"[CLS]": "bos", "[UNK]": "unknown", "[SEP]": "seperator", "[PAD]": "padding"}
"""BERT's special tokens and their keys in GGUF; "seperator" is the spelling of the format."""
TOKEN_TYPES = 2
EMBEDDINGS = {
    "word_embeddings.weight": "token_embd.weight",
    "position_embeddings.weight": "position_embd.weight",
    "token_type_embeddings.weight": "token_types.weight",
    "LayerNorm.weight": "token_embd_norm.weight",
    "LayerNorm.bias": "token_embd_norm.bias",
}
LAYER = {
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
}


def convert(folder: Path, path: Path, name: str, license: str) -> None:
    """Write the model in ``folder`` to ``path``.

    Raises:
        OSError: a file is missing.
        KeyError: the model is not BERT.
    """
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    vocabulary = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["model"]
    weights = load_file(folder / "model.safetensors")
    writer = gguf.GGUFWriter(path, "bert")
    writer.add_name(name)
    writer.add_license(license)
    _add_shape(writer, config)
    _add_tokenizer(writer, vocabulary["vocab"])
    for ours, theirs in _tensors(config["num_hidden_layers"]):
        _add_tensor(writer, theirs, weights[ours].astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_shape(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_layer_norm_eps(config["layer_norm_eps"])
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType.MEAN)
    writer.add_token_type_count(TOKEN_TYPES)


def _add_tokenizer(writer: gguf.GGUFWriter, vocabulary: dict[str, int]) -> None:
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    control, normal = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([_piece(token) for token in tokens])
    writer.add_token_types([control if _is_special(token) else normal for token in tokens])
    for token, key in SPECIALS.items():
        writer.add_uint32(f"tokenizer.ggml.{key}_token_id", vocabulary[token])


def _piece(token: str) -> str:
    if _is_special(token):
        return token
    return (
        token.removeprefix(WORD_GOES_ON) if token.startswith(WORD_GOES_ON) else WORD_BEGINS + token
    )


def _is_special(token: str) -> bool:
    return len(token) > 2 and token.startswith("[") and token.endswith("]")


def _tensors(layers: int) -> Iterator[tuple[str, str]]:
    """Each tensor's name in the folder and in GGUF."""
    for theirs, ours in EMBEDDINGS.items():
        yield f"embeddings.{theirs}", ours
    for layer in range(layers):
        for theirs, ours in LAYER.items():
            for kind in ("weight", "bias"):
                yield f"encoder.layer.{layer}.{theirs}.{kind}", f"blk.{layer}.{ours}.{kind}"


def _add_tensor(writer: gguf.GGUFWriter, name: str, data: Any) -> None:
    """Add a tensor: 8-bit if it is a multiplied matrix whose rows fill whole blocks, else exact."""
    kind = gguf.GGMLQuantizationType.Q8_0
    multiplies = data.ndim == 2 and not name.startswith(("position_embd", "token_types"))
    if multiplies and data.shape[-1] % gguf.GGML_QUANT_SIZES[kind][0] == 0:
        writer.add_tensor(name, gguf.quants.quantize(data, kind), raw_dtype=kind)
    else:
        writer.add_tensor(name, data)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("file", type=Path)
    parser.add_argument("--name", default="all-MiniLM-L6-v2")
    parser.add_argument("--license", default="apache-2.0")
    given = parser.parse_args(arguments)
    convert(given.folder, given.file, given.name, given.license)


if __name__ == "__main__":
    main()

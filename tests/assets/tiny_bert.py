"""Writes a tiny BERT with random weights as sentence-transformers does, without its vectors."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import BertConfig, BertModel

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def save_bert(
    folder: Path, words: Sequence[str], *, length: int = 32, layers: int = 2, spread: float = 0.3
) -> BertModel:
    """The model of `words`, which begin with `SPECIALS`.

    Args:
        length: tokens of its longest text.
        spread: standard deviation of its weights.
    """
    torch.manual_seed(7)
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=64,
        num_hidden_layers=layers,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=length,
        initializer_range=spread,
    )
    model: BertModel = BertModel(config, add_pooling_layer=False)
    model.eval()
    model.save_pretrained(folder)
    vocabulary = {word: number for number, word in enumerate(words)}
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": vocabulary}}))
    return model

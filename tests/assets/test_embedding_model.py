"""The converted embedding model computes what the original does, and tells texts apart."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from app.models.discovery import embedded_embedding_model
from assets.recipe.embedding_model import main
from engines.llama.embedding import EmbeddingModel
from engines.llama.unrelated_texts import ANSWERS, QUESTIONS, compare_unrelated

WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "walrus", "##es", "sleep", "eat", "fish")
TEXTS = ("walruses sleep", "eat fish", "sleep", "walrus eat fish")


def test_a_converted_model_gives_the_same_vectors(tmp_path: Path) -> None:
    import torch
    from transformers import BertConfig, BertModel

    torch.manual_seed(7)
    config = BertConfig(
        vocab_size=len(WORDS),
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=32,
        initializer_range=0.3,
    )
    original = BertModel(config, add_pooling_layer=False).eval()
    original.save_pretrained(tmp_path)
    vocabulary = {word: number for number, word in enumerate(WORDS)}
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": {"vocab": vocabulary}}))
    main([str(tmp_path), str(tmp_path / "model.gguf"), "--name", "tiny"])
    found = EmbeddingModel(tmp_path / "model.gguf", threads=1).encode_passages(TEXTS)
    for text, vector in zip(TEXTS, found, strict=True):
        pieces = text.replace("walruses", "walrus ##es").split()
        ids = torch.tensor([[vocabulary[piece] for piece in ("[CLS]", *pieces, "[SEP]")]])
        with torch.no_grad():
            wanted = original(ids).last_hidden_state[0].mean(0).numpy()
        assert vector @ wanted / np.linalg.norm(wanted) == pytest.approx(1, abs=2e-3)


def test_the_shipped_one_finds_answers_that_share_no_words() -> None:
    model = EmbeddingModel(embedded_embedding_model(), threads=2)
    scale = compare_unrelated(model)
    products = model.encode_queries(QUESTIONS) @ model.encode_passages(ANSWERS).T
    beyond = (np.diag(products) - scale.mean) / scale.deviation
    assert np.median(beyond) > 4
    first = products.argmax(axis=1) == np.arange(len(QUESTIONS))
    assert first.mean() >= 0.9

"""The converted embedding model computes what the original does, and tells texts apart."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from app.models.discovery import embedded_embedding_model
from assets.recipe.embedding_model import main
from datastores.passages.embeddings import signs_of
from engines.llama.embedding import EmbeddingModel
from engines.llama.unrelated_texts import ANSWERS, QUESTIONS, compare_unrelated
from engines.retrieval.late_interaction import AskedTokens, similarity

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
    for text, encoding in zip(TEXTS, found, strict=True):
        pieces = text.replace("walruses", "walrus ##es").split()
        ids = torch.tensor([[vocabulary[piece] for piece in ("[CLS]", *pieces, "[SEP]")]])
        with torch.no_grad():
            states = original(ids).last_hidden_state[0].numpy()
        wanted = np.array([states.mean(0), *states])
        wanted /= np.linalg.norm(wanted, axis=1, keepdims=True)
        given = np.array([encoding.vector, *encoding.states])
        assert (given * wanted).sum(axis=1) == pytest.approx(np.ones(len(wanted)), abs=2e-3)


def test_the_shipped_one_finds_answers_that_share_no_words() -> None:
    model = EmbeddingModel(embedded_embedding_model(), threads=2)
    scale, of_tokens = compare_unrelated(model)
    asked, said = model.encode_queries(QUESTIONS), model.encode_passages(ANSWERS)
    products = np.array([one.vector for one in asked]) @ np.array([one.vector for one in said]).T
    beyond = (np.diag(products) - scale.mean) / scale.deviation
    assert np.median(beyond) > 4
    first = products.argmax(axis=1) == np.arange(len(QUESTIONS))
    assert first.mean() >= 0.9
    own = [
        similarity(AskedTokens(question.states).matches(signs_of(answer.states)))
        for question, answer in zip(asked, said, strict=True)
    ]
    assert np.median((np.array(own) - of_tokens.mean) / of_tokens.deviation) > 3

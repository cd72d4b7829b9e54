"""Texts become unit vectors, independently of their batch, and other models are rejected."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from gguf import PoolingType
from llama_cpp import llama_cpp as lib

from datastores.errors import ModelError
from engines.llama.batch import Batch, evaluate
from engines.llama.context import context_parameters, open_context
from engines.llama.embedding import MAX_TEXTS, EmbeddingModel
from engines.target import Floats
from tests.engines.tiny import WIDTH, TinyVocabulary, write_bert

WORDS = ("walrus", "telescope", "bread", "bakes", "keeps", "attic")
CONTEXT = 24


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pieces = [f"▁{word}" for word in WORDS]
    path = tmp_path_factory.mktemp("embedding") / "tiny-nomic.gguf"
    return write_bert(path, TinyVocabulary(pieces=pieces), context=CONTEXT)


@pytest.fixture(scope="module")
def model(file: Path) -> EmbeddingModel:
    return EmbeddingModel(file, threads=1)


def test_vectors_have_unit_length_and_do_not_depend_on_the_batch(model: EmbeddingModel) -> None:
    texts = [f"{one} {other}" for one in WORDS for other in WORDS][: MAX_TEXTS + 3]
    encodings = model.encode_passages(texts)
    assert len(encodings) == len(texts)
    for one in encodings:
        assert (one.vector.shape, one.states.shape[1]) == ((WIDTH,), WIDTH)
        assert np.linalg.norm([one.vector, *one.states], axis=1) == pytest.approx(1.0, abs=1e-5)
    for row in (0, 7, len(texts) - 1):
        (alone,) = model.encode_passages([texts[row]])
        assert alone.vector == pytest.approx(encodings[row].vector, abs=1e-3)
        assert alone.states == pytest.approx(encodings[row].states, abs=1e-3)
    assert model.encode_passages([]) == []
    assert model.encode([]).shape == (0, WIDTH)


@pytest.mark.parametrize(
    ("kind", "pool"),
    [
        (PoolingType.MEAN, lambda states: states.mean(0)),
        (PoolingType.CLS, lambda states: states[0]),
        (PoolingType.LAST, lambda states: states[-1]),
    ],
)
def test_states_are_pooled_as_llama_cpp_does(
    tmp_path: Path, kind: PoolingType, pool: Callable[[Floats], Floats]
) -> None:
    pieces = [f"▁{word}" for word in WORDS]
    file = write_bert(tmp_path / "tiny.gguf", TinyVocabulary(pieces=pieces), pooling=kind)
    model = EmbeddingModel(file, threads=1)
    parameters = context_parameters(32, 32, 1, 1, 0)
    parameters.pooling_type = lib.LLAMA_POOLING_TYPE_UNSPECIFIED
    context, batch = open_context(model._weights, parameters), Batch(32)
    batch.fill([model._tokenize("walrus keeps bread")])
    evaluate(context, batch, file)
    vector = np.ctypeslib.as_array(lib.llama_get_embeddings_seq(context, 0), (WIDTH,))
    (found,) = model.encode(["walrus keeps bread"])
    assert found == pytest.approx(vector / np.linalg.norm(vector), abs=1e-5)


def test_a_text_beyond_the_models_length_is_cut_at_its_end(model: EmbeddingModel) -> None:
    long = "walrus " * 5_000
    short = model.encode(["walrus " * CONTEXT, "attic", ""])
    assert model.encode([long])[0] == pytest.approx(short[0], abs=1e-3)
    assert np.isfinite(short).all()


def test_queries_and_passages_have_the_models_own_prefixes(
    model: EmbeddingModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    encode = model._vocabulary.encode

    def spied(text: str, **options: bool) -> list[int]:
        seen.append(text)
        return encode(text, **options)

    monkeypatch.setattr(model._vocabulary, "encode", spied)
    model.encode_queries(["walrus"])
    model.encode_passages(["walrus"])
    assert seen == ["search_query: walrus", "search_document: walrus"]


def test_a_model_that_is_no_embedding_model_is_named(file: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no model file"):
        EmbeddingModel(tmp_path / "gone.gguf")
    (tmp_path / "damaged.gguf").write_bytes(file.read_bytes()[:2000])
    with pytest.raises(ModelError, match=r"damaged\.gguf cannot be loaded"):
        EmbeddingModel(tmp_path / "damaged.gguf")
    pieces = [f"▁{word}" for word in WORDS]
    ranks = write_bert(
        tmp_path / "rank.gguf", TinyVocabulary(pieces=pieces), pooling=PoolingType.RANK
    )
    with pytest.raises(ModelError, match="ranks texts instead of embedding"):
        EmbeddingModel(ranks)


def test_an_embedding_model_is_probed_as_one(file: Path, tmp_path: Path) -> None:
    cache = tmp_path / "models.json"
    EmbeddingModel(file, probe_cache=cache, threads=1)
    assert str(file) in cache.read_text()


def test_passes_that_run_at_once_give_the_same_encodings(file: Path) -> None:
    texts = [" ".join((WORDS * 3)[: 1 + number % 17]) for number in range(3 * MAX_TEXTS)]
    alone = EmbeddingModel(file, threads=1)
    several = EmbeddingModel(file, threads=3)
    assert (alone.parallel, several.parallel) == (1, 3)
    found = zip(alone.encode_passages(texts), several.encode_passages(texts), strict=True)
    for one, other in found:
        assert np.array_equal(one.states, other.states)
        assert np.array_equal(one.vector, other.vector)


def test_a_failure_in_one_of_several_passes_is_raised(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = EmbeddingModel(file, threads=2)
    texts = ["walrus"] * (2 * MAX_TEXTS)
    with monkeypatch.context() as patch:
        patch.setattr("engines.llama.native.decode", lambda context, batch: 1)
        with pytest.raises(ModelError, match="cannot be run"):
            model.encode_passages(texts)
    assert len(model.encode_passages(texts)) == len(texts)

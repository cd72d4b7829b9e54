"""Passages are scored for a question, independently of their batch; other models are rejected."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from gguf import PoolingType

from datastores.errors import ModelError
from engines.llama.cross_encoder import MAX_QUESTION_TOKENS, MAX_TOKENS, CrossEncoder
from tests.engines.tiny import TinyVocabulary, write_bert

VOCABULARY = TinyVocabulary(pieces=("▁",), add_space=False)
"""A token for each letter and space."""
LETTERS = "walrus keeps bread in the attic " * 20
QUESTION = "who keeps bread?"
PASSAGES = [LETTERS[start : 8 * start + 1] for start in range(24)]
"""With the question below and above 64 tokens."""


def write(path: Path, *, scores: int = 1, context: int = MAX_TOKENS) -> Path:
    return write_bert(path, VOCABULARY, context=context, pooling=PoolingType.RANK, scores=scores)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("ranking") / "tiny.gguf")


@pytest.fixture(scope="module")
def model(file: Path) -> CrossEncoder:
    return CrossEncoder(file, threads=1)


def test_a_score_depends_on_nothing_but_question_and_passage(
    model: CrossEncoder, file: Path
) -> None:
    passages = [*PASSAGES[12:], *PASSAGES[:12]]
    scores = model.log_odds(QUESTION, passages)
    assert len(set(scores)) == len(passages)
    assert scores == [model.log_odds(QUESTION, [passage])[0] for passage in passages]
    assert scores[::-1] == model.log_odds(QUESTION, passages[::-1])
    assert scores == CrossEncoder(file, threads=3).log_odds(QUESTION, passages)
    others = model.log_odds("attic bakes", passages)
    assert not set(others) & set(scores)
    assert model.log_odds(QUESTION, []) == []


def test_questions_from_several_threads_take_turns(model: CrossEncoder) -> None:
    wanted = model.log_odds(QUESTION, PASSAGES)
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda _: model.log_odds(QUESTION, PASSAGES), range(8)))
    assert found == [wanted] * 8


def test_long_questions_and_passages_are_cut_at_their_ends(model: CrossEncoder) -> None:
    question = LETTERS[:MAX_QUESTION_TOKENS]
    passage = LETTERS[9 : 9 + MAX_TOKENS - len(question) - len(("[CLS]", "[SEP]", "[SEP]"))]
    wanted, shorter = model.log_odds(question, [passage, passage[:-1]])
    assert shorter != wanted
    assert model.log_odds(question + "s", [passage + "s", passage + "s" * 9_000]) == [wanted] * 2
    assert model.log_odds(question[:-1], [passage]) != [wanted]
    assert model.log_odds(f"{QUESTION}? ", PASSAGES) == model.log_odds(QUESTION[:-1], PASSAGES)
    assert len(model.log_odds("", ["", "\udcff"])) == 2


def test_a_model_that_is_no_cross_encoder_is_named(file: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no model file"):
        CrossEncoder(tmp_path / "gone.gguf")
    (tmp_path / "damaged.gguf").write_bytes(file.read_bytes()[:2000])
    with pytest.raises(ModelError, match=r"damaged\.gguf is damaged"):
        CrossEncoder(tmp_path / "damaged.gguf")
    for number, other in enumerate(
        (
            write_bert(tmp_path / "embeds.gguf", VOCABULARY, context=MAX_TOKENS),
            write(tmp_path / "headless.gguf", scores=0),
            write(tmp_path / "two.gguf", scores=2),
            write(tmp_path / "short.gguf", context=MAX_TOKENS - 1),
        )
    ):
        with pytest.raises(ModelError, match=f"{other} does not score a passage"):
            CrossEncoder(other, probe_cache=tmp_path / "models.json" if number == 1 else None)


def test_a_score_that_is_not_finite_is_an_error(file: Path, tmp_path: Path) -> None:
    import gguf
    import numpy as np

    broken = tmp_path / "broken.gguf"
    broken.write_bytes(file.read_bytes())
    reader = gguf.GGUFReader(broken, "r+")
    (bias,) = (tensor for tensor in reader.tensors if tensor.name == "cls.output.bias")
    bias.data[:] = np.nan
    reader.data.flush()
    with pytest.raises(ModelError, match="gives no finite score"):
        CrossEncoder(broken, threads=1).log_odds(QUESTION, PASSAGES[:2])


def test_a_cross_encoder_is_probed_as_one(file: Path, tmp_path: Path) -> None:
    cache = tmp_path / "models.json"
    CrossEncoder(file, probe_cache=cache, threads=1)
    assert str(file) in cache.read_text()

"""A copy in BF16 encodes as the file does, is made where it is faster, and is deleted."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from llama_cpp import llama_cpp as lib

from app.models.discovery import embedded_embedding_model
from engines.llama.bf16_copy import bf16_copy
from engines.llama.embedding import EmbeddingModel
from engines.llama.unrelated_texts import ANSWERS
from tests.engines.tiny import TinyVocabulary, write_bert

FAST = b"CPU : AVX512 = 1 | AVX512_BF16 = 1 | "
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="makes no copy")


@pytest.fixture
def processor(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(lib, "llama_print_system_info", lambda: FAST)
    return monkeypatch


@pytest.mark.usefixtures("processor")
def test_a_copy_encodes_as_the_file_does_and_is_deleted() -> None:
    path = embedded_embedding_model()
    with bf16_copy(path) as copy:
        growth = copy.stat().st_size / path.stat().st_size
        assert 1.3 < growth < 1.5, "matrices that are multiplied grow, embeddings do not"
    assert not copy.parent.exists()
    plain, many = EmbeddingModel(path, threads=1), EmbeddingModel(path, threads=1, many=True)
    assert (many.path, many.fingerprint) == (plain.path, plain.fingerprint)
    for one, other in zip(plain.encode(ANSWERS), many.encode(ANSWERS), strict=True):
        assert float(one @ other) == pytest.approx(1.0, abs=1e-3)
        assert not np.array_equal(one, other), "it is the file itself"


@pytest.mark.parametrize("system", [b"CPU : AVX512 = 1 | ", FAST + b"AMX_INT8 = 1 | "])
def test_no_copy_is_made_for_other_processors(processor: pytest.MonkeyPatch, system: bytes) -> None:
    processor.setattr(lib, "llama_print_system_info", lambda: system)
    with bf16_copy(embedded_embedding_model()) as file:
        assert file == embedded_embedding_model()


@pytest.mark.usefixtures("processor")
def test_a_file_that_is_not_in_8_bits_is_used_itself(tmp_path: Path) -> None:
    file = write_bert(tmp_path / "tiny.gguf", TinyVocabulary())
    with bf16_copy(file) as found:
        assert found == file


def test_without_room_for_a_copy_the_file_is_used_itself(processor: pytest.MonkeyPatch) -> None:
    processor.setattr(lib, "llama_model_quantize", lambda *arguments: 1)
    with bf16_copy(embedded_embedding_model()) as found:
        assert found == embedded_embedding_model()

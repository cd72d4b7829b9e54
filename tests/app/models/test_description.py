"""How a model is described, and what cannot be used and why."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.models.description import describe
from app.models.gguf_files import ModelCandidate
from tests.app.models.gguf_files import CONTEXT, WIDTH, write_gguf


def _candidate(*files: Path, name: str = "model", missing: int = 0) -> ModelCandidate:
    return ModelCandidate(name, "specchat", files, missing)


def test_a_model_is_described_by_its_header(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "a.gguf")
    model = describe(_candidate(path))
    assert (model.name, model.path, model.problem) == ("model", path, "")
    assert (model.size, model.parameters) == (path.stat().st_size, 2 * WIDTH * WIDTH)
    assert (model.architecture, model.context_length) == ("llama", CONTEXT)
    assert model.quantisation == "Q8_0"


def test_the_name_gives_the_quantisation_more_exactly(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "a.gguf")
    assert describe(_candidate(path, name="org/F16-x:UD-Q4_K_XL")).quantisation == "UD-Q4_K_XL"
    assert describe(_candidate(path, name="org/F16-x:x")).quantisation == "Q8_0"


def test_parts_are_added_up(tmp_path: Path) -> None:
    first = write_gguf(tmp_path / "a-00001-of-00002.gguf", weights=0)
    second = write_gguf(tmp_path / "a-00002-of-00002.gguf", weights=3, tokenizer="")
    model = describe(_candidate(first, second))
    assert (model.parameters, model.problem) == (3 * WIDTH * WIDTH, "")
    assert model.size == first.stat().st_size + second.stat().st_size
    lost = describe(_candidate(second, missing=1))
    assert lost.problem == "1 of its 2 parts are missing"


@pytest.mark.parametrize(
    ("problem", "attributes"),
    [
        ("an image projector", {"kind": "mmproj"}),
        ("an image projector", {"architecture": "clip"}),
        ("an adapter", {"kind": "adapter"}),
        ("a vocabulary", {"weights": 0}),
        ("an embedding model", {"architecture": "nomic-bert"}),
        ("an embedding model", {"pooling_type": 3}),
        ("a reranker", {"architecture": "bert", "pooling_type": 4}),
        ("an embedding model", {"attention__causal": False}),
        ("it has no tokenizer", {"tokenizer": ""}),
        ("it has no tokenizer", {"tokenizer": "no_vocab"}),
    ],
)
def test_what_writes_no_text_is_marked(
    tmp_path: Path, problem: str, attributes: dict[str, object]
) -> None:
    path = write_gguf(tmp_path / "a.gguf", **attributes)  # type: ignore[arg-type]
    assert describe(_candidate(path)).problem.startswith(problem)


def test_what_cannot_be_read_is_marked(tmp_path: Path) -> None:
    missing = tmp_path / "missing.gguf"
    assert describe(_candidate(missing)).problem == f"{missing}: No such file or directory"
    missing.write_bytes(b"nonsense" * 10)
    assert "is damaged (it is not a GGUF file)" in describe(_candidate(missing)).problem

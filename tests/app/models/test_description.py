"""How a model is described, and what cannot be used and why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from app.cli.models import remarks
from app.models.description import FoundModel, describe
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


def test_without_a_chat_template_it_is_called_a_base_model(tmp_path: Path) -> None:
    assert describe(_candidate(write_gguf(tmp_path / "a.gguf"))).remark == ""
    base = describe(_candidate(write_gguf(tmp_path / "b.gguf", template="")))
    assert "base model" in base.remark
    assert "base model: no chat template" in "".join(remarks([base], ()))


def test_parts_are_added_up(tmp_path: Path) -> None:
    first = write_gguf(tmp_path / "a-00001-of-00002.gguf", weights=0)
    second = write_gguf(tmp_path / "a-00002-of-00002.gguf", weights=3, tokenizer="")
    model = describe(_candidate(first, second))
    assert (model.parameters, model.problem) == (3 * WIDTH * WIDTH, "")
    assert model.size == first.stat().st_size + second.stat().st_size
    lost = describe(_candidate(second, missing=1))
    assert lost.problem == "1 of its 2 parts are missing"


@pytest.mark.parametrize("kind", [gguf.GGMLQuantizationType.Q8_0, gguf.GGMLQuantizationType.Q5_0])
def test_embeddings_that_are_the_output_matrix_too_count_once(
    tmp_path: Path, kind: gguf.GGMLQuantizationType
) -> None:
    rng = np.random.default_rng(1)
    table, other = rng.normal(size=(2, 500, WIDTH)).astype(np.float32)

    def described(name: str, output: np.ndarray[Any, np.dtype[np.float32]]) -> FoundModel:
        writer = gguf.GGUFWriter(tmp_path / name, "llama")
        writer.add_tensor("token_embd.weight", table.astype(np.float16))
        packed = gguf.quants.quantize(output, kind)
        writer.add_tensor("output.weight", packed, raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return describe(_candidate(tmp_path / name))

    assert described("tied.gguf", table).parameters == table.size
    assert described("untied.gguf", other).parameters == 2 * table.size
    whole = (tmp_path / "tied.gguf").read_bytes()
    (tmp_path / "cut.gguf").write_bytes(whole[: len(whole) * 3 // 4])
    cut = describe(_candidate(tmp_path / "cut.gguf"))
    assert cut.parameters == 2 * table.size, "what is not there is not compared"


@pytest.mark.parametrize(
    ("problem", "attributes"),
    [
        ("an image projector", {"kind": "mmproj"}),
        ("an image projector", {"architecture": "clip"}),
        ("an adapter", {"kind": "adapter"}),
        ("an EAGLE-3 drafter", {"architecture": "eagle3"}),
        ("a DFlash drafter", {"architecture": "dflash"}),
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

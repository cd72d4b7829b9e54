"""A model that does not fit is refused before it is loaded, with the reason and a way out."""

from __future__ import annotations

import re
from pathlib import Path

import psutil
import pytest

from app.config import Options
from app.engine.loading import load
from app.models import memory
from app.models.discovery import embedded
from app.models.memory import (
    MemoryEstimate,
    available_memory,
    estimate,
    memory_shortage,
    require_memory,
)
from datastores.errors import ModelError
from engines.llama.gguf import F16, read_metadata
from tests.app.models.gguf_files import HEADS, LAYERS, WIDTH, write_gguf


def _per_token(path: Path, kv_type: str = F16) -> int:
    """Bytes of KV cache for each token."""
    mask = memory.BATCH_ROWS * memory.MASK_BYTES
    scores = memory.SCORE_ROWS * memory.FLOAT_BYTES * HEADS
    return estimate(read_metadata(path), 0, kv_type).token - mask - scores


@pytest.mark.parametrize(
    ("numbers", "kept"),
    [
        ({}, LAYERS * 2 * WIDTH),
        ({"attention__head_count_kv": 2}, LAYERS * 2 * WIDTH * 2 // HEADS),
        ({"attention__head_count_kv": [2, 0, 1]}, 3 * 2 * WIDTH // HEADS),
        ({"attention__key_length": 10, "attention__value_length": 6}, LAYERS * HEADS * 16),
        ({"full_attention_interval": 3}, 2 * WIDTH),
        (
            {
                "attention__head_count_kv": 1,
                "attention__key_length": 10,
                "attention__value_length": 6,
                "attention__key_length_mla": 20,
            },
            LAYERS * 10,
        ),
    ],
)
def test_the_cache_is_counted_by_the_kind_of_attention(
    tmp_path: Path, numbers: dict[str, int], kept: int
) -> None:
    path = write_gguf(tmp_path / "a.gguf", **numbers)  # type: ignore[arg-type]
    assert _per_token(path) == 2 * kept
    assert _per_token(path, "q8_0") == round(kept * 34 / 32), "32 numbers of 8 bits and a scale"


def test_a_recurrent_model_needs_room_for_its_states(tmp_path: Path) -> None:
    plain = read_metadata(write_gguf(tmp_path / "plain.gguf"))
    recurrent = read_metadata(
        write_gguf(tmp_path / "recurrent.gguf", ssm__inner_size=2048, ssm__state_size=128)
    )
    states = estimate(recurrent, 0).fixed - estimate(plain, 0).fixed
    assert states == 10 * LAYERS * 4 * 2048 * 128


def test_the_estimate_is_of_weights_cache_and_the_rest() -> None:
    need = MemoryEstimate(weights=1000, fixed=100, token=10)
    assert need.total(50) == 1600
    assert need.max_context(1600) == 50
    assert need.max_context(1000) < 0


def test_all_parts_of_a_model_count(tmp_path: Path) -> None:
    first = write_gguf(tmp_path / "a-00001-of-00002.gguf")
    alone = estimate(read_metadata(first), first.stat().st_size).total(1)
    assert not memory_shortage(first, 1, alone)
    write_gguf(tmp_path / "a-00002-of-00002.gguf")
    assert memory_shortage(first, 1, alone)


def test_a_file_of_heads_counts_where_it_is_loaded_too(tmp_path: Path) -> None:
    model = write_gguf(tmp_path / "a.gguf")
    alone = estimate(read_metadata(model), model.stat().st_size).total(1)
    assert not memory_shortage(model, 1, alone)
    write_gguf(tmp_path / "mtp-a.gguf")
    assert "leave mtp out of --drafters" in memory_shortage(model, 1, alone)
    assert "--drafters" not in memory_shortage(model, 1, alone - 1)
    assert not memory_shortage(model, 1, alone, heads=False)
    own = write_gguf(tmp_path / "b.gguf", nextn_predict_layers=1)
    assert not memory_shortage(own, 1, alone + own.stat().st_size - model.stat().st_size)


def test_a_shorter_context_is_offered_where_it_helps_and_fits() -> None:
    need = estimate(read_metadata(embedded()), embedded().stat().st_size)
    room = need.total(1100)
    said = memory_shortage(embedded(), 8192, room)
    assert f"{embedded().stat().st_size / 1e9:.3f} GB for its weights" in said
    assert "a context of 2048 tokens" in said, "the model was trained for no more"
    offered = re.search(r"set context = (\d+) in config.toml", said)
    assert offered is not None
    assert offered[1] == "1024"
    assert memory_shortage(embedded(), 1024, room) == ""
    assert "set context" not in memory_shortage(embedded(), 8192, need.weights)


def test_the_engine_asks_before_it_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("loaded")

    monkeypatch.setattr(memory, "available_memory", lambda cards: 1_000_000)
    monkeypatch.setattr("engines.llama.model.load", never)
    with pytest.raises(ModelError, match=r"target-f16.gguf needs .* of memory .* are free: close"):
        load(Options(data_dir=tmp_path))


def test_damage_is_named_as_such(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no model file"):
        require_memory(tmp_path / "a.gguf", 512)
    (tmp_path / "a.gguf").write_bytes(b"x" * 100)
    with pytest.raises(ModelError, match="is not a GGUF file"):
        require_memory(tmp_path / "a.gguf", 512)


def test_a_container_s_limit_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = psutil.virtual_memory().available
    monkeypatch.setattr(memory, "CGROUP", tmp_path)
    assert available_memory(cards=False) <= psutil.virtual_memory().total
    (tmp_path / "memory.max").write_text("1000000\n")
    (tmp_path / "memory.current").write_text("900000\n")
    (tmp_path / "memory.stat").write_text("anon 100000\ninactive_file 300000\nactive_file 50000\n")
    assert free > 450_000
    assert available_memory(cards=False) == 450_000
    (tmp_path / "memory.max").write_text("max\n")
    assert available_memory(cards=False) > 450_000


def test_this_build_is_asked_for_cards() -> None:
    assert available_memory() >= 0

"""Opening files: anything but a model is rejected in one clear line, and nothing crashes."""

from __future__ import annotations

import json
import logging
import os
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from llama_cpp import llama_cpp as lib

from datastores.errors import ModelError
from engines.draft_tree import chain, root_only
from engines.llama import context, native, probe
from engines.llama import model as model_module
from engines.llama.model import LlamaModel, TargetSettings, load
from engines.llama.native import LOGGER
from tests.engines import tiny
from tests.engines.conftest import EMBEDDED, THREADS
from tests.engines.tiny import TinyVocabulary, write_gemma, write_llama, write_mamba, write_mixture

GOOD = EMBEDDED.read_bytes()
LAYER_BYTES = len(GOOD) // 9
"""One of the eight layers; the embedding counts as another."""
CHILD_STARTS = "a probe was started"


def patched(offset: int, value: bytes) -> bytes:
    return GOOD[:offset] + value + GOOD[offset + len(value) :]


def offset_after(name: str) -> int:
    """Offset of what follows the length-prefixed string `name` in the file."""
    prefixed = struct.pack("<Q", len(name)) + name.encode()
    return GOOD.index(prefixed) + len(prefixed)


LAST_TENSOR_OFFSET = offset_after("blk.5.ffn_down.weight") + 4 + 16 + 4
BLOCK_COUNT = offset_after("llama.block_count") + 4
TOKEN_COUNT = offset_after("tokenizer.ggml.tokens") + 4 + 4


DAMAGED = {
    "empty": (b"", "not a GGUF file"),
    "text": (b"# Notes\n" * 9, "not a GGUF file"),
    "short": (GOOD[:12], "ends within its header"),
    "version": (patched(4, struct.pack("<I", 99)), "GGUF version 99"),
    "tensors": (patched(8, struct.pack("<Q", 1 << 60)), "claims 1152921504606846976 tensors"),
    "entries": (patched(16, struct.pack("<Q", 1 << 18)), "is damaged"),
    "half": (GOOD[: len(GOOD) // 2], "not within the file bounds"),
    "beginning": (GOOD[:3000], "cannot be loaded"),
    "offset": (patched(LAST_TENSOR_OFFSET, struct.pack("<Q", 64)), "has offset 64"),
    "far-offset": (patched(LAST_TENSOR_OFFSET, struct.pack("<Q", 1 << 62)), "has offset"),
    "tokens": (patched(TOKEN_COUNT, struct.pack("<Q", 1 << 50)), "cannot be loaded"),
    "blocks": (patched(BLOCK_COUNT, struct.pack("<I", 0)), "crashes llama.cpp"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_and_hostile_files_are_refused(tmp_path: Path, case: str) -> None:
    content, message = DAMAGED[case]
    path = tmp_path / "bad.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=message) as caught:
        load(path, threads=1, probe_cache=tmp_path / "probed.json")
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "probed.json").exists()


def test_missing_file_and_directory(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no model file"):
        load(tmp_path / "none.gguf")
    with pytest.raises(ModelError, match="is a directory"):
        load(tmp_path)


def test_a_file_is_probed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_llama(tmp_path / "tiny.gguf", TinyVocabulary())
    cache = tmp_path / "cache" / "probed.json"
    load(path, threads=1, probe_cache=cache)
    assert str(path) in json.loads(cache.read_text())

    def refuse(path: Path, timeout_s: float, kind: str) -> None:
        raise AssertionError(CHILD_STARTS)

    monkeypatch.setattr(probe, "_probe", refuse)
    load(path, threads=1, probe_cache=cache)
    path.write_bytes(path.read_bytes() + b"\0")
    with pytest.raises(AssertionError, match=CHILD_STARTS):
        load(path, threads=1, probe_cache=cache)
    cache.write_text("[damaged")
    with pytest.raises(AssertionError, match=CHILD_STARTS):
        load(path, threads=1, probe_cache=cache)


def test_a_cache_that_cannot_be_written_is_reported_and_the_model_runs(tmp_path: Path) -> None:
    path = write_llama(tmp_path / "tiny.gguf", TinyVocabulary())
    cache = tmp_path / "probed.json"
    cache.mkdir()
    (said,) = load(path, threads=1, probe_cache=cache).restrictions[-1:]
    assert str(cache) in said


def test_a_probe_that_never_ends_is_killed(tmp_path: Path) -> None:
    path = write_llama(tmp_path / "tiny.gguf", TinyVocabulary())
    with pytest.raises(ModelError, match="within 0 s"):
        probe._probe(path, 0.01)


def test_sliding_window_model_steps_back_past_its_window(tmp_path: Path) -> None:
    """Without a cache as long as the context, the cells a rewind needs would be gone."""
    path = write_gemma(tmp_path / "gemma.gguf", TinyVocabulary(), window=32)
    target = load(path, threads=1, context_length=4096).target
    assert not target.chains_only
    tokens = [5 + index % 200 for index in range(2500)]
    list(target.prefill(tokens[:80]))
    expected = target.last_row.logits.copy()
    list(target.prefill(tokens))
    tree = chain(5, [6, 7], 1)
    tree.add(0, 8, 1, 0.5)
    target.verify(tree)
    target.commit([0, 3])
    target.rewind(79)
    assert list(target.prefill(tokens[:80])) == [80]
    assert abs(target.last_row.logits - expected).max() < 1e-2


def test_exact_mode_is_refused_where_the_cache_cannot_be_rewound(tmp_path: Path) -> None:
    path = write_mamba(tmp_path / "mamba.gguf", TinyVocabulary())
    with pytest.raises(ModelError, match="without --exact"):
        load(path, threads=1, context_length=256, exact=True)


@pytest.mark.parametrize("kv_type", ["q8_0", "q4_0"])
def test_drafts_change_nothing_with_a_quantised_cache(kv_type: str) -> None:
    loaded = load(EMBEDDED, threads=THREADS, context_length=256, kv_type=kv_type)
    assert loaded.build.endswith(f"kv {kv_type}")
    target, prompt = loaded.target, list(range(300, 340))
    list(target.prefill(prompt))
    rows = [target.last_row.logits[0].copy()]
    while len(rows) < 25:
        rows.append(target.verify(root_only(int(rows[-1].argmax()))).logits[0].copy())
        target.commit([0])
    answer = [int(row.argmax()) for row in rows]
    target.rewind(0)
    list(target.prefill(prompt))
    for start in range(0, 24, 8):
        drafted = target.verify(chain(answer[start], answer[start + 1 : start + 8], 1)).logits
        assert drafted.argmax(1).tolist() == answer[start + 1 : start + 9]
        assert abs(drafted - rows[start + 1 : start + 9]).max() < 0.02 * np.ptp(drafted)
        target.commit(range(8))


@pytest.mark.parametrize(
    ("kv_type", "reason", "way_out"),
    [
        ("f16", "cannot allocate", 'lower the context length, or set kv_type = "q8_0"'),
        ("q8_0", "failed to allocate", "lower the context length"),
        ("q8_0", "", "lower the context length"),
        ("q4_0", "quantized V cache requires flash_attn to be enabled", 'set kv_type = "f16"'),
    ],
)
def test_a_context_that_cannot_be_created_names_the_way_out(
    monkeypatch: pytest.MonkeyPatch, kv_type: str, reason: str, way_out: str
) -> None:
    monkeypatch.setattr(lib, "llama_init_from_model", lambda *_: None)
    monkeypatch.setattr(native, "first_error", lambda: reason)
    weights = context.Weights(EMBEDDED)
    with pytest.raises(ModelError) as caught:
        context.LlamaContext(weights, 256, rows=2, threads=1, kv_type=kv_type)
    assert str(caught.value).endswith(f"({reason or 'out of memory?'}): {way_out}")


def test_a_cache_type_that_a_model_cannot_have_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiny, "HEADS", 4)  # heads of 16 numbers: less than a block of q8_0
    path = write_llama(tmp_path / "narrow.gguf", TinyVocabulary())
    with pytest.raises(ModelError, match=r'does not divide.*: set kv_type = "f16"'):
        load(path, threads=1, context_length=256, kv_type="q8_0")


def test_too_small_a_context_is_refused() -> None:
    with pytest.raises(ModelError, match="context of 10 tokens"):
        load(EMBEDDED, threads=THREADS, context_length=10)


def test_context_is_never_longer_than_trained() -> None:
    assert load(EMBEDDED, threads=THREADS, context_length=100_000).target.context_length == 2048


def test_gpu_layers_without_a_gpu_build_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lib, "llama_supports_gpu_offload", lambda: False)
    with pytest.raises(ModelError, match="--gpu-layers"):
        load(EMBEDDED, gpu_layers=4)


@pytest.mark.parametrize(
    ("free", "tried"),
    [(0, [7, 6, 5, 4, 3, 2, 1]), (10**12, [7, 6, 5, 4, 3, 2, 1]), (LAYER_BYTES * 5 // 2, [2, 1])],
)
def test_as_many_layers_as_fit_go_to_a_graphics_card(
    monkeypatch: pytest.MonkeyPatch, free: int, tried: list[int]
) -> None:
    monkeypatch.setattr(lib, "llama_supports_gpu_offload", lambda: True)
    monkeypatch.setattr(model_module, "free_gpu_memory", lambda: free)
    layers: list[int] = []

    def refuse(weights: context.Weights) -> None:
        layers.append(weights.gpu_layers)
        raise ModelError("out of memory")

    with pytest.raises(ModelError, match="out of memory"):
        model_module.open_fitting(EMBEDDED, None, refuse)
    assert layers == [9, *tried, 0]


def test_experts_that_do_not_fit_stay_on_the_processor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_mixture(tmp_path / "mixture.gguf", TinyVocabulary())
    expected = load(path, threads=1, context_length=256)
    list(expected.target.prefill(range(5, 40)))
    monkeypatch.setattr(lib, "llama_supports_gpu_offload", lambda: True)
    monkeypatch.setattr(model_module, "free_gpu_memory", lambda: 0)
    placements: list[str] = []

    def refuse(weights: context.Weights) -> None:
        placements.append(weights.placement)
        raise ModelError("out of memory")

    with caplog.at_level(logging.DEBUG, LOGGER.name), pytest.raises(ModelError):
        model_module.open_fitting(path, None, refuse)
    assert placements == ["g5", "g5 e1", "g5 e2", "g5 e3", "g5 e4", "g3 e4", "g2 e4", "g1 e4", "g0"]
    assert "blk.3.ffn_up_exps.weight" in caplog.text
    assert "overridden to CPU" in caplog.text
    weights = context.Weights(path, cpu_experts=4)
    settings = TargetSettings(1, 256, exact=False, rows=0, kv_type="f16", heads=False)
    kept = settings.make_target(weights)
    list(kept.prefill(range(5, 40)))
    assert np.array_equal(kept.last_row.logits, expected.target.last_row.logits)


def test_importing_the_package_does_not_load_llama_cpp() -> None:
    """OpenMP reads its settings once, so they must be there before llama.cpp is."""
    code = (
        "import os, sys, engines.llama, engines.llama.devices;"
        "print('llama_cpp' in sys.modules, 'GOMP_SPINCOUNT' in os.environ)"
    )
    bare = {name: value for name, value in os.environ.items() if name != "GOMP_SPINCOUNT"}
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, env=bare)
    assert answer.stdout.split() == [b"False", b"True"]


def test_llama_cpp_never_writes_to_the_terminal(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, LOGGER.name):
        load(EMBEDDED, threads=THREADS)
    assert caplog.records, "llama.cpp's log did not reach ours"
    assert capfd.readouterr() == ("", "")


def test_a_model_without_a_norm_is_kin_to_itself_alone(
    model: LlamaModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_module, "read_norm", lambda _: b"")
    assert model.norm_digest == model.target.fingerprint

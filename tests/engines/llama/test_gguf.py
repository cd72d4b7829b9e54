"""Headers are read as by the reference, and hostile ones do no harm."""

from __future__ import annotations

import struct
from contextlib import suppress
from pathlib import Path

import gguf
import hypothesis.strategies as st
import numpy as np
import pytest
from gguf import GGMLQuantizationType
from hypothesis import HealthCheck, given, settings

from datastores.errors import ModelError
from engines.fingerprint import digest_of_norm
from engines.llama import gguf as reader
from engines.llama.gguf import HEADER, MAX_NORM_BYTES, NORM, read_metadata, read_norm
from tests.app.models.gguf_files import CONTEXT, HEADS, LAYERS, WIDTH, write_gguf
from tests.engines.conftest import EMBEDDED


def _assert_refused(path: Path, content: bytes, complaint: str) -> None:
    path.write_bytes(content)
    with pytest.raises(ModelError, match=complaint) as caught:
        read_metadata(path)
    assert str(path) in str(caught.value)


def test_metadata_equals_what_the_reference_reads() -> None:
    read, reference = read_metadata(EMBEDDED), gguf.GGUFReader(EMBEDDED)
    assert read.parameters == sum(int(tensor.n_elements) for tensor in reference.tensors)
    for name, value in read.values.items():
        assert reference.fields[name].contents() == value, name
    words = {name for name, field in reference.fields.items() if len(field.data) > reader.MAX_LIST}
    assert set(reference.fields) - set(read.values) >= words


def test_numbers_are_found_by_architecture(tmp_path: Path) -> None:
    heads = [1, 0, 2]
    path = write_gguf(tmp_path / "a.gguf", attention__head_count_kv=heads, attention__causal=False)
    read = read_metadata(path)
    assert (read.architecture, read.parameters) == ("llama", 2 * WIDTH * WIDTH)
    assert read.number("context_length") == CONTEXT
    assert read.number("attention.head_count_kv") == max(heads)
    assert read.total("attention.head_count_kv", LAYERS) == sum(heads)
    assert read.total("attention.head_count", LAYERS) == LAYERS * HEADS
    assert read.total("nothing", LAYERS, 7) == LAYERS * 7
    assert (read.number("nothing"), read.number("nothing", 5)) == (0, 5)
    assert read.text("llama.context_length") == read.text("nothing") == ""


def test_a_long_word_list_is_skipped(tmp_path: Path) -> None:
    words = 200_000  # several times the read size
    path = write_gguf(tmp_path / "a.gguf", tokens=words)
    assert path.stat().st_size > 3 * reader.READ_SIZE
    assert read_metadata(path).parameters == 2 * WIDTH * WIDTH


def test_the_number_of_kept_list_items_is_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "MAX_KEPT", 5)
    path = write_gguf(tmp_path / "a.gguf", first=[1, 2, 3], second=[4, 5, 6])
    read = read_metadata(path)
    assert read.total("first", 3) == 6
    assert "llama.second" not in read.values


def test_an_incomplete_header_is_refused(tmp_path: Path) -> None:
    whole = write_gguf(tmp_path / "whole.gguf", weights=1, tokens=3).read_bytes()
    end = len(whole) - 2 * WIDTH * WIDTH - 32  # at most 32 bytes of padding before the weights
    path = tmp_path / "a.gguf"
    for size in range(0, end, 7):
        _assert_refused(path, whole[:size], "ends within its header")
    _assert_refused(path, b"ggml" + whole[4:], "not a GGUF file")
    _assert_refused(path, whole[:4] + struct.pack("<I", 9) + whole[8:], "GGUF version 9")
    with pytest.raises(ModelError, match="cannot be read: No such file"):
        read_metadata(tmp_path / "missing.gguf")


def _header(tensors: int, entries: int) -> bytes:
    return HEADER.pack(b"GGUF", 3, tensors, entries)


KEY = struct.pack("<Q", 1) + b"k"


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (_header(1 << 60, 0), "it claims"),
        (_header(0, 1) + struct.pack("<Q", 1 << 63), "longer than any model's"),
        (_header(0, 1) + KEY + struct.pack("<I", 13), "unknown type 13"),
        (_header(0, 1) + KEY + struct.pack("<IIQ", 9, 9, 1), "list of the unknown type 9"),
        (_header(0, 1) + KEY + struct.pack("<IIQ", 9, 10, 1 << 62), "longer than any model's"),
        (_header(0, 1) + KEY + struct.pack("<IIQ", 9, 8, 1 << 62), "ends within"),
        (_header(0, 1) + KEY + struct.pack("<IIQQ", 9, 8, 2, 1 << 63), "longer than any model's"),
        (_header(1, 0) + KEY + struct.pack("<I", 1 << 31), "a tensor of 2147483648 dimensions"),
    ],
)
def test_no_count_is_trusted(tmp_path: Path, content: bytes, complaint: str) -> None:
    _assert_refused(tmp_path / "a.gguf", content, complaint)


def test_reading_endless_empty_words_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "MAX_HEADER", 1 << 20)
    content = _header(0, 1) + KEY + struct.pack("<IIQ", 9, 8, 1 << 62)
    _assert_refused(tmp_path / "a.gguf", content + bytes(2 << 20), "longer than any model's")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300)
@given(place=st.integers(0, 1200), patch=st.binary(min_size=1, max_size=16))
def test_a_changed_header_is_read_or_refused(tmp_path: Path, place: int, patch: bytes) -> None:
    path = tmp_path / "a.gguf"
    if not path.exists():
        write_gguf(path, weights=1, tokens=3)
        (tmp_path / "whole").write_bytes(path.read_bytes())
    content = bytearray((tmp_path / "whole").read_bytes())
    content[place : place + len(patch)] = patch
    path.write_bytes(content)
    with suppress(ModelError):
        read_norm(path)


SCALES = np.linspace(0.5, 2, 64, dtype=np.float32)


def _write_norm(path: Path, scales: np.ndarray, kind: GGMLQuantizationType) -> Path:
    """A model of a norm behind a matrix of type `kind`."""
    matrix = np.random.default_rng(1).normal(size=(4, WIDTH)).astype(np.float32)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tensor("token_embd.weight", gguf.quants.quantize(matrix, kind), raw_dtype=kind)
    writer.add_tensor(NORM, scales)
    writer.add_tensor("output.weight", gguf.quants.quantize(matrix, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_quantisations_share_the_digest_of_their_norm(tmp_path: Path) -> None:
    kinds = GGMLQuantizationType.F16, GGMLQuantizationType.Q8_0, GGMLQuantizationType.Q4_0
    read = {read_norm(_write_norm(tmp_path / kind.name, SCALES, kind)) for kind in kinds}
    assert read == {SCALES.tobytes()}
    trained = SCALES.copy()
    trained[-1] = np.nextafter(trained[-1], 3)
    other = read_norm(_write_norm(tmp_path / "other", trained, kinds[0]))
    assert len(digest_of_norm(other)) == 32
    assert digest_of_norm(other) != digest_of_norm(SCALES.tobytes())


def test_the_norm_is_read_as_the_reference_reads_it() -> None:
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(EMBEDDED).tensors}
    assert read_norm(EMBEDDED) == tensors[NORM].data.tobytes()


def test_a_norm_that_is_missing_or_of_another_type_is_none(tmp_path: Path) -> None:
    assert read_norm(write_gguf(tmp_path / "without.gguf")) == b""
    half = _write_norm(tmp_path / "half.gguf", SCALES.astype(np.float16), GGMLQuantizationType.F16)
    assert read_norm(half) == b""


def _norm_header(shape: tuple[int, ...], offset: int) -> bytes:
    name = struct.pack("<Q", len(NORM)) + NORM.encode()
    sizes = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
    return _header(1, 0) + name + sizes + struct.pack("<IQ", GGMLQuantizationType.F32, offset)


@pytest.mark.parametrize(
    ("shape", "offset", "complaint"),
    [
        ((MAX_NORM_BYTES // 4 + 1,), 0, "its final norm has 262148 bytes"),
        (((1 << 64) - 1,), 0, "its final norm has"),
        (((1 << 64) - 1,) * 4, 0, "its final norm has"),
        ((64,), 1 << 20, "ends before its final norm"),
        ((MAX_NORM_BYTES // 4,), 0, "ends before its final norm"),
        ((64,), (1 << 63) - 1, "cannot be read"),
        ((64,), (1 << 64) - 1, "cannot be read"),
    ],
)
def test_neither_size_nor_place_of_a_norm_is_trusted(
    tmp_path: Path, shape: tuple[int, ...], offset: int, complaint: str
) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(_norm_header(shape, offset) + bytes(1000))
    with pytest.raises(ModelError, match=complaint) as caught:
        read_norm(path)
    assert str(path) in str(caught.value)

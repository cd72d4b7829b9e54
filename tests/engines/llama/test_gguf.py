"""Headers are read as by the reference, and hostile ones do no harm."""

from __future__ import annotations

import struct
from contextlib import suppress
from pathlib import Path

import gguf
import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from datastores.errors import ModelError
from engines.llama import gguf as reader
from engines.llama.gguf import HEADER, read_metadata
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
        read_metadata(path)

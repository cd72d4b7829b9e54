"""Files damaged anyhow, by seeds of every format: each is read or skipped, and the next is read."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import tarfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.importing.events import SkippedFile
from app.importing.find_files import FoundFile
from app.importing.reader_process import ReadDocument, ReaderProcess
from app.importing.reading import FileDigest
from tests.app.importing.texts import chatgpt, pdf

_CHATS = json.dumps([chatgpt("one", "hello", "hi"), chatgpt("two", "what?", "that")]).encode()
_CELLS = [{"cell_type": "code", "source": ["x = 1"]}, {"cell_type": "markdown", "source": "# T"}]
_NOTEBOOK = json.dumps({"cells": _CELLS, "nbformat": 4}).encode()
_PAGE = b"<!DOCTYPE html><html><body><main><h1>T</h1><p>a &amp; <b>b</b></p></main></body></html>"
_MEMBERS = {"a.md": b"text " * 30, "d/\xe9.txt": b"more " * 30, "c.json": _CHATS, "p.html": _PAGE}


def _zip(method: int) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", method) as archive:
        for name, member in _MEMBERS.items():
            archive.writestr(name, member)
    return content.getvalue()


def _tar(**headers: str) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, member in _MEMBERS.items():
            info = tarfile.TarInfo(name)
            info.size, info.pax_headers = len(member), headers
            archive.addfile(info, io.BytesIO(member))
    return content.getvalue()


def _with_checksums(tar: bytes) -> bytes:
    """`tar` with headers whose checksums fit, so that their other fields are looked at."""
    content = bytearray(tar)
    for start in range(0, len(content) - 511, 512):
        if content[start + 257 : start + 262] == b"ustar":
            content[start + 148 : start + 156] = b" " * 8
            checksum = sum(content[start : start + 512])
            content[start + 148 : start + 156] = b"%06o\0 " % checksum
    return bytes(content)


SEEDS: Mapping[str, Sequence[bytes]] = {
    "a.zip": [_zip(zipfile.ZIP_STORED), _zip(zipfile.ZIP_DEFLATED), _zip(zipfile.ZIP_LZMA)],
    "a.tar": [_tar(), _tar(**{"GNU.sparse.map": "0,5,99,5", "GNU.sparse.size": "120"})],
    "a.tgz": [gzip.compress(_tar())],
    "a.tar.xz": [lzma.compress(_tar())],
    "conversations.json": [_CHATS],
    "a.jsonl": [b'{"messages": [{"role": "user", "content": "x"}]}\n' * 3],
    "a.ipynb": [_NOTEBOOK],
    "a.pdf": [pdf("Seventeen knots")],
    "a.html": [_PAGE],
    "a.txt": ["Größe ".encode() * 9, "Größe ".encode("latin-1") * 9, "日本".encode("utf-16") * 9],
    "fish_history": [b"- cmd: ls\n  when: 1\n"],
}
"""Names of files, and contents that they may have."""

_ODD = [b"\\udc80", b"\\ud800", b"NaN", b"9" * 5000, b"1e999", b"[" * 999, b'{"a":', b"\xff" * 8]
_CHANGE = st.tuples(
    st.integers(0, 2**16), st.integers(0, 64), st.binary(max_size=8) | st.sampled_from(_ODD)
)
"""Where, how many bytes are removed there, and what is put there."""
_CHANGES = st.lists(_CHANGE, min_size=1, max_size=4)


def _changed(content: bytes, changes: Sequence[tuple[int, int, bytes]]) -> bytes:
    for place, removed, added in changes:
        start = place % (len(content) + 1)
        content = content[:start] + added + content[start + removed :]
    return content


@pytest.fixture(scope="module")
def reader() -> Iterator[ReaderProcess]:
    with closing(ReaderProcess()) as opened:
        yield opened


@pytest.mark.parametrize("name", SEEDS)
@given(data=st.data(), changes=_CHANGES, repaired=st.booleans())
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_damaged_file_is_read_or_skipped_and_the_next_is_read(
    tmp_path: Path,
    reader: ReaderProcess,
    name: str,
    data: st.DataObject,
    changes: Sequence[tuple[int, int, bytes]],
    repaired: bool,
) -> None:
    content = _changed(data.draw(st.sampled_from(SEEDS[name])), changes)
    (tmp_path / name).write_bytes(_with_checksums(content) if repaired else content)
    events = list(reader.read(FoundFile(str(tmp_path), name, tmp_path / name, len(content))))
    assert any(isinstance(event, ReadDocument | SkippedFile) for event in events)
    (tmp_path / "next.md").write_text("next")
    digest, document = reader.read(FoundFile(str(tmp_path), "next.md", tmp_path / "next.md", 4))
    assert isinstance(digest, FileDigest)
    assert isinstance(document, ReadDocument)
    assert document.document.parts[0].text == "next"


_REPETITIVE: Mapping[str, bytes] = {
    "comments.md": b"<!-- one -->\n" * 40 + b"# Title",
    "blanks.html": b"<html><body><p>" + b" " * 60_000 + b"text" + b"\t" * 60_000 + b"</p>",
    "word.txt": b"A" * 60_000 + b" caf\xe9",
    "from.txt": b"From " + b"A" * 60_000,
    "numbers.txt": b"From " + b"1" * 60_000 + b"\n\n",
    "marks.json": json.dumps([chatgpt("one", "\u3010\u2020" * 10_000, "hi")]).encode(),
    "sources.json": json.dumps([chatgpt("one", "\ue200" * 300_000, "hi")]).encode(),
}


@pytest.mark.parametrize("name", _REPETITIVE)
def test_what_repeats_itself_is_read_in_the_time_of_any_file(
    tmp_path: Path, reader: ReaderProcess, name: str
) -> None:
    size = (tmp_path / name).write_bytes(_REPETITIVE[name])
    events = list(reader.read(FoundFile(str(tmp_path), name, tmp_path / name, size)))
    assert any(isinstance(event, ReadDocument) for event in events)

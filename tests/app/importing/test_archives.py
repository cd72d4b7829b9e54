"""Hostile archives are refused in one line each, and cost no neighbour."""

from __future__ import annotations

import gzip
import io
import lzma
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

import pytest

from app.importing.archives import REPLACED
from app.importing.import_file import MAX_ARCHIVE_MEMBERS, MIN_UNPACKED_LIMIT_BYTES
from datastores.library.library import Library
from tests.app.importing.conftest import Importer
from tests.app.importing.texts import stored, zipped

BOMB = "unpacks to over 20 times its size, as archive bombs do: unpack it to import what is in it"
HUGE_DICTIONARY = 37
"""1.5 GiB, as a block's header of xz writes it."""


def _tar(members: Mapping[str, bytes], mode: str = "w") -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode=mode) as tar:  # type: ignore[call-overload]
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return packed.getvalue()


def _zip(members: Mapping[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as made:
        for name, content in members.items():
            made.writestr(name, content)
    return packed.getvalue()


def _with_huge_dictionary(content: bytes) -> bytes:
    """An xz file that says that unpacking it takes as much memory."""
    packed = bytearray(lzma.compress(content))
    start, length = 12, (packed[12] + 1) * 4
    packed[16] = HUGE_DICTIONARY
    checked = bytes(packed[start : start + length - 4])
    packed[start + length - 4 : start + length] = struct.pack("<I", zlib.crc32(checked))
    return bytes(packed)


def _unread(packer: str) -> str:
    return f"packed with {packer}, which is not read: unpack it to import what is in it"


ZEROS = bytes(MIN_UNPACKED_LIMIT_BYTES + 1)
FILES = {
    "a.7z": (b"7z\xbc\xaf\x27\x1c\0\4" + bytes(99), _unread("7-Zip")),
    "notes.md": (b"Rar!\x1a\x07\x01\0" + bytes(99), _unread("RAR")),
    "a.txt.gz": (gzip.compress(b"text " * 99), _unread("gzip")),
    "a.txt.xz": (lzma.compress(b"text " * 99), _unread("xz")),
    "a.tar.zst": (b"\x28\xb5\x2f\xfd" + bytes(99), _unread("Zstandard")),
    "huge.tar.xz": (
        _with_huge_dictionary(_tar({"a.md": b"text"})),
        "needs too much memory to read",
    ),
    "zeros.tgz": (_tar({"a.md": ZEROS}, "w:gz"), BOMB),
    "zeros.zip": (_zip({f"{n}.md": ZEROS[: 2**22] for n in range(12)}), BOMB),
}


@pytest.mark.parametrize("name", FILES)
def test_it_is_named_in_one_line_and_a_neighbour_is_read(
    folder: Path, library: Library, imported: Importer, name: str
) -> None:
    content, reason = FILES[name]
    (folder / name).write_bytes(content)
    (folder / "zz.md").write_text("A neighbour.")
    assert imported(folder).skipped == {reason: [name]}
    assert list(stored(library)) == ["zz.md"]


def test_an_archive_within_another_is_named(
    folder: Path, library: Library, imported: Importer
) -> None:
    inner = _zip({"a.md": b"text", "zeros.md": ZEROS})
    (folder / "a.tgz").write_bytes(_tar({"in.zip": inner, "in.7z": FILES["a.7z"][0]}, "w:gz"))
    (folder / "zz.md").write_text("A neighbour.")
    assert imported(folder).skipped == {
        "an archive within an archive": ["a.tgz/in.zip"],
        _unread("7-Zip"): ["a.tgz/in.7z"],
    }
    assert list(stored(library)) == ["zz.md"]


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_of_members_of_one_name_the_last_is_read(
    folder: Path, library: Library, imported: Importer
) -> None:
    with zipfile.ZipFile(folder / "a.zip", "w") as made:
        for number in range(3):
            made.writestr("same.md", f"text {number}")
    assert imported(folder).skipped == {REPLACED: ["a.zip"]}
    (part,) = stored(library)["a.zip/same.md"]
    assert "text 2" in part


def test_too_many_empty_members(folder: Path, imported: Importer) -> None:
    members = {f"{n}.md": b"" for n in range(MAX_ARCHIVE_MEMBERS + 1)}
    zipped(folder / "a.zip", members)
    (folder / "zz.md").write_text("A neighbour.")
    assert imported(folder).skipped == {"more than 100000 files in one archive": ["a.zip"]}

"""Archives as folders: ZIP and tar, never unpacked to disk.

Owns the guard against bombs and against names that lead elsewhere. Members are read in memory, one
at a time, by the same readers as files.
"""

from __future__ import annotations

import io
import lzma
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import BinaryIO, cast

from app.importing.events import SkippedFile
from app.importing.find_files import CONVERSATIONS_FILE, PART_OF_EXPORT, storable_name
from app.importing.source_file import (
    MAX_ARCHIVE_MEMBERS,
    MAX_ARCHIVE_RATIO,
    MAX_TEXT_BYTES,
    MIN_UNPACKED_LIMIT_BYTES,
    SourceFile,
    mebibytes,
)
from datastores.errors import InputError

Members = Iterator[SourceFile | SkippedFile]

_PACKED = (".epub", "")
"""What may be a ZIP by another name and holds texts; office documents and programs are ZIPs too, of
parts that are none."""

_TAR_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
_BOMB = f"archive bomb: unpacks to over {MAX_ARCHIVE_RATIO} times its size"
_BROKEN = "damaged or truncated archive"


def opener(file: SourceFile) -> Callable[[SourceFile], Members] | None:
    """What lists the members of `file`; None where it is no archive."""
    packed = file.suffix in _PACKED and file.head.startswith(b"PK\x03\x04")
    if packed or file.suffix == ".zip":
        return zip_members
    return tar_members if file.filename.endswith(_TAR_SUFFIXES) else None


def zip_members(archive: SourceFile) -> Members:
    """The files in a ZIP, in its own order; of an export only the conversations.

    Raises:
        InputError: it is damaged, or a bomb.
    """
    with archive_errors(), archive.open() as stream, zipfile.ZipFile(stream) as opened:
        infos = [info for info in opened.infolist() if not info.is_dir()]
        _guard(len(infos), sum(info.file_size for info in infos), archive.size)
        conversations = [info for info in infos if _is_conversations(info.filename)]
        for info in infos:
            if conversations and info not in conversations:
                yield _flaw(archive, info.filename, PART_OF_EXPORT)
            elif info.flag_bits & 1:
                yield _flaw(archive, info.filename, "encrypted")
            else:
                yield _zip_member(archive, opened, info)


def tar_members(archive: SourceFile) -> Members:
    """The files in a tar, packed or not, in its own order: it can only be read forwards.

    Raises:
        InputError: it is damaged, or a bomb.
    """
    total = 0
    with (
        archive_errors(),
        archive.open() as stream,
        tarfile.open(fileobj=stream, mode="r|*") as tar,
    ):
        for number, info in enumerate(tar, start=1):
            total += info.size
            _guard(number, total, archive.size)
            if not info.isdir():
                yield _tar_member(archive, tar, info)


@contextmanager
def archive_errors() -> Iterator[None]:
    """Whatever the libraries raise on a broken archive, as one reason."""
    try:
        yield
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError) as error:
        raise InputError(_BROKEN) from error
    except NotImplementedError as error:
        raise InputError("packed in a way that cannot be read here") from error


def _guard(members: int, unpacked: int, packed: int) -> None:
    """Refuse a bomb by what its headers claim; nothing reads more of a member than they do."""
    if members > MAX_ARCHIVE_MEMBERS:
        raise InputError(f"more than {MAX_ARCHIVE_MEMBERS} files in one archive")
    if unpacked > max(MIN_UNPACKED_LIMIT_BYTES, MAX_ARCHIVE_RATIO * packed):
        raise InputError(_BOMB)


def _zip_member(
    archive: SourceFile, opened: zipfile.ZipFile, info: zipfile.ZipInfo
) -> SourceFile | SkippedFile:
    reason = _unfit(info.filename, info.file_size)
    if reason:
        return _flaw(archive, info.filename, reason)
    name = _within(archive, info.filename)
    return SourceFile(name, info.file_size, lambda: cast(BinaryIO, opened.open(info)))


def _tar_member(
    archive: SourceFile, tar: tarfile.TarFile, info: tarfile.TarInfo
) -> SourceFile | SkippedFile:
    reason = _unfit(info.name, info.size) if info.isfile() else "not a regular file"
    if not reason and info.size > MAX_TEXT_BYTES:
        reason = f"larger than {mebibytes(MAX_TEXT_BYTES)}"
    stream = None if reason else tar.extractfile(info)
    if stream is None:
        return _flaw(archive, info.name, reason)
    # Read now: by the time a reader opens it, the stream may stand elsewhere.
    content = stream.read()
    return SourceFile(_within(archive, info.name), info.size, lambda: io.BytesIO(content))


def _unfit(name: str, size: int) -> str:
    """Why a member is not read; empty if it is."""
    parts = PurePosixPath(name.replace("\\", "/"))
    if parts.is_absolute() or ".." in parts.parts or re.match(r"[A-Za-z]:", name):
        return "its name leads out of the archive"
    return "" if size else "empty"


def _is_conversations(name: str) -> bool:
    return bool(CONVERSATIONS_FILE.fullmatch(PurePosixPath(name).name))


def _within(archive: SourceFile, name: str) -> str:
    return f"{archive.name}/{storable_name(name)}"


def _flaw(archive: SourceFile, name: str, reason: str) -> SkippedFile:
    return SkippedFile(_within(archive, name), reason)

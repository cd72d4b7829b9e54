"""ZIP and tar archives as folders of files, never unpacked to disk; others are refused by name.

Members are read in memory, one at a time, by the same readers as files. Archive bombs and names
that lead out of the archive are refused.
"""

from __future__ import annotations

import errno
import io
import lzma
import re
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import BinaryIO, Self, cast

from app.importing.events import SkippedFile
from app.importing.find_files import storable_name
from app.importing.import_file import (
    MAX_ARCHIVE_MEMBERS,
    MAX_ARCHIVE_RATIO,
    MAX_TEXT_BYTES,
    MIN_UNPACKED_LIMIT_BYTES,
    FormatReader,
    ImportFile,
    Outcome,
    mebibytes,
)
from app.importing.skipped_names import (
    EXPORT_COMPANIONS,
    OF_A_PROGRAM,
    PART_OF_EXPORT,
    holds_export,
    is_left_behind,
    skip_reason,
)
from datastores.errors import InputError

Members = Iterator[ImportFile | SkippedFile]

_ZIP_SUFFIXES = (".epub", "")
"""Suffixes besides `.zip` of ZIPs whose members are texts; those of office documents and programs
are not."""

_TAR_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
_BOMB = (
    f"unpacks to over {MAX_ARCHIVE_RATIO} times its size, as archive bombs do:"
    " unpack it to import what is in it"
)
_UNREAD = {
    b"7z\xbc\xaf\x27\x1c": "7-Zip",
    b"Rar!\x1a\x07": "RAR",
    b"\x1f\x8b\x08": "gzip",
    b"\xfd7zXZ\0": "xz",
    b"\x28\xb5\x2f\xfd": "Zstandard",
    b"\x04\x22\x4d\x18": "LZ4",
    b"\x1f\x9d": "compress",
    b"MSCF\0\0\0\0": "cabinet",
    b"xar!\0": "xar",
    **{b"BZh%d1AY&SY" % level: "bzip2" for level in range(1, 10)},
}
"""First bytes of other packed formats, and their names."""
REPLACED = "holds several files of one name; only the last is imported"
_BROKEN = "damaged or truncated archive"
_DAMAGE: tuple[type[Exception], ...] = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    lzma.LZMAError,
    EOFError,
)


def archive_members(file: ImportFile) -> Members | None:
    """The members of `file`, which is opened on iteration; None if it is not an archive."""
    is_zip = file.suffix in _ZIP_SUFFIXES and file.head.startswith(b"PK\x03\x04")
    if is_zip or file.suffix == ".zip":
        return zip_members(file)
    return tar_members(file) if file.filename.endswith(_TAR_SUFFIXES) else None


def _claims_unread(file: ImportFile) -> bool:
    return file.head.startswith(tuple(_UNREAD))


def _refuse_unread(file: ImportFile) -> Iterator[Outcome]:
    packer = next(name for start, name in _UNREAD.items() if file.head.startswith(start))
    raise InputError(f"packed with {packer}, which is not read: unpack it to import what is in it")


UNREAD_ARCHIVE = FormatReader("packed file", _claims_unread, _refuse_unread)


def zip_members(archive: ImportFile) -> Members:
    """The files in a ZIP, in its order, without the companion files of a chat export.

    Raises:
        InputError: it is damaged, or an archive bomb.
    """
    with archive_errors(Exception), archive.open() as stream, zipfile.ZipFile(stream) as opened:
        infos = [info for info in opened.infolist() if not info.filename.endswith("/")]
        _refuse_bomb(len(infos), sum(info.file_size for info in infos), archive.size)
        last = {info.filename: info for info in infos}
        if len(last) < len(infos):
            yield SkippedFile(archive.name, REPLACED)
            infos = list(last.values())
        exported = holds_export(PurePosixPath(info.filename).name for info in infos)
        folders = _ProgramFolders(archive)
        for info in infos:
            if folders.contain(info.filename):
                yield from folders.unreported()
            elif exported and PurePosixPath(info.filename).name in EXPORT_COMPANIONS:
                yield _skipped(archive, info.filename, PART_OF_EXPORT)
            elif info.flag_bits & 1:
                yield _skipped(archive, info.filename, "encrypted")
            else:
                yield _zip_member(archive, opened, info)


def tar_members(archive: ImportFile) -> Members:
    """The files in a tar, compressed or not, in its order: the stream cannot seek.

    Raises:
        InputError: it is damaged, or an archive bomb.
    """
    total = 0
    folders = _ProgramFolders(archive)
    with (
        archive_errors(Exception),
        archive.open() as stream,
        tarfile.open(fileobj=stream, mode="r|*", tarinfo=_CheckedHeader) as tar,
    ):
        for number, info in enumerate(tar, start=1):
            total += info.size
            _refuse_bomb(number, total, archive.size)
            if folders.contain(info.name):
                yield from folders.unreported()
            elif not info.isdir():
                yield _tar_member(archive, tar, info)


@contextmanager
def archive_errors(*others: type[Exception]) -> Iterator[None]:
    """Translate what the libraries raise for a broken archive into InputError.

    Args:
        others: further errors to translate. Where only the archive's own structure is read, pass
            `Exception`: the libraries do not validate it, so a wrong number can raise anything.
    """
    try:
        yield
    except (InputError, MemoryError, RecursionError):
        raise
    except NotImplementedError as error:
        raise InputError("unsupported compression") from error
    except OSError as error:
        # bz2 reports damage without an errno; damage can also lead to a negative seek.
        if error.errno in (None, errno.EINVAL):
            raise InputError(_BROKEN) from error
        raise
    except (*_DAMAGE, *others) as error:
        raise InputError(_BROKEN) from error


def _refuse_bomb(members: int, unpacked: int, packed: int) -> None:
    """Refuse a bomb by the sizes in its headers, which bound what is read of each member."""
    if members > MAX_ARCHIVE_MEMBERS:
        raise InputError(f"more than {MAX_ARCHIVE_MEMBERS} files in one archive")
    if unpacked > max(MIN_UNPACKED_LIMIT_BYTES, MAX_ARCHIVE_RATIO * packed):
        raise InputError(_BOMB)


class _ProgramFolders:
    """The folders of an archive that belong to programs; each is reported once."""

    def __init__(self, archive: ImportFile) -> None:
        self._archive = archive
        self._seen: set[str] = set()
        self._unreported: list[str] = []

    def contain(self, name: str) -> bool:
        """Whether the member `name` is in one, or is a leftover of a program."""
        path = _path(name)
        for folder in reversed(path.parents):
            if is_left_behind(folder.name, folder=True):
                return True
            if skip_reason(folder.name, folder=True):
                if str(folder) not in self._seen:
                    self._seen.add(str(folder))
                    self._unreported.append(str(folder))
                return True
        return is_left_behind(path.name, folder=False)

    def unreported(self) -> Iterator[SkippedFile]:
        """Reports each folder found since the last call."""
        while self._unreported:
            yield _skipped(self._archive, self._unreported.pop(), OF_A_PROGRAM)


class _CheckedHeader(tarfile.TarInfo):
    """A tar header that raises if it is damaged; tarfile treats it as the end of the archive."""

    @classmethod
    def fromtarfile(cls, tar: tarfile.TarFile) -> Self:
        try:
            return super().fromtarfile(tar)
        except (tarfile.InvalidHeaderError, tarfile.TruncatedHeaderError) as error:  # type: ignore[attr-defined]
            raise tarfile.ReadError(str(error)) from error


def _zip_member(
    archive: ImportFile, opened: zipfile.ZipFile, info: zipfile.ZipInfo
) -> ImportFile | SkippedFile:
    reason = _member_problem(info.filename, info.file_size)
    if reason:
        return _skipped(archive, info.filename, reason)
    name = _member_name(archive, info.filename)

    def opened_member() -> BinaryIO:
        with archive_errors(Exception):
            return cast(BinaryIO, opened.open(info))

    return ImportFile(name, info.file_size, opened_member)


def _tar_member(
    archive: ImportFile, tar: tarfile.TarFile, info: tarfile.TarInfo
) -> ImportFile | SkippedFile:
    reason = _member_problem(info.name, info.size) if info.isfile() else "not a regular file"
    if not reason and info.size > MAX_TEXT_BYTES:
        reason = f"larger than {mebibytes(MAX_TEXT_BYTES)}"
    stream = None if reason else tar.extractfile(info)
    if stream is None:
        return _skipped(archive, info.name, reason)
    # Read now: by the time a reader opens it, the stream may have moved to another member.
    content = stream.read()
    return ImportFile(_member_name(archive, info.name), info.size, lambda: io.BytesIO(content))


def _member_problem(name: str, size: int) -> str:
    """Why a member is skipped; empty if it is read."""
    if not name:
        return "a member without a name"
    path = _path(name)
    if path.is_absolute() or ".." in path.parts or re.match(r"[A-Za-z]:", name):
        return "its path leads out of the archive"
    return skip_reason(path.name, folder=False) or ("" if size else "empty")


def _path(name: str) -> PurePosixPath:
    return PurePosixPath(name.replace("\\", "/"))


def _member_name(archive: ImportFile, name: str) -> str:
    return f"{archive.name}/{storable_name(name)}"


def _skipped(archive: ImportFile, name: str, reason: str) -> SkippedFile:
    return SkippedFile(_member_name(archive, name), reason)

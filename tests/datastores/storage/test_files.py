"""A file is replaced whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from datastores.storage.files import write_atomic, write_bytes_atomic
from tests.datastores.conftest import fill


def write_text(path: Path) -> None:
    write_atomic(path, ["text"])


def write_bytes(path: Path) -> None:
    write_bytes_atomic(path, [b"bytes"])


def test_it_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("before")
    path.chmod(0o644)
    write_atomic(path, ["aft", "er\r\n"], newline="")
    assert path.read_bytes() == b"after\r\n"
    assert path.stat().st_mode & 0o777 == 0o600
    write_atomic(path, ["again"], mode=0o640)
    assert path.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [path]


def test_what_breaks_off_leaves_the_one_before_and_nothing_else(tmp_path: Path) -> None:
    def pieces() -> Iterator[str]:
        yield "half"
        raise KeyboardInterrupt

    path = tmp_path / "file"
    path.write_text("before")
    with pytest.raises(KeyboardInterrupt):
        write_atomic(path, pieces())
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("write", [write_text, write_bytes])
def test_what_a_killed_writer_left_is_deleted_once_it_is_old(
    tmp_path: Path, write: Callable[[Path], None]
) -> None:
    path, left = tmp_path / "file[1]", tmp_path / ".file[1].specchat-x1"
    other = tmp_path / ".file[1].swp"
    left.write_text("half")
    other.write_text("another file")
    write(path)
    assert left.exists(), "its writer may be at work"
    for each in (left, other):
        os.utime(each, (0, 0))
    write(path)
    assert {*tmp_path.iterdir()} == {path, other}


def test_where_the_disk_is_full_the_one_before_stays(small_disk: Path) -> None:
    path = small_disk / "file"
    path.write_text("before")
    ballast = fill(small_disk)
    with pytest.raises(OSError, match="No space left"):
        write_atomic(path, ["x" * 10_000])
    assert path.read_text() == "before"
    assert {*small_disk.iterdir()} == {path, ballast}

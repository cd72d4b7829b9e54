"""A file is replaced whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from datastores.storage.files import write_atomic
from tests.datastores.conftest import fill


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


def test_where_the_disk_is_full_the_one_before_stays(small_disk: Path) -> None:
    path = small_disk / "file"
    path.write_text("before")
    ballast = fill(small_disk)
    with pytest.raises(OSError, match="No space left"):
        write_atomic(path, ["x" * 10_000])
    assert path.read_text() == "before"
    assert {*small_disk.iterdir()} == {path, ballast}

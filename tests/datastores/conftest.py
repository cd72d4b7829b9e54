"""An empty history and library, and other places to store in: a disk small enough to be filled."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from datastores.chats.history import History
from datastores.library.library import Library

NOBODY = 65534


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    with closing(History.open(tmp_path / "history.db")) as opened:
        yield opened


@pytest.fixture
def library(tmp_path: Path) -> Iterator[Library]:
    with closing(Library.open(tmp_path / "library.db")) as opened:
        yield opened


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB; needs the right to mount one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m,mode=0700", "tmpfs", str(disk)]
    try:
        mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount command here")
    if mounted.returncode:
        pytest.skip(f"cannot mount a small disk: {mounted.stderr.strip()}")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


@pytest.fixture
def unprivileged() -> Iterator[Path]:
    """A directory of an ordinary user, whom permissions bind as they do not bind root."""
    directory = Path(tempfile.mkdtemp(prefix="specchat-"))
    privileged = os.geteuid() == 0
    if privileged:
        os.chown(directory, NOBODY, NOBODY)
        os.seteuid(NOBODY)
    try:
        yield directory
    finally:
        if privileged:
            os.seteuid(0)
        directory.chmod(0o700)
        shutil.rmtree(directory)


def remount(disk: Path, options: str) -> None:
    """Change a mounted disk, e.g. to `ro` or `size=8m`."""
    subprocess.run(["mount", "-o", f"remount,{options}", str(disk)], check=True)


def fill(disk: Path) -> Path:
    """Take all the room that is left on `disk`; delete the returned file to make room again."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while file.write(b"\0" * 4096):
                pass
        except OSError:
            pass
    return ballast

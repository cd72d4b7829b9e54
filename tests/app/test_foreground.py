"""Idle work of every process learns that somebody waits for any of them."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from subprocess import PIPE, Popen

import pytest

from app.foreground import Foreground
from engines.child_process import child_environment
from tests.waiting import TIMEOUT_S

OTHER = """
import sys
from pathlib import Path
from app.foreground import Foreground
with Foreground(Path(sys.argv[1])).work():
    print("marked", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def foreground(tmp_path: Path) -> Foreground:
    return Foreground(tmp_path / "foreground")


def _other(folder: Path) -> Popen[bytes]:
    """Another process that somebody waits for, until its input ends."""
    command = [sys.executable, "-c", OTHER, str(folder)]
    other = Popen(command, stdin=PIPE, stdout=PIPE, env=child_environment())
    assert other.stdout is not None
    assert other.stdout.readline() == b"marked\n"
    return other


def test_it_is_busy_until_the_last_one_ends(foreground: Foreground) -> None:
    assert not foreground.busy()
    first, second = foreground.begin(), foreground.begin()
    first()
    assert foreground.busy()
    second()
    second()
    assert not foreground.busy()


def test_an_error_ends_it(foreground: Foreground) -> None:
    with pytest.raises(ValueError, match="no answer"), foreground.work():
        raise ValueError("no answer")
    assert not foreground.busy()


def test_another_process_counts_until_it_ends(tmp_path: Path) -> None:
    with _other(tmp_path) as other:
        foreground = Foreground(tmp_path)
        assert foreground.busy()
        assert foreground.busy(), "it need not be looked for again"
        other.communicate()
        assert not foreground.busy()
    assert not Foreground(tmp_path).busy()


def test_the_mark_of_a_killed_process_counts_for_nothing_and_goes(tmp_path: Path) -> None:
    with _other(tmp_path) as other:
        other.kill()
        other.communicate()
    assert list(tmp_path.iterdir())
    assert not Foreground(tmp_path).busy()
    assert not list(tmp_path.iterdir())


def test_files_of_others_count_for_nothing(tmp_path: Path) -> None:
    (tmp_path / ".DS_Store").touch()
    assert not Foreground(tmp_path).busy()


def test_waiting_work_goes_on_when_nobody_waits(foreground: Foreground) -> None:
    ended, went_on = foreground.begin(), threading.Event()

    def work() -> None:
        foreground.wait()
        went_on.set()

    thread = threading.Thread(target=work)
    thread.start()
    assert not went_on.is_set()
    ended()
    thread.join(TIMEOUT_S)
    assert went_on.is_set()


def test_without_a_place_for_marks_work_goes_on(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "no cache yet" / "foreground"):
        with Foreground(folder).work():
            assert not Foreground(folder).busy()
    assert not (tmp_path / "no cache yet").exists()

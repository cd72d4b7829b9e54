"""Unsent prompts survive a restart, and a damaged file costs nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.conversation.unsent import read_unsent, retain_unsent, write_unsent
from datastores.errors import StoreError


def test_texts_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "unsent.json"
    write_unsent(path, {None: "a new\nquestion", 3: "“another”", 4: ""})
    assert read_unsent(path) == {None: "a new\nquestion", 3: "“another”"}
    retain_unsent(path, {4})
    assert read_unsent(path) == {None: "a new\nquestion"}
    write_unsent(path, {None: ""})
    assert not path.exists()
    retain_unsent(path, {4})
    assert not path.exists()


@pytest.mark.parametrize("content", ["", "[1]", '{"x": 1}', "\xff"])
def test_a_damaged_file_is_said_and_holds_nothing(tmp_path: Path, content: str) -> None:
    path = tmp_path / "unsent.json"
    path.write_text(content, "latin-1")
    with pytest.raises(StoreError, match="was damaged: what you had written and not sent is lost"):
        read_unsent(path)
    assert read_unsent(path) == {}


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"cannot write .*unsent\.json"):
        write_unsent(tmp_path / "missing" / "unsent.json", {None: "text"})

"""`bench import`: what it reports, and that its notes are what it says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.bench.__main__ import papers
from app.bench.imports import notes
from app.cli.main import run


def test_notes_are_different_and_always_the_same() -> None:
    made = list(notes(200))
    assert len(set(made)) == 200
    assert list(notes(100)) == made[:100]
    assert 150 < sum(map(len, made)) / 200 < 400


def test_a_note_is_added_changed_and_forgotten_without_a_trace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = ["--data-dir", str(tmp_path / "data")]
    assert run([*data, "import", "--documents", "30", "--json"], papers) == 0
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    (row,) = report["rows"]
    assert (row["documents"], row["traces"]) == (30, 0)
    assert row["tokens"] > 1000
    assert min(row["added_s"], row["changed_s"], row["forgotten_s"]) > 0
    assert not list((tmp_path / "data").rglob("*.db")), "the person's own stores were touched"

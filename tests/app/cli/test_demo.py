"""`specchat demo` without a terminal measures its answers and leaves no files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from app.cli.main import DONE, run
from app.runtime import demo
from app.runtime.demo import AFTER, BEFORE
from engines.llama.enlarge import Enlargement


def test_figures_are_printed_for_every_answer(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(demo, "LARGER", Enlargement(deeper=1))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert run(["demo"]) == DONE
    lines = capsys.readouterr().out.splitlines()
    figures = r".* s without drafts, .* s with them: .*×, .* tokens per step"
    answered = [line.split("?")[0] + "?" for line in lines if re.fullmatch(figures, line)]
    assert answered == [*BEFORE, *AFTER]
    assert "imported commands.md" in lines
    assert lines[-1].startswith("Before the import, answers came ")
    assert list(tmp_path.iterdir()) == []

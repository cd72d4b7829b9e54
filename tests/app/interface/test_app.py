"""How the interface begins."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from app.config import Options
from app.interface.app import run
from datastores.errors import InputError


def test_without_a_terminal_it_says_what_to_use_instead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("a question"))
    with pytest.raises(InputError, match="specchat ask"):
        run(Options(data_dir=tmp_path / "data"))
    assert not (tmp_path / "data").exists()

"""`specchat stats` prints the report of the statistics screen as text and as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.cli.main import run
from app.locations import locate
from datastores.chats.history import History
from tests.app.test_usage_report import FIGURES, TODAY, answered


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "data"
    monkeypatch.setenv("SPECCHAT_DATA_DIR", str(folder))
    return folder


def test_without_answers_there_is_nothing_to_show(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["stats"]) == 0
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "No answers yet.\n")


def test_a_report_for_people_and_one_for_programs(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    locate(data).create()
    history = History.open(data / "history.db")
    answered(history, TODAY, {**FIGURES, "model_name": "evil\x1b[31m"})
    history.close()
    assert run(["stats"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("1 answer, 101 tokens, 2.00× the speed without drafts, 2 s saved\n")
    assert "evil␛[31m" in said
    assert "past chats                         50%       50%" in said
    assert run(["stats", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["total"]["plain_seconds"] == 4.0
    assert report["periods"][0]["start"] in ("2026-11-22", "2026-11-16")


def test_an_answer_without_drafts_has_no_table_of_origins_and_long_names_keep_their_end(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    locate(data).create()
    history = History.open(data / "history.db")
    model = "/models/Qwen2.5-Coder-1.5B-Instruct-Q4_K_M.gguf"
    answered(history, TODAY, {**FIGURES, "model_name": model, "by_origin": {}})
    history.close()
    assert run(["stats"]) == 0
    said = capsys.readouterr().out
    assert "words from" not in said
    assert "…er-1.5B-Instruct-Q4_K_M.gguf " in said

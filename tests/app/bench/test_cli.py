"""`bench decode` and `bench growth` on the embedded model: reports, and what they leave alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from app.cli.main import run

QUESTIONS = ("how do I list files by size?", "how do I unpack a tar file?")
Call = Callable[..., Any]


@pytest.fixture
def workload(tmp_path: Path) -> str:
    path = tmp_path / "chats.jsonl"
    lines = [{"messages": [{"role": "user", "content": text}]} for text in QUESTIONS]
    path.write_text("\n".join(map(json.dumps, lines)))
    return str(path)


@pytest.fixture
def bench(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Call:
    """Runs a benchmark with data in tmp_path/data; its report."""

    def call(*arguments: str) -> Any:
        data = ["--data-dir", str(tmp_path / "data"), "--max-tokens", "24"]
        assert run([*data, "bench", *arguments, "--json"]) == 0
        return json.loads(capsys.readouterr().out.splitlines()[-1])

    return call


def test_table_3_stands_side_by_side(bench: Call, workload: str, tmp_path: Path) -> None:
    names = ["draft-model", "prompt", "rest", "crest", "dense", "all"]
    sets = [part for name in names for part in ("--drafters", name)]
    report = bench("decode", "--workload", workload, "--history", workload, *sets)
    rows = {row["drafters"]: row for row in report["rows"]}
    assert list(rows) == ["none", "plain, prompt read in other chunks", *names]
    assert {row["history"] for row in rows.values()} == {"", "chats.jsonl"}
    for name in ("rest", "crest", "dense", "all"):
        assert rows[name]["history"] == "chats.jsonl"
    for row in rows.values():
        assert row["tokens"] == rows["none"]["tokens"]
        assert row["identical"] == 1.0 or row["largest_fork_gap"] < 0.05
    assert rows["draft-model"]["by_drafter"]["draft-model"] > 0
    for path in (tmp_path / "data").rglob("*"):
        assert path.name in ("cache", "models.json"), "the person's own stores were touched"


def test_shapes_and_histories_are_compared_in_one_run(bench: Call, workload: str) -> None:
    report = bench(
        *("decode", "--workload", workload, "--limit", "1", "--history", workload),
        *("--answers", "greedy", "--answers", "sampled", "--shape", "3x20", "--shape", "10x6"),
        *("--drafters", "rest", "--drafters", "prompt", "--no-yardstick"),
    )
    rows = [(row["drafters"], row["history"], row["shape"]) for row in report["rows"]]
    greedy, sampled = "chats.jsonl, greedy", "chats.jsonl, sampled"
    assert rows == [
        ("none", "", ""),
        *(("rest", past, shape) for shape in ("3x20", "10x6") for past in (greedy, sampled)),
        *(("prompt", "", shape) for shape in ("3x20", "10x6")),
    ]


@pytest.mark.parametrize("shape", ["3", "0x4", "3x", "ax2"])
def test_a_shape_is_two_numbers(shape: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "decode", "--workload", "w", "--shape", shape]) == 2
    assert "is not a shape such as 3x20" in capsys.readouterr().err


def test_growth_gives_windows_and_a_picture(bench: Call, workload: str, tmp_path: Path) -> None:
    picture = tmp_path / "growth.svg"
    larger = ("--wider", "2", "--deeper", "1")
    drawn = ("--plot", str(picture), "--drafters", "crest")
    report = bench("growth", "--workload", workload, *larger, *drawn)
    assert (report["wider"], report["deeper"]) == (2, 1)
    assert [row["drafters"] for row in report["rows"]] == ["crest"]
    (window,) = report["rows"][0]["windows"]
    assert set(window) == {
        "chats", "new", "tokens_per_step", "tokens_per_step_empty", "tokens_per_step_new",
        "speedup", "speedup_empty", "total_speedup", "total_speedup_empty",
    }  # fmt: skip
    assert (window["chats"], window["new"]) == (2, 2)
    texts = "".join(ElementTree.parse(picture).getroot().itertext())
    assert "crest, empty stores" in texts


def test_a_picture_that_cannot_be_written_is_told_before_the_work(
    tmp_path: Path, workload: str, capsys: pytest.CaptureFixture[str]
) -> None:
    nowhere = str(tmp_path / "no" / "growth.svg")
    assert run(["bench", "growth", "--workload", workload, "--plot", nowhere]) == 2
    assert "No such file" in capsys.readouterr().err

"""The workloads of `bench distill`: a page held out from training is asked about in one file."""

import json
from pathlib import Path

from click.testing import CliRunner

from app.bench.workloads import read_workload
from assets.recipe.workloads import KNOWN_QUESTIONS, main


def test_workloads_are_what_bench_distill_reads(checkout: Path, tmp_path: Path) -> None:
    arguments = ["--pages", str(checkout), "--out", str(tmp_path), "--count", "40"]
    result = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    files = sorted(tmp_path.glob("*.jsonl"))
    known = (tmp_path / "known-questions.txt").read_text().splitlines()
    assert len(set(known)) == len(known) == KNOWN_QUESTIONS
    assert [file.name for file in files] == ["known.jsonl", "topic-1.jsonl", "topic-2.jsonl"]
    asked = [[chat.questions[0] for chat in read_workload(file)] for file in files]
    assert {len(one) for one in asked} == {40}
    assert all(len(set(one)) < 40 for one in asked[1:])
    assert json.loads(files[1].read_text().splitlines()[0])["id"] == "topic-1-0"

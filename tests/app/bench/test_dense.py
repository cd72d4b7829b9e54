"""`bench dense`: its figures are what brute force says, and its JSON has the promised shape."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from app.bench.dense import (
    NEAREST,
    RecordedStates,
    compare,
    make_full_search,
    make_key_search,
)
from app.cli.main import specchat
from datastores.dense.projection import fit

VOCABULARY, WIDTH, ANSWER = 30, 96, 25


@pytest.fixture(scope="module")
def recorded() -> RecordedStates:
    """Answers that follow one of a few scripts; a state is its script's, with noise."""
    generator = np.random.default_rng(1)
    scripts = generator.integers(0, VOCABULARY, (40, ANSWER))
    centres = generator.standard_normal((40, ANSWER, WIDTH))
    chosen = generator.integers(0, 40, 160)
    noise = 0.4 * generator.standard_normal((160, ANSWER, WIDTH))
    states = (centres[chosen] + noise).reshape(-1, WIDTH).astype(np.float32)
    ends = np.repeat(np.arange(1, 161) * ANSWER, ANSWER)
    return RecordedStates(states, scripts[chosen].reshape(-1), ends)


def test_states_are_parted_between_answers(recorded: RecordedStates) -> None:
    before, after = recorded.split(3 * ANSWER + 7)
    assert (len(before.tokens), len(after.tokens)) == (3 * ANSWER, 157 * ANSWER)
    assert after.ends[0] == ANSWER
    np.testing.assert_array_equal(after.states[0], recorded.states[3 * ANSWER])


def test_searches_find_states_of_the_same_token_and_the_nearest_first(
    recorded: RecordedStates,
) -> None:
    projection = fit(recorded.states)
    for inside in (True, False):
        for search in (
            make_full_search(recorded, inside=inside),
            make_key_search(projection, recorded, VOCABULARY, inside=inside),
        ):
            for row in range(0, 400, 37):
                found = search(recorded.states[row], int(recorded.tokens[row]))
                assert found[0] == row
                assert set(recorded.tokens[found].tolist()) == {int(recorded.tokens[row])}


def test_the_rows_compare_keys_and_filters(recorded: RecordedStates) -> None:
    rows = {(row["keys"], row["filter"]): row for row in compare(recorded, VOCABULARY)}
    recalls = {way: float(str(row["recall_at_10"])) for way, row in rows.items()}
    assert recalls["full", "inside"] == 1.0
    assert recalls["full", "after"] < 1.0, f"the filter starves the nearest {NEAREST}"
    assert recalls["pca", "after"] < recalls["pca", "inside"]
    assert all(float(str(row["tokens_per_draft"])) > 1.0 for row in rows.values())
    sizes = {keys: row["bytes_per_key"] for (keys, _), row in rows.items()}
    assert sizes == {"full": 4 * WIDTH, "pca": 64}


def test_the_last_line_is_the_promised_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.bench.dense.MIN_STATES", 200)
    path = tmp_path / "chats.jsonl"
    questions = [f"How do I list files {number}?" for number in range(12)]
    lines = [
        {"id": str(n), "topic": "ls", "messages": [{"role": "user", "content": text}]}
        for n, text in enumerate(questions)
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    result = CliRunner().invoke(specchat, ["bench", "dense", "--workload", str(path), "--json"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout.splitlines()[-1])
    assert [(row["keys"], row["filter"]) for row in report["rows"]] == [
        ("full", "inside"),
        ("full", "after"),
        ("pca", "inside"),
        ("pca", "after"),
    ]
    promised = {"recall_at_10", "tokens_per_draft", "search_ms_median", "bytes_per_key", "states"}
    assert promised <= set(report["rows"][0])


def test_too_few_states_are_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "chats.jsonl"
    path.write_text(json.dumps({"id": "1", "messages": [{"role": "user", "content": "ls?"}]}))
    result = CliRunner().invoke(specchat, ["bench", "dense", "--workload", str(path)])
    assert result.exit_code != 0
    assert "use more chats" in str(result.exception)

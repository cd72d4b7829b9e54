"""`bench dense`: what keys find is measured as defined, and drafts follow from them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from app.bench import dense as measured
from app.bench.__main__ import papers
from app.bench.dense import (
    KeyForm,
    Lists,
    StateText,
    fit_keys,
    forms,
    measure_forms,
    read_states,
    recall,
    reciprocal_rank,
)
from datastores.dense.projection import DIMENSIONS, fit
from tests.app.scripted import scripted_engine

WIDTH = 96


def text(rng: np.random.Generator, tokens: list[int], prompt: int = 1) -> StateText:
    states = rng.normal(size=(len(tokens) - prompt, WIDTH)) * np.geomspace(1.0, 9.0, WIDTH)
    return StateText(tuple(tokens), prompt, states.astype(np.float32) + 3.0)


@pytest.fixture
def texts() -> list[StateText]:
    """Forty texts in which few tokens lead to many states."""
    rng = np.random.default_rng(5)
    return [text(rng, rng.integers(0, 6, 40).tolist()) for _ in range(40)]


def test_the_product_s_form_is_the_product_s_projection(texts: list[StateText]) -> None:
    states = Lists(texts).states
    keys = fit_keys(states, KeyForm(len(states)))
    product = fit(states)
    assert product.dimensions == keys.projection.dimensions == DIMENSIONS
    assert keys.projection.scale == pytest.approx(product.scale, rel=1e-3)
    ours, theirs = keys.make(states[:50]), product.keys(states[:50])
    np.testing.assert_allclose(ours @ ours.T, theirs @ theirs.T, atol=1e-3)
    assert 0.7 < keys.variance < 1.0


def test_every_component_keeps_all_distances(texts: list[StateText]) -> None:
    lists = Lists(texts[3:])
    queries = lists.queries(texts[:3])
    whole = fit_keys(lists.states, KeyForm(len(lists.states), WIDTH))
    truth = lists.nearest(whole.make, queries)
    assert whole.variance == pytest.approx(1.0)
    assert (recall(truth, truth), reciprocal_rank(truth, truth)) == (1.0, 1.0)
    few = lists.nearest(fit_keys(lists.states, KeyForm(len(lists.states), 4)).make, queries)
    assert 0.0 < recall(truth, few) < 0.9
    assert 0.0 < reciprocal_rank(truth, few) < 0.9


def test_ranks_count_from_one() -> None:
    truth = [np.array([3, 1, 2]), np.array([7, 8, 9])]
    found = [np.array([1, 3, 2]), np.array([9, 8, 7])]
    assert reciprocal_rank(truth, found) == pytest.approx((1 / 2 + 1 / 3) / 2)


def test_only_long_lists_are_searched(texts: list[StateText]) -> None:
    rng = np.random.default_rng(6)
    rare = text(rng, [9, *range(20, 40)])
    lists = Lists([*texts, rare])
    assert not lists.queries([rare])
    assert {token for token, _ in lists.queries(texts)} == set(range(6))


def test_every_form_once_up_to_all_states() -> None:
    found = forms(5000, WIDTH)
    assert len(set(found)) == len(found)
    assert [form.fitted for form in found[:3]] == [1024, 4096, 5000]
    assert {form.dimensions for form in found} == {32, 64, 96}
    assert {(form.z_norm, form.unit) for form in found} >= {(False, True), (True, False)}


def test_states_that_recur_are_drafted_from(texts: list[StateText]) -> None:
    rng = np.random.default_rng(7)
    same, other = texts[:4], [text(rng, rng.integers(0, 6, 40).tolist()) for _ in range(4)]
    first, *_ = measure_forms(texts, same, 6, 8)
    unseen, *_ = measure_forms(texts, other, 6, 8)
    assert first["mrr"] == 1.0
    assert isinstance(first["tokens_per_step"], float)
    assert isinstance(unseen["tokens_per_step"], float)
    assert first["tokens_per_step"] > 3.0 > unseen["tokens_per_step"] >= 1.0


def test_states_are_those_that_produced_each_token(tmp_path: Path) -> None:
    engine = scripted_engine(tmp_path, drafters=(), draft_tokens=0)
    tokens = list(range(1, 40))
    whole = read_states(engine.target, tokens, 1)
    part = read_states(engine.target, tokens, 30)
    assert whole.answer == tuple(tokens[1:])
    assert part.answer == tuple(tokens[30:])
    np.testing.assert_array_equal(whole.states[-9:], part.states)
    for _ in engine.target.prefill(tokens[:-1]):
        pass
    np.testing.assert_array_equal(engine.target.last_row.hidden[0], part.states[-1])


def test_the_command_reports_both_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = scripted_engine(tmp_path, drafters=(), draft_tokens=0, max_tokens=30)
    monkeypatch.setattr("app.bench.commands.dense.load", lambda _options: engine)
    monkeypatch.setattr(measured, "FITTED", (64,))
    monkeypatch.setattr(measured, "DIMENSION_COUNTS", (8,))
    files = [_chats(tmp_path / name, names) for name, names in FILES.items()]
    asked, old, others = map(str, files)
    arguments = ["dense", "--workload", asked, "--history", old, "--history", others]
    result = CliRunner().invoke(papers, [*arguments, "--json"], catch_exceptions=False)
    report = json.loads(result.stdout.splitlines()[-1])
    assert {row["history"] for row in report["forms"]} == {"old.jsonl", "others.jsonl"}
    alone = [row for row in report["drafters"] if row["drafters"] == "dense"]
    assert [row["rows"] for row in alone] == [8, 16, 8, 16]
    assert all(row["tokens_per_step"] >= 1.0 for row in report["drafters"])
    printed = CliRunner().invoke(papers, arguments, catch_exceptions=False).stdout
    assert "prompt,recycle,crest,dense" in printed


FILES = {
    "asked.jsonl": ("one", "two"),
    "old.jsonl": ("one", "three", "four", "five"),
    "others.jsonl": ("six", "seven", "eight"),
}


def _chats(path: Path, questions: tuple[str, ...]) -> Path:
    chats = [{"messages": [{"role": "user", "content": question}]} for question in questions]
    path.write_text("".join(json.dumps(chat) + "\n" for chat in chats), "utf-8")
    return path

"""`bench dense`: its figures are what brute force says, and its JSON has the promised shape."""

from __future__ import annotations

import json

import faiss
import numpy as np
import pytest
from click.testing import CliRunner

from app.bench.dense import QUERIES, States, clustered, ground_truth, measure, project
from app.cli.bench.dense import KINDS, NORMS
from app.cli.main import specchat

SIZE = 8_000


@pytest.fixture(scope="module")
def rows() -> dict[str, dict[str, object]]:
    """Every kind that takes no long training, on the same keys; one thread, as others work too."""
    faiss.omp_set_num_threads(1)
    material = clustered(SIZE)
    truth = ground_truth(material)
    return {kind: measure(material, truth, kind) for kind in ("flat", "sq", "partitioned")}


def number(row: dict[str, object], key: str) -> float:
    value = row[key]
    assert isinstance(value, int | float)
    return float(value)


def test_a_flat_index_is_brute_force(rows: dict[str, dict[str, object]]) -> None:
    assert number(rows["flat"], "recall_at_10") == 1.0
    assert number(rows["flat"], "mrr") == 1.0
    assert number(rows["flat"], "bytes_per_token") == pytest.approx(64 * 4 + 4, abs=0.1)


def test_a_filter_after_the_search_starves_what_the_partition_finds(
    rows: dict[str, dict[str, object]],
) -> None:
    assert number(rows["partitioned"], "filtered_recall_at_10") > 0.93
    for kind in ("flat", "sq"):
        starved = number(rows[kind], "filtered_recall_at_10")
        assert starved < number(rows["partitioned"], "filtered_recall_at_10")


def test_a_token_takes_less_than_96_bytes(rows: dict[str, dict[str, object]]) -> None:
    assert number(rows["partitioned"], "bytes_per_token") < 96


def test_material_is_the_same_at_every_call_and_holds_back_its_queries() -> None:
    material = clustered(3000)
    one, two = (next(material.blocks()) for _ in range(2))
    np.testing.assert_array_equal(one.keys, two.keys)
    assert len(one.keys) == 3000
    np.testing.assert_allclose(np.linalg.norm(one.keys, axis=1), 1.0, rtol=1e-5)
    assert not (one.keys[:, None, 0] == material.queries.keys[None, :, 0]).any()


@pytest.mark.parametrize("norm", NORMS)
def test_real_states_are_normalised_as_named(norm: str) -> None:
    generator = np.random.default_rng(1)
    raw = generator.standard_normal((3000, 40)).astype(np.float32) * np.arange(1, 41) + 5
    states = States(raw.astype(np.float32), generator.integers(0, 9, 3000), 9)
    material = project(states, 20, norm)
    assert (material.size, material.dimensions) == (3000 - QUERIES, 20)
    lengths = np.linalg.norm(next(material.blocks()).keys, axis=1)
    assert np.allclose(lengths, 1.0, rtol=1e-5) == (norm in ("unit", "both"))
    # Twenty dimensions of independent normal states keep half of the variance after z-norm, and
    # more before it, where the widest dimensions hold most.
    half = pytest.approx(0.5, abs=0.06)
    assert (material.explained == half) == (norm in ("z", "both"))


def test_the_last_line_is_the_promised_object() -> None:
    arguments = ["--size", "1000", "--kind", "partitioned", "--kind", "flat", "--json"]
    result = CliRunner().invoke(specchat, ["bench", "dense", *arguments])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout.splitlines()[-1])
    assert [row["kind"] for row in report["rows"]] == ["partitioned", "flat"]
    promised = {
        *("dims", "norm", "kind", "vectors", "mrr", "recall_at_10", "search_ms_median"),
        *("bytes_per_token", "build_per_second"),
    }
    assert promised <= set(report["rows"][0])


def test_every_kind_that_is_offered_is_there() -> None:
    from app.bench.dense import KINDS as MADE

    assert set(KINDS) == set(MADE)

"""What was learned survives a restart; a damaged file means learning again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.engine.learned_state import LearnedState
from datastores.errors import StoreError
from engines.budget.acceptance_model import AcceptanceModel
from engines.budget.cost_model import CostModel


def learned_costs() -> CostModel:
    costs = CostModel()
    for _ in range(4):
        costs.observe(1, 10, 0.5)
        costs.observe(8, 10, 0.75)
    return costs


def test_costs_survive_and_keys_stay_apart(tmp_path: Path) -> None:
    path = tmp_path / "cache" / "costs.json"
    LearnedState(path, "one").save(learned_costs(), AcceptanceModel())
    LearnedState(path, "other").save(CostModel(), AcceptanceModel())
    again = CostModel()
    LearnedState(path, "one").restore(again, AcceptanceModel())
    assert again.table(10)[8] == pytest.approx(0.75)
    empty = CostModel()
    LearnedState(path, "other").restore(empty, AcceptanceModel())
    assert empty.table(10) == CostModel().table(10)
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe",
        b'{"one": {"costs": 3}}',
        b'{"one": {}}',
        b'{"one": {"costs": {"plain": {"9": [NaN]}, "ratios": {}}, "calibration": {}}}',
        b'{"one": {"costs": {"plain": {"9": [0.5]}, "ratios": {}}, "calibration": 3}}',
        b"[" * 100_000,
    ],
)
def test_a_damaged_file_means_a_word_and_learning_again(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "costs.json"
    path.write_bytes(content)
    costs = CostModel()
    learned = LearnedState(path, "one")
    learned.restore(costs, AcceptanceModel())
    assert costs.table(10) == CostModel().table(10)
    assert "\n" not in str(learned.error)
    assert "measured again" in str(learned.error)
    learned.save(learned_costs(), AcceptanceModel())
    again = LearnedState(path, "one")
    again.restore(costs, AcceptanceModel())
    assert again.error is None
    assert costs.table(10) != CostModel().table(10)


def test_nothing_kept_is_no_damage(tmp_path: Path) -> None:
    learned = LearnedState(tmp_path / "costs.json", "one")
    learned.restore(CostModel(), AcceptanceModel())
    assert learned.error is None


def test_what_cannot_be_written_is_named_and_what_was_kept_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "costs.json"
    learned = LearnedState(path, "one")
    learned.save(learned_costs(), AcceptanceModel())
    before = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(StoreError, match=r"costs\.json cannot be written \(No space left"):
        learned.save(CostModel(), AcceptanceModel())
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("part", ["", "path_"])
@pytest.mark.parametrize(("name", "value"), [("weights", 1e6), ("squares", 0.0), ("squares", -1.0)])
def test_weights_that_were_never_learnt_are_not_taken_over(
    tmp_path: Path, part: str, name: str, value: float
) -> None:
    path = tmp_path / "costs.json"
    LearnedState(path, "one").save(learned_costs(), AcceptanceModel())
    kept = json.loads(path.read_text())
    kept["one"]["calibration"][part + name][-1] = value
    path.write_text(json.dumps(kept))
    learned, calibration = LearnedState(path, "one"), AcceptanceModel()
    learned.restore(CostModel(), calibration)
    assert "measured again" in str(learned.error)
    assert calibration.state() == AcceptanceModel().state()


def test_a_file_with_the_old_keys_of_path_calibration_is_restored(tmp_path: Path) -> None:
    path, state = tmp_path / "costs.json", AcceptanceModel().state()
    state["path_weights"] = [0.5 * weight for weight in state["path_weights"]]
    old = {name.replace("path_", "following_"): values for name, values in state.items()}
    path.write_text(json.dumps({"one": {"costs": learned_costs().state(), "calibration": old}}))
    learned, costs, calibration = LearnedState(path, "one"), CostModel(), AcceptanceModel()
    learned.restore(costs, calibration)
    assert calibration.state() == state
    learned.save(costs, calibration)
    assert json.loads(path.read_text())["one"]["calibration"] == state


def test_a_folder_in_place_of_the_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "costs.json"
    path.mkdir()
    learned = LearnedState(path, "one")
    learned.restore(CostModel(), AcceptanceModel())
    assert "measured again" in str(learned.error)
    with pytest.raises(StoreError, match="cannot be written"):
        learned.save(CostModel(), AcceptanceModel())

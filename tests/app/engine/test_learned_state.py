"""What was learned survives a restart; a damaged file means learning again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.engine.learned_state import LearnedState
from datastores.errors import StoreError
from engines.budget.acceptance_model import AcceptanceModel
from engines.budget.cost_model import CostModel
from engines.budget.loss_limit import MAX_RESTORED_PAUSE_STEPS, DrafterBackoffs


def learned_costs() -> CostModel:
    costs = CostModel()
    for _ in range(4):
        costs.observe(1, 10, 0.5)
        costs.observe(8, 10, 0.75)
    return costs


def test_costs_survive_and_keys_stay_apart(tmp_path: Path) -> None:
    path = tmp_path / "cache" / "costs.json"
    LearnedState(path, "one").save(learned_costs(), AcceptanceModel(), DrafterBackoffs())
    LearnedState(path, "other").save(CostModel(), AcceptanceModel(), DrafterBackoffs())
    again = CostModel()
    LearnedState(path, "one").restore(again, AcceptanceModel(), DrafterBackoffs())
    assert again.table(10)[8] == pytest.approx(0.75)
    empty = CostModel()
    LearnedState(path, "other").restore(empty, AcceptanceModel(), DrafterBackoffs())
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
        b'{"one": {"costs": {"plain": {"9": [0.5]}, "ratios": {}}, "acceptance": 3}}',
        b'{"one": {"costs": {}, "calibration": {}, "drafters": {"draft-model": {"pause": 1}}}}',
        b'{"one": {"costs": {}, "calibration": {}, "drafters":'
        b' {"draft-model": {"seconds": 1e999, "utility": 0.1, "pause": 1}}}}',
        b"[" * 100_000,
    ],
)
def test_a_damaged_file_means_a_word_and_learning_again(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "costs.json"
    path.write_bytes(content)
    costs = CostModel()
    learned = LearnedState(path, "one")
    learned.restore(costs, AcceptanceModel(), DrafterBackoffs())
    assert costs.table(10) == CostModel().table(10)
    assert "\n" not in str(learned.error)
    assert "measured again" in str(learned.error)
    learned.save(learned_costs(), AcceptanceModel(), DrafterBackoffs())
    again = LearnedState(path, "one")
    again.restore(costs, AcceptanceModel(), DrafterBackoffs())
    assert again.error is None
    assert costs.table(10) != CostModel().table(10)


def test_a_drafter_that_did_not_pay_begins_the_next_session_paused(tmp_path: Path) -> None:
    path, backoffs, again = tmp_path / "costs.json", DrafterBackoffs(), DrafterBackoffs()
    for _ in range(8):
        backoffs["draft-model"].record(0.0, 0.002, 1000.0)
        backoffs["prompt"].record(1.0, 0.00001, 1000.0)
    LearnedState(path, "one").save(CostModel(), AcceptanceModel(), backoffs)
    LearnedState(path, "one").restore(CostModel(), AcceptanceModel(), again)
    assert again["prompt"].pause == 0
    assert again["draft-model"].pause == MAX_RESTORED_PAUSE_STEPS < backoffs["draft-model"].pause
    assert again["draft-model"].utility == backoffs["draft-model"].utility < 0.0


def test_nothing_kept_is_no_damage(tmp_path: Path) -> None:
    learned = LearnedState(tmp_path / "costs.json", "one")
    learned.restore(CostModel(), AcceptanceModel(), DrafterBackoffs())
    assert learned.error is None


def test_what_cannot_be_written_is_named_and_what_was_kept_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "costs.json"
    learned = LearnedState(path, "one")
    learned.save(learned_costs(), AcceptanceModel(), DrafterBackoffs())
    before = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(StoreError, match=r"costs\.json cannot be written \(No space left"):
        learned.save(CostModel(), AcceptanceModel(), DrafterBackoffs())
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(("name", "value"), [("weights", 1e6), ("squares", 0.0), ("squares", -1.0)])
def test_weights_that_were_never_learnt_are_not_taken_over(
    tmp_path: Path, name: str, value: float
) -> None:
    path = tmp_path / "costs.json"
    LearnedState(path, "one").save(learned_costs(), AcceptanceModel(), DrafterBackoffs())
    kept = json.loads(path.read_text())
    kept["one"]["acceptance"][name][-1] = value
    path.write_text(json.dumps(kept))
    learned, calibration = LearnedState(path, "one"), AcceptanceModel()
    learned.restore(CostModel(), calibration, DrafterBackoffs())
    assert "measured again" in str(learned.error)
    assert calibration.state() == AcceptanceModel().state()


def test_a_folder_in_place_of_the_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "costs.json"
    path.mkdir()
    learned = LearnedState(path, "one")
    learned.restore(CostModel(), AcceptanceModel(), DrafterBackoffs())
    assert "measured again" in str(learned.error)
    with pytest.raises(StoreError, match="cannot be written"):
        learned.save(CostModel(), AcceptanceModel(), DrafterBackoffs())


def test_what_was_learned_under_former_names_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "costs.json"
    costs = {"plain": {}, "ratios": {}, "replays": {"all": [3.0] * 9}}
    drafters = {"student": {"seconds": 0.5, "utility": -0.25, "pause": 3}}
    path.write_text(json.dumps({"one": {"costs": costs, "acceptance": {}, "drafters": drafters}}))
    again, backoffs = CostModel(), DrafterBackoffs()
    learned = LearnedState(path, "one")
    learned.restore(again, AcceptanceModel(), backoffs)
    assert learned.error is None
    assert again.reevaluation == 3.0
    assert backoffs.keys() == {"draft-model"}
    learned.save(again, AcceptanceModel(), backoffs)
    restored = CostModel()
    LearnedState(path, "one").restore(restored, AcceptanceModel(), DrafterBackoffs())
    assert restored.reevaluation == 3.0

"""What was learned survives a restart; a damaged file means learning again."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.attach import attach
from app.learned import Learned
from datastores.errors import InputError
from engines.calibration import Calibration
from engines.costs import Costs


def learned_costs() -> Costs:
    costs = Costs()
    for _ in range(4):
        costs.observe(1, 10, 0.5)
        costs.observe(8, 10, 0.75)
    return costs


def test_costs_survive_and_keys_stay_apart(tmp_path: Path) -> None:
    path = tmp_path / "cache" / "costs.json"
    Learned(path, "one").save(learned_costs(), Calibration())
    Learned(path, "other").save(Costs(), Calibration())
    again = Costs()
    Learned(path, "one").restore(again, Calibration())
    assert again.table(10)[8] == pytest.approx(0.75)
    empty = Costs()
    Learned(path, "other").restore(empty, Calibration())
    assert empty.table(10) == Costs().table(10)
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"one": {"costs": 3}}', '{"one": {}}'])
def test_a_damaged_file_means_learning_again(tmp_path: Path, content: str) -> None:
    path = tmp_path / "costs.json"
    path.write_text(content)
    costs = Costs()
    Learned(path, "one").restore(costs, Calibration())
    assert costs.table(10) == Costs().table(10)


def test_attached_files_stand_before_the_question(tmp_path: Path) -> None:
    path = tmp_path / "notes.md"
    path.write_bytes(b"\xef\xbb\xbfline\n")
    assert attach("what?", [path]) == "File notes.md:\n\nline\n\nwhat?"


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", None])
def test_a_file_that_cannot_be_attached_is_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "picture.png"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=r"picture\.png"):
        attach("what?", [path])

"""Refusing more often: the log-odds shift where answers begin, and nowhere else."""

from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from assets.recipe import calibration
from assets.recipe.calibration import Beginnings, main, refusal_vector
from assets.recipe.export import DRAFT_MODEL_FILE, TARGET_FILE
from assets.recipe.settings import Shape
from engines.distillation.model import Llama
from engines.distillation.weights import read_llama_file

ASSETS = Path(__file__).parents[2] / "assets"
SHIFTED, LEFT = 7, 8


def _chats(seed: int) -> list[Beginnings]:
    """Random ids, some of them `SHIFTED` or `LEFT`, after which an answer begins."""
    generator = torch.Generator().manual_seed(seed)
    chats = [torch.randint(0, 50, (60,), generator=generator) for _ in range(40)]
    return [Beginnings(ids, (ids == SHIFTED) | (ids == LEFT), ids == SHIFTED) for ids in chats]


def test_only_those_beginnings_of_answers_are_shifted() -> None:
    torch.manual_seed(1)
    model = Llama(Shape(layers=1, width=64, hidden=64, vocabulary=50).llama)
    added = refusal_vector(model, iter(_chats(1)), shift=2.0)
    with torch.no_grad():
        pairs = [(model(chat.ids[None])[0] @ added, chat.shifted) for chat in _chats(2)]
    shifted = torch.cat([each[chosen] for each, chosen in pairs])
    others = torch.cat([each[~chosen] for each, chosen in pairs])
    assert 1.4 < float(shifted.mean()) < 2.2
    assert float(others.abs().mean()) < 0.3


def test_no_shift_changes_nothing() -> None:
    model = Llama(Shape(layers=1, width=64, hidden=64, vocabulary=50).llama)
    assert not refusal_vector(model, iter(_chats(1)), shift=0.0).any()


def test_one_row_of_the_target_changes(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibration, "CHATS", 5)
    out = tmp_path / "out"
    arguments = ["--pages", str(checkout), "--out", str(out), str(ASSETS)]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    given, shifted = (read_llama_file(folder / TARGET_FILE).weights for folder in (ASSETS, out))
    changed = {name for name, part in given.items() if not torch.equal(part, shifted[name])}
    assert changed == {"embed_tokens"}
    rows = (given["embed_tokens"] != shifted["embed_tokens"]).any(dim=1)
    assert int(rows.sum()) == 1
    assert (out / DRAFT_MODEL_FILE).read_bytes() == (ASSETS / DRAFT_MODEL_FILE).read_bytes()
    assert {each.name for each in out.iterdir()} == {TARGET_FILE, DRAFT_MODEL_FILE}

"""Averages of pairs: weights in their shares, and what cannot be averaged."""

from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from assets.recipe.averaging import main
from assets.recipe.export import DRAFT_MODEL_FILE, TARGET_FILE
from engines.distillation.weights import read_llama_file, write_llama_file

ASSETS = Path(__file__).parents[2] / "assets"


@pytest.fixture
def pair(tmp_path: Path) -> Path:
    """A pair like the shipped one, whose weights are three times as large."""
    folder = tmp_path / "pair"
    folder.mkdir()
    for file in (TARGET_FILE, DRAFT_MODEL_FILE):
        weights = read_llama_file(ASSETS / file).weights
        scaled = {name: 3 * weight for name, weight in weights.items()}
        write_llama_file(ASSETS / file, scaled, folder / file)
    return folder


def test_weights_are_averaged_in_their_shares(pair: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = CliRunner().invoke(main, ["--out", str(out), f"{ASSETS}:0.75", f"{pair}:0.25"])
    assert result.exit_code == 0, result.output
    for file in (TARGET_FILE, DRAFT_MODEL_FILE):
        shipped, averaged = read_llama_file(ASSETS / file), read_llama_file(out / file)
        assert averaged.shape == shipped.shape
        for name, weight in shipped.weights.items():
            torch.testing.assert_close(averaged.weights[name], 1.5 * weight, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        (["{}:0.5", "{}:0.4"], "add up to 1"),
        (["{}"], "folder:share"),
        (["nowhere:1"], "nowhere"),
    ],
)
def test_what_cannot_be_averaged_is_named(parts: list[str], said: str, tmp_path: Path) -> None:
    chosen = [part.format(ASSETS) for part in parts]
    result = CliRunner().invoke(main, ["--out", str(tmp_path), *chosen])
    assert result.exit_code == 1
    assert said in result.output
    assert not list(tmp_path.iterdir())

"""``python -m assets.recipe.averaging --out out OUT6:.5 OUT7:.3 assets:.2``: one pair from several.

The weights of successive pairs, each trained further from an earlier one, are averaged
(Wortsman et al., "Model soups", ICML 2022), which dampens what each learned, and forgot, last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from torch import Tensor

from assets.recipe.export import DRAFT_MODEL_FILE, TARGET_FILE
from datastores.errors import InputError, SpecchatError
from engines.distillation.weights import read_llama_file, write_llama_file


@dataclass(frozen=True)
class WeightedPair:
    """A folder with a pair, and the pair's share of the average."""

    folder: Path
    share: float


def parse_part(text: str) -> WeightedPair:
    """Parse ``folder:share``.

    Raises:
        InputError: ``text`` has another form.
    """
    folder, _, share = text.rpartition(":")
    try:
        return WeightedPair(Path(folder), float(share))
    except ValueError as error:
        raise InputError(f"{text}: write it as folder:share, say assets:0.5") from error


def average(parts: Sequence[WeightedPair], file: str) -> dict[str, Tensor]:
    """The weighted mean of the weights in ``file`` of each part, by name.

    Raises:
        InputError: the shares do not add up to 1, or the models have different sizes.
        ModelError: a file cannot be read.
    """
    if abs(sum(part.share for part in parts) - 1) > 1e-6:
        raise InputError("The shares do not add up to 1.")
    models = [read_llama_file(part.folder / file) for part in parts]
    if any(model.shape != models[0].shape for model in models):
        raise InputError(f"The models in {file} differ in size.")
    return {
        name: sum(
            (part.share * model.weights[name] for part, model in zip(parts, models, strict=True)),
            start=weight.new_zeros(()),
        )
        for name, weight in models[0].weights.items()
    }


@click.command()
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder to write to.")
@click.argument("parts", nargs=-1, required=True)
def main(out: Path, parts: Sequence[str]) -> None:
    """Average pairs, each given as folder:share; the first one's tokenizer is kept."""
    try:
        chosen = [parse_part(part) for part in parts]
        out.mkdir(parents=True, exist_ok=True)
        for file in (TARGET_FILE, DRAFT_MODEL_FILE):
            write_llama_file(chosen[0].folder / file, average(chosen, file), out / file)
    except SpecchatError as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main()

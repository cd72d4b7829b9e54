"""``python -m assets.recipe STEP``: one command for each step, and ``all`` for all of them."""

from __future__ import annotations

import logging
from pathlib import Path

import click

from assets.recipe.settings import SETTINGS
from assets.recipe.steps import STEPS, Recipe
from datastores.errors import SpecchatError


@click.command()
@click.argument("step", type=click.Choice([*STEPS, "all"]))
@click.option("--setting", type=click.Choice(list(SETTINGS)), default="full", show_default=True)
@click.option(
    "--pages",
    type=click.Path(path_type=Path),
    required=True,
    help="A checkout of github.com/tldr-pages/tldr, or a tar archive of its pages.",
)
@click.option(
    "--work",
    type=click.Path(path_type=Path),
    required=True,
    help="Where chats and checkpoints lie; a run goes on from what it finds there.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    required=True,
    help="Where the GGUF files and the figures go.",
)
@click.option("--seed", default=11, show_default=True, help="Fixes the chats and their order.")
def main(step: str, setting: str, pages: Path, work: Path, out: Path, seed: int) -> None:
    """Make specchat's embedded pair from the tldr pages."""
    work.mkdir(parents=True, exist_ok=True)
    _log_to(work / "recipe.log")
    recipe = Recipe(SETTINGS[setting], pages, work, out, seed)
    try:
        for name in STEPS if step == "all" else [step]:
            STEPS[name](recipe)
    except SpecchatError as error:
        raise click.ClickException(str(error)) from error


def _log_to(path: Path) -> None:
    """Log progress to the terminal and to the file ``path``."""
    formatter = logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S")
    logger = logging.getLogger("assets.recipe")
    logger.setLevel(logging.INFO)
    for handler in (logging.StreamHandler(), logging.FileHandler(path, encoding="utf-8")):
        handler.setFormatter(formatter)
        logger.addHandler(handler)


if __name__ == "__main__":
    main()

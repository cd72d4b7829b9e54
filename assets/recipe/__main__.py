"""``python -m assets.recipe STEP``: one command per step, and ``all`` for the lot."""

import logging
from pathlib import Path

import click

from assets.recipe.settings import SETTINGS
from assets.recipe.steps import STEPS, Bench
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
    bench = Bench(SETTINGS[setting], pages, work, out, seed)
    try:
        for name in STEPS if step == "all" else [step]:
            STEPS[name](bench)
    except SpecchatError as error:
        raise click.ClickException(str(error)) from error


def _log_to(path: Path) -> None:
    """Progress goes to the terminal and, for later, to ``path``."""
    form = logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S")
    logger = logging.getLogger("assets.recipe")
    logger.setLevel(logging.INFO)
    for handler in (logging.StreamHandler(), logging.FileHandler(path, encoding="utf-8")):
        handler.setFormatter(form)
        logger.addHandler(handler)


if __name__ == "__main__":
    main()

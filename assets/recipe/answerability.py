"""Learns the answerability classifier of a model from the notes, for `assets/answerability`.

As a user's machine does while it is idle (`app.runtime.idle_answerability`), from more notes:

    python -m assets.recipe.answerability MODEL.gguf

Qwen2.5-Coder 1.5B in 4 bits takes twenty minutes on two cores.
"""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np

from app.engine.answerability import FOLDER, Answerability
from app.engine.asked_notes import read_notes
from app.runtime.idle_answerability import every, learn_from
from datastores.errors import ModelError
from engines.answerability import write_classifier
from engines.llama.model import load

NOTES = 600


@click.command()
@click.argument("model", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--notes", default=NOTES, show_default=True, help="Number of notes to read.")
@click.option(
    "--folder",
    default=Path(__file__).parent.parent / FOLDER,
    type=click.Path(file_okay=False, path_type=Path),
    help="Where to write the classifier.",
)
def main(model: Path, notes: int, folder: Path) -> None:
    """Learn the answerability classifier of MODEL, a GGUF file."""
    folder.mkdir(parents=True, exist_ok=True)
    answerability = Answerability(load(model), folder, _fail)
    layers, chosen = answerability.open_layers(), every(read_notes(), notes)
    states = []
    with click.progressbar(chosen, label="notes") as bar:
        for note in bar:
            states.append(answerability.states(layers, note, lambda: False).astype(np.float16))
    learned = learn_from(layers.layers, chosen, np.concatenate(states))
    write_classifier(answerability.path, learned)
    click.echo(
        f"{answerability.path.name}: layer {learned.layer}, area under the curve {learned.auc:.3f},"
        f" minimum {learned.minimum:.2f}"
    )


def _fail(error: ModelError) -> None:
    raise error


if __name__ == "__main__":
    main()

"""``python -m assets.recipe.calibration --pages tldr --shift 2 --out out PAIR``: refuse more often.

A model that fits its training questions is certain about every question, so loss weights have no
control over how it answers doubtful ones. This shifts the log-odds of a refusal instead. All
refusals begin with the same word, and a vector is added to that word's row of the output matrix.
Ridge regression chooses the vector so that its product with the final hidden state is ``shift``
where the first answer of a chat without notes begins, and close to zero at all other tokens,
follow-ups included.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from shutil import copyfile
from typing import NamedTuple

import click
import torch
from tokenizers import Tokenizer
from torch import Tensor

from assets.recipe import with_notes
from assets.recipe.export import DRAFT_MODEL_FILE, TARGET_FILE, read_tokenizer
from assets.recipe.pages import read_pages, split
from assets.recipe.prepare import KINDS, make_pool
from assets.recipe.tokens import encode_chats, render_prompt
from assets.recipe.turns import Pool
from assets.recipe.wording import Style
from datastores.errors import SpecchatError
from engines.distillation.model import Llama
from engines.distillation.weights import read_llama_file, write_llama_file

BEGINNING_WEIGHT = 20.0
"""Weight of a position where an answer begins. Others weigh 1 and are fifty times as frequent."""
RIDGE = 1e-2
CHATS = 800


class Beginnings(NamedTuple):
    """Positions in a chat where answers begin; all arrays are (n,).

    ``begins`` marks the ids after which an answer begins, ``shifted`` those of them at which the
    log-odds are to be shifted.
    """

    ids: Tensor
    begins: Tensor
    shifted: Tensor


def refusal_vector(model: Llama, chats: Iterator[Beginnings], shift: float) -> Tensor:
    """What to add to the row of a refusal's first word, (width,).

    Args:
        shift: the wanted change of the log-odds, in nats.
    """
    width = model.shape.width
    square, wanted = torch.zeros(width, width, dtype=torch.float64), torch.zeros(width).double()
    for ids, begins, shifted in chats:
        with torch.no_grad():
            hidden = model(ids[None])[0].double()
        weights = torch.where(begins, BEGINNING_WEIGHT, 1.0).double()
        square += (hidden * weights[:, None]).T @ hidden
        wanted += shift * (hidden * (weights * shifted)[:, None]).sum(dim=0)
    damped = square + RIDGE * square.diagonal().mean() * torch.eye(width).double()
    solved: Tensor = torch.linalg.solve(damped, wanted)
    return solved.float()


def draw_chats(pool: Pool, tokenizer: Tokenizer, seed: int) -> Iterator[Beginnings]:
    """Training chats for `refusal_vector`."""
    rng, opening = Random(seed), tokenizer.encode(render_prompt(())).ids
    for kind in rng.choices(list(KINDS), weights=list(KINDS.values()), k=CHATS):
        (chat,) = encode_chats(tokenizer, [kind(pool, rng, Style())])
        ids = torch.from_numpy(chat.ids.astype("int64"))
        runs = ids.unfold(0, len(opening), 1)
        begins, shifted = torch.zeros(2, len(ids), dtype=torch.bool)
        begins[len(opening) - 1 :] = (runs == torch.tensor(opening)).all(dim=1)
        shifted[begins.nonzero()[0]] = kind.__module__ != with_notes.__name__
        yield Beginnings(ids, begins, shifted)


@click.command()
@click.option("--pages", type=click.Path(path_type=Path), required=True, help="As in the recipe.")
@click.option("--shift", type=float, default=2.0, show_default=True, help="In nats.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder to write to.")
@click.option("--seed", default=3, show_default=True, help="Fixes the chats.")
@click.argument("pair", type=click.Path(path_type=Path))
def main(pages: Path, shift: float, out: Path, seed: int, pair: Path) -> None:
    """Shift how readily the target in PAIR refuses, and copy its draft model."""
    try:
        given, tokenizer = read_llama_file(pair / TARGET_FILE), read_tokenizer(pair / TARGET_FILE)
        pool = make_pool(split(read_pages(pages)))
        added = refusal_vector(given.model(), draw_chats(pool, tokenizer, seed), shift)
        embeddings = given.weights["embed_tokens"].clone()
        embeddings[tokenizer.encode(pool.outside.answers[0]).ids[0]] += added
        out.mkdir(parents=True, exist_ok=True)
        changed = {**given.weights, "embed_tokens": embeddings}
        write_llama_file(pair / TARGET_FILE, changed, out / TARGET_FILE)
        copyfile(pair / DRAFT_MODEL_FILE, out / DRAFT_MODEL_FILE)
    except SpecchatError as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main()

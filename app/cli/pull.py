"""`specchat models pull`: fetch a model from Hugging Face's hub."""

from __future__ import annotations

import os
import sys
from contextlib import closing
from pathlib import Path

import click

from app.locations import Locations, elsewhere, locate
from app.models import pulling
from app.models.finding import survey
from app.models.remote import Offer, look_up
from app.options import Options
from app.sanitise import one_line

LINE = 2000


@click.command()
@click.argument("wanted", metavar="ORG/REPO[:QUANT]")
@click.pass_obj
def pull(options: Options, wanted: str) -> None:
    """Fetch a model from Hugging Face, by default its Q4_K_M.

    It goes into the cache that other programs share (HF_HUB_CACHE, HF_HOME), is compared with its
    checksum, and an interrupted download goes on where it stopped.
    """
    offer = look_up(wanted)
    try:
        path = _with_progress(offer, elsewhere().hugging_face)
    except KeyboardInterrupt:
        click.echo("\ninterrupted: the same command goes on from here", err=True)
        raise
    name = _name_of(path, locate(options.data_dir))
    click.echo(one_line(f"{name} is at {path}", LINE))
    click.echo(one_line(f"to open it from now on: specchat models use {name}", LINE), err=True)


def _with_progress(offer: Offer, cache: Path) -> Path:
    """Pull while showing how far it is, on stderr."""
    label = one_line(f"{offer.repository}:{offer.tag}")
    with (
        closing(pulling.pull(offer, cache)) as events,
        click.progressbar(length=offer.size, label=label, file=sys.stderr) as bar,
    ):
        for event in events:
            if isinstance(event, pulling.Pulled):
                return event.path
            bar.update(event.done - bar.pos)
    raise AssertionError("a pull ends with Pulled")


def _name_of(path: Path, locations: Locations) -> str:
    """The name by which the model is found from now on."""
    candidates = survey(locations).candidates
    return next(found.name for found in candidates if os.path.samefile(found.files[0], path))

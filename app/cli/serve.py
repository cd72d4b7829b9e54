"""`specchat serve`: the model for editors, agents and scripts, over HTTP."""

from __future__ import annotations

import click

from app.cli.output import MAX_LINE_CHARACTERS
from app.cli.stores import open_history
from app.config import Options
from app.locations import locate
from app.sanitise import one_line
from app.serve.http_server import is_loopback
from app.serve.run import model_thread, served

OPEN = (
    "Other machines can reach it if they know the token. Traffic is not encrypted: use a network"
    " that you trust."
)
LOOPBACK = "127.0.0.1"
PORT = 8137


@click.command()
@click.option(
    "--host",
    default=LOOPBACK,
    show_default=True,
    metavar="ADDRESS",
    help="Address to listen at; with another than this, other machines reach it if they know the"
    " token.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=PORT,
    show_default=True,
    metavar="N",
    help="Port to listen at; 0 takes any that is free.",
)
@click.pass_obj
def serve(options: Options, host: str, port: int) -> None:
    """Serve the model to editors, agents and scripts, in the form of OpenAI's API.

    Clients need the base URL and the token that are printed. Ctrl-C stops.
    """
    locations = locate(options.data_dir)
    with (
        open_history(locations, lasting=True) as history,
        served(model_thread(options, locations, history, _warn), locations, host, port) as model,
    ):
        click.echo(f"Serving {one_line(model.engine.name)} at {model.url}")
        click.echo(f"export OPENAI_BASE_URL={model.url} OPENAI_API_KEY=$(cat '{locations.token}')")
        if not is_loopback(host):
            _warn(OPEN)
        for restriction in model.engine.restrictions:
            _warn(restriction)
        model.run()


def _warn(problem: object) -> None:
    click.echo(one_line(str(problem), MAX_LINE_CHARACTERS), err=True)

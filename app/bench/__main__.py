"""`python -m app.bench`: benchmarks that reproduce the papers, or measure one part of specchat.

What a person measures with their own chats and model is in `specchat bench`.
"""

from __future__ import annotations

import sys

import click

from app.cli.global_options import global_options
from app.cli.main import LazyGroup, run

COMMANDS = {
    "agent": "app.bench.commands.agent:agent",
    "crest": "app.bench.commands.stores:crest",
    "dense": "app.bench.commands.dense:dense",
    "distill": "app.bench.commands.distill:distill",
    "docs": "app.bench.commands.docs:docs",
    "first-token": "app.bench.commands.first_token:first_token",
    "import": "app.bench.commands.stores:import_",
    "ralm": "app.bench.commands.ralm:ralm",
}


@click.group(
    cls=LazyGroup,
    commands_at=COMMANDS,
    params=global_options(),
    context_settings={"help_option_names": ["-h", "--help"]},
)
def papers() -> None:
    """Reproduce the papers' measurements, and measure single parts of specchat.

    Needs the extra `bench`: pip install -e '.[bench]'.
    """


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:], papers, "python -m app.bench"))

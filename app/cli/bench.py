"""`specchat bench`: benchmarks on the user's own chats and model.

`python -m app.bench` has those that reproduce the papers.
"""

from __future__ import annotations

import click

from app.cli.main import LazyGroup


@click.group(
    cls=LazyGroup,
    commands_at={
        "decode": "app.bench.commands.decode:decode",
        "growth": "app.bench.commands.decode:growth",
        "simulate": "app.bench.commands.simulate:simulate",
    },
    former={"replay": "simulate"},
)
def bench() -> None:
    """Measure the speed-up from drafting, as ratios within one run."""

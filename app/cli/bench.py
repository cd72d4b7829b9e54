"""`specchat bench`: the measurements that a person makes with their own chats and model.

They are imported when called: benchmarks build on the commands. Those that reproduce the papers
are `python -m app.bench`.
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

"""`specchat bench`: the group of benchmarks."""

from __future__ import annotations

import click

from app.cli.lazy import LazyGroup


@click.group(
    cls=LazyGroup,
    commands_at={
        "crest": "app.cli.bench_crest:crest",
        "decode": "app.cli.bench_decode:decode",
        "dense": "app.cli.bench_dense:dense",
        "growth": "app.cli.bench_growth:growth",
        "replay": "app.cli.bench_replay:replay",
    },
)
def bench() -> None:
    """Measure what drafting brings, as ratios within one run."""

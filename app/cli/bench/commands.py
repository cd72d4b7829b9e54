"""`specchat bench`: the group of benchmarks, and the options that benchmarks over chats share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from app.bench.baselines import DraftShape
from app.cli.global_options import DrafterNames
from app.cli.main import LazyGroup
from app.config import DRAFTERS

if TYPE_CHECKING:
    from app.bench.environment import Sets


@click.group(
    cls=LazyGroup,
    commands_at={
        "crest": "app.cli.bench.stores:crest",
        "decode": "app.cli.bench.decode:decode",
        "dense": "app.cli.bench.stores:dense",
        "distill": "app.cli.bench.distill:distill",
        "first-token": "app.cli.bench.first_token:first_token",
        "growth": "app.cli.bench.decode:growth",
        "import": "app.cli.bench.stores:import_",
        "ralm": "app.cli.bench.ralm:ralm",
        "replay": "app.cli.bench.replay:replay",
    },
)
def bench() -> None:
    """Measure the speed-up from drafting, as ratios within one run."""


Command = Callable[..., Any]


class DraftShapeParam(click.ParamType[DraftShape]):
    """N drafts of M tokens each, written NxM: 3x20."""

    name = "shape"

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return "NxM"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> DraftShape:
        if isinstance(value, DraftShape):
            return value
        drafts, _, length = str(value).partition("x")
        if not (drafts.isdecimal() and length.isdecimal() and int(drafts) and int(length)):
            self.fail(f"{value!r} is not a shape such as 3x20", param, ctx)
        return DraftShape(int(drafts), int(length))


def workload_options(default: str) -> Callable[[Command], Command]:
    """--workload, --drafters (the sets in `default` unless given), --limit, --wider, --deeper,
    --json."""
    options = (
        click.option(
            "--workload",
            required=True,
            type=click.Path(path_type=Path),
            help="Chats, one JSON object per line.",
        ),
        click.option(
            "--drafters",
            "sets",
            multiple=True,
            help=f"A set of drafters; repeatable. [default: {default}]",
        ),
        click.option(
            "--limit", type=click.IntRange(min=1), help="Only the first N chats.", metavar="N"
        ),
        click.option(
            "--wider",
            type=click.IntRange(min=1),
            default=1,
            metavar="K",
            help="Make the model K times as wide: same tokens, at the cost of a larger model.",
        ),
        click.option(
            "--deeper",
            type=click.IntRange(min=0),
            default=0,
            metavar="N",
            help="Add N layers to the model: same tokens, at the cost of a larger model.",
        ),
        click.option(
            "--json", "as_json", is_flag=True, help="Print one JSON object on the last line."
        ),
    )

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def plot_option(what: str) -> Callable[[Command], Command]:
    """--plot: the SVG file that `what` is written to."""
    return click.option(
        "--plot",
        type=click.File("w", encoding="utf-8", lazy=False),
        metavar="FILE",
        help=f"Write {what} to this SVG file.",
    )


def drafter_sets(names: Sequence[str], known: Sequence[str] = DRAFTERS) -> Sets:
    """The sets that --drafters names, each by the text that names it."""
    kind = DrafterNames(known)
    return {name: kind.convert(name, None, None) for name in names}

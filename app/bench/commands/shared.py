"""Options that benchmarks share, progress bars, and the rule that Ctrl-C reports the results so
far."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from app.bench.baselines import DraftShape
from app.cli.global_options import DrafterNames
from app.config import DRAFTERS
from engines.llama.enlarge import Enlargement

if TYPE_CHECKING:
    from app.bench.environment import Sets

Command = Callable[..., Any]
FILE = click.Path(path_type=Path)
POSITIVE = click.IntRange(min=1)

workload_option = click.option(
    "--workload", required=True, type=FILE, help="Chats, one JSON object per line."
)
limit_option = click.option("--limit", type=POSITIVE, metavar="N", help="Only the first N chats.")
json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object on the last line."
)


def number_option(
    *names: str, default: int, help: str, least: int = 1, metavar: str = "N"
) -> Callable[[Command], Command]:
    """A whole number of `least` or more; its help shows the default."""
    return click.option(
        *names,
        type=click.IntRange(min=least),
        default=default,
        show_default=True,
        metavar=metavar,
        help=help,
    )


def plot_option(what: str) -> Callable[[Command], Command]:
    """--plot: the SVG file that `what` is written to."""
    return click.option(
        "--plot",
        type=click.File("w", encoding="utf-8", lazy=False),
        metavar="FILE",
        help=f"Write {what} to this SVG file.",
    )


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


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a benchmark over chats compares; see `workload_options`.

    Attributes:
        sets: names of sets of drafters; empty for the benchmark's defaults.
        limit: the number of chats; None for all.
    """

    workload: Path
    sets: tuple[str, ...]
    limit: int | None
    wider: int
    deeper: int
    as_json: bool

    @property
    def larger(self) -> Enlargement:
        """How much larger the model is made."""
        return Enlargement(self.wider, self.deeper)


def workload_options(default: str) -> Callable[[Command], Command]:
    """--workload, --drafters (the sets in `default` unless given), --limit, --wider, --deeper and
    --json, which the command gets as one `Comparison`, its second argument."""
    drafters = click.option(
        "--drafters",
        "sets",
        multiple=True,
        help=f"A set of drafters; repeatable. [default: {default}]",
    )
    wider = click.option(
        "--wider",
        type=POSITIVE,
        default=1,
        metavar="K",
        help="Make the model K times as wide: same tokens, at the cost of a larger model.",
    )
    deeper = click.option(
        "--deeper",
        type=click.IntRange(min=0),
        default=0,
        metavar="N",
        help="Add N layers to the model: same tokens, at the cost of a larger model.",
    )

    def decorate(command: Command) -> Command:
        @wraps(command)
        def compare(**given: Any) -> Any:
            own = {name: given.pop(name) for name in Comparison.__slots__}
            return command(Comparison(**own), **given)

        decorated: Command = compare
        for option in (json_option, deeper, wider, limit_option, drafters, workload_option):
            decorated = option(decorated)
        return decorated

    return decorate


def drafter_sets(names: Sequence[str], known: Sequence[str] = DRAFTERS) -> Sets:
    """The sets that --drafters names, each by the text that names it."""
    kind = DrafterNames(known)
    return {name: kind.convert(name, None, None) for name in names}


@contextmanager
def progress(length: int, label: str) -> Iterator[Callable[[int], None]]:
    """A progress bar on stderr; gives a function that advances it to a number of `length`."""
    with click.progressbar(length=length, label=label, file=sys.stderr) as bar:
        yield lambda done: bar.update(done - bar.pos)


@contextmanager
def until_interrupted() -> Iterator[None]:
    """Measure up to the end of the block, or to Ctrl-C: then the results so far are reported."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo("interrupted; results so far:", err=True)

"""`specchat stats`: speed, drafts and stores over weeks, from what is on disk."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from datetime import date
from time import localtime, strftime

import click

from app.cli.global_options import json_option
from app.cli.output import MAX_LINE_CHARACTERS, duration
from app.cli.stores import open_history
from app.config import Options
from app.figures import amount, format_size, percent
from app.interface.draft_origins import LABELS_BY_NAME
from app.locations import locate
from app.sanitise import one_line
from app.usage_report import DraftModelReport, UsageReport, read_report
from datastores.chats.usage import Usage


@click.command()
@json_option
@click.pass_obj
def stats(options: Options, as_json: bool) -> None:
    """Show speed, drafts, draft model versions and disk use over weeks.

    Speed without drafts is measured while answers are written; older versions did not record it.
    Accepted is the share of checked drafts that the model accepted. For each version of the draft
    model, it shows the share of its guesses, checked or not, that were right on new questions,
    before and after learning, and in your chats (live).
    """
    locations = locate(options.data_dir)
    with open_history(locations) as history:
        report = read_report(history, locations, date.today())
    if as_json:
        click.echo(json.dumps(asdict(report), default=date.isoformat))
        return
    if not report.total.answers:
        click.echo("No answers yet.", err=True)
        return
    for line in _lines(report):
        click.echo(line)


def _lines(report: UsageReport) -> Iterator[str]:
    total = report.total
    yield f"{amount(total.answers, 'answer')}, {amount(total.tokens, 'token')}{_gain(total)}"
    yield ""
    period = "week of" if report.days > 1 else "day"
    yield f"{period:<12}{'answers':>8}{'tokens':>10}{'steps':>10}{'tok/s':>8}{'without':>9}"
    for one in report.periods:
        usage = one.usage
        yield (
            f"{one.start.isoformat():<12}{usage.answers:>8,}{usage.tokens:>10,}"
            f"{usage.steps:>10,}{_speed(usage.speed):>8}{_speed(usage.plain_speed):>9}"
        )
    yield ""
    if total.by_origin:
        yield f"{'words from':<30}{'share':>8}{'accepted':>10}"
    for origin in sorted(total.by_origin, key=lambda name: -total.by_origin[name]):
        accepted = total.accepted(origin)
        known = "–" if accepted is None else percent(accepted)
        yield f"{_label(origin):<30}{percent(total.share(origin)):>8}{known:>10}"
    if total.by_origin:
        yield ""
    yield f"{'model':<30}{'tokens':>10}{'tok/s':>8}{'without':>9}"
    for model in report.models:
        usage = model.usage
        speeds = f"{_speed(usage.speed):>8}{_speed(usage.plain_speed):>9}"
        yield f"{_end(model.name, 29):<30}{usage.tokens:>10,}{speeds}"
    for draft_model in report.draft_models:
        yield ""
        yield from _draft_model(draft_model)
    yield ""
    for line in report.halted:
        yield one_line(line, MAX_LINE_CHARACTERS)
    for store in report.stores:
        yield f"{store.name:<30}{format_size(store.bytes):>10}"


def _draft_model(draft_model: DraftModelReport) -> Iterator[str]:
    """The versions of a draft model with their figures; the curve is in the JSON report."""
    learning = draft_model.learning
    title = f"draft model of {_end(draft_model.model, 14)}"
    yield f"{title:<30}{'steps':>8}{'before':>10}{'after':>10}{'live':>10}  (right)"
    for version in learning.versions:
        in_use = "*" if version.number == learning.current else " "
        name = f"{in_use} {version.number}, {strftime('%d %b %Y', localtime(version.created))}"
        shares = (
            version.figures.get("acceptance_before"),
            version.figures.get("acceptance"),
            draft_model.live_acceptance(version.number),
        )
        known = "".join(f"{_share(share):>10}" for share in shares)
        yield f"{name:<30}{version.figures.get('steps', 0):>8,.0f}{known}"
    if not learning.current:
        yield f"{'* original':<58}{_share(draft_model.live_acceptance(0)):>10}"
    size = f", {format_size(learning.bytes)}" if learning.bytes else ""
    yield f"{amount(learning.answers, 'answer')} to learn from{size}"


def _end(name: str, columns: int) -> str:
    """A model's name cut to its end, since files of one family begin alike."""
    line = one_line(name, MAX_LINE_CHARACTERS)
    return line if len(line) <= columns else f"…{line[1 - columns :]}"


def _label(origin: str) -> str:
    """The label of an origin; a later version may have stored one that is unknown here."""
    known = LABELS_BY_NAME.get(origin)
    return known.label if known else one_line(origin, 29)


def _gain(total: Usage) -> str:
    if not total.plain_seconds:
        return ""
    saved = f", {duration(total.saved_seconds)} saved" if total.saved_seconds >= 1 else ""
    return f", {total.ratio:.2f}× the speed without drafts{saved}"


def _share(share: float | None) -> str:
    return "–" if share is None else f"{share:.1%}"


def _speed(speed: float) -> str:
    return f"{speed:,.1f}" if speed else "–"

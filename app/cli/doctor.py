"""`specchat doctor`: the findings of `app.doctor`, printed."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from app.options import Options
from app.sanitise import one_line

MARKS = {"ok": "✓", "off": "–", "bad": "✗"}
COLOURS = {"ok": "green", "off": "yellow", "bad": "red"}
TEXT_LENGTH = 2000


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_obj
def doctor(options: Options, as_json: bool) -> None:
    """Say what works here, what is off, and why."""
    from app.doctor import findings

    if as_json:
        click.echo(json.dumps({"findings": [asdict(finding) for finding in findings(options)]}))
        return
    for finding in findings(options):
        mark = click.style(MARKS[finding.state], fg=COLOURS[finding.state])
        click.echo(f"{mark} {finding.topic:<17}{one_line(finding.text, TEXT_LENGTH)}")

"""`python -m app.bench agent`: options and output."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from app.bench.commands.shared import (
    FILE,
    drafter_sets,
    json_option,
    limit_option,
    number_option,
    progress,
    until_interrupted,
    workload_option,
)
from app.bench.workloads import read_chats
from app.cli.output import table
from app.config import Options
from app.locations import locate
from app.machine import machine
from app.models.discovery import resolve_model
from app.models.selection import can_chat
from datastores.chats.records import USER

COLUMNS = {
    "server": "",
    "requests": "d",
    "seconds": ".1f",
    "tokens": "d",
    "ms_per_token": ".2f",
    "generating_ms_per_token": ".2f",
    "tokens_per_step": ".2f",
    "read_per_request": ".0f",
    "prompt_per_request": ".0f",
    "ratio": ".2f",
}


@click.command()
@workload_option
@limit_option
@click.option(
    "--drafters",
    "sets",
    multiple=True,
    help="A set of drafters; repeatable. [default: all, none]",
)
@click.option(
    "--llama-server",
    "peer_binary",
    type=FILE,
    help="Also ask this program, without drafts and in its n-gram modes.",
)
@number_option("--max-tokens", default=400, help="The longest answer, in tokens.")
@json_option
@click.pass_obj
def agent(
    options: Options,
    workload: Path,
    limit: int | None,
    sets: tuple[str, ...],
    peer_binary: Path | None,
    max_tokens: int,
    as_json: bool,
) -> None:
    """Measure a coding agent's session through `specchat serve`.

    tests/evaluation/agent/session.jsonl is one of 40 requests. Every server gets each request in
    turn. The ratio is the time per token, relative to the first row's. Ctrl-C prints the results so
    far.
    """
    from app.bench.agent import PEER_MODES, MeasuredServer, peer, run_session, specchat

    chats = list(read_chats(workload))[:limit]
    model = resolve_model(options.model or "", locate(options.data_dir), None, can_chat)
    total = sum(message.role == USER for chat in chats for message in chat.messages)
    with TemporaryDirectory(prefix="specchat-bench-") as name, ExitStack() as running:
        folder = Path(name)
        endpoints: list[MeasuredServer] = []
        for drafters in drafter_sets(sets or ("all", "none")):
            endpoints.append(running.enter_context(specchat(model, folder, drafters)))
        if peer_binary is not None:
            for mode in PEER_MODES:
                endpoints.append(running.enter_context(peer(peer_binary, model, mode, folder)))
        with until_interrupted(), progress(total, "requests") as advance:
            for done in run_session(endpoints, chats, max_tokens):
                advance(done)
    rows = [one.row() for one in endpoints]
    for row, one in zip(rows, endpoints, strict=True):
        row["ratio"] = one.ms_per_token / (endpoints[0].ms_per_token or 1.0)
    if as_json:
        click.echo(json.dumps({"model": model.name, "machine": machine(), "rows": rows}))
    else:
        click.echo(table(rows, COLUMNS))

"""`specchat bench simulate`: what drafting would bring a person, from their own chats."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from app.bench.commands.shared import json_option, number_option, progress, until_interrupted
from app.bench.decode import WIDTHS
from app.bench.simulation import ALL, MAX_BUDGET, Simulated, Simulation, empty_history
from app.bench.workloads import PastConversation, from_files, from_history
from app.cli.stores import open_history
from app.config import Options, load_config
from app.engine.learned_state import costs_of
from app.engine.loading import model_path
from app.locations import Locations, locate
from app.machine import machine
from datastores.errors import InputError
from engines.budget.cost_model import CostModel
from engines.fingerprint import fingerprint

MIN_SPEEDUP = 1.05
"""A smaller speed-up is reported as none."""
ESTIMATED = " (a guess: this model's speed is not measured yet; the first answer measures it)"


@click.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=Path), metavar="[FILE…]")
@number_option(
    "--limit", default=50, help="Simulate the last N chats; those before them are history."
)
@json_option
@click.pass_obj
def simulate(options: Options, files: tuple[Path, ...], limit: int, as_json: bool) -> None:
    """Estimate the speed-up from drafting, from your own chats.

    Runs every drafter that needs only tokens along the chats in specchat's history, or in FILEs
    exported from specchat, ChatGPT, Claude and others, without running the model. Each chat is
    history for the next. Token recycling is underestimated, as the model's scores are not known.
    Ctrl-C prints the results so far.
    """
    locations = locate(options.data_dir)
    config = load_config(locations.settings)
    conversations = _conversations(files, locations)
    model = model_path(options, config, locations)
    costs = costs_of(locations.costs, fingerprint(model))
    drafters, tokens = _simulate(conversations, limit, model, config.context, costs)
    if not sum(tokens):
        raise InputError("no answers to simulate")
    if as_json:
        click.echo(json.dumps(_report(drafters, tokens, costs, model)))
    else:
        click.echo(_line(drafters, costs))


def _conversations(files: Sequence[Path], locations: Locations) -> list[PastConversation]:
    if files:
        return list(from_files(files))
    with open_history(locations) as history:
        found = list(from_history(history))
    if not found:
        raise InputError("no chats yet: give a file of chats exported from another program")
    return found


def _simulate(
    conversations: Sequence[PastConversation],
    limit: int,
    model: Path,
    context: int,
    costs: CostModel,
) -> tuple[dict[str, Simulated], list[int]]:
    """Simulate the last `limit` chats: each drafter's results, and the tokens of each chat."""
    from app.indexing.vocabularies import open_vocabulary

    tokens: list[int] = []
    simulated = conversations[-limit:]
    with empty_history() as past:
        run = Simulation(open_vocabulary(model), context, past, costs.table(0))
        with until_interrupted(), progress(len(simulated), "chats") as advance:
            run.remember(conversations[:-limit])
            for conversation in simulated:
                tokens.append(run.run(conversation))
                advance(len(tokens))
    return run.drafters, tokens


def _line(drafters: dict[str, Simulated], costs: CostModel) -> str:
    """The summary in one line."""
    table = costs.table(0)
    together = drafters[ALL]
    counts = together.total()[MAX_BUDGET]
    speedup = together.speedup(counts, table)
    alone = ", ".join(
        f"{name} {simulated.total()[simulated.best(table)].tokens_per_step:.2f}"
        for name, simulated in drafters.items()
        if name != ALL
    )
    gain = (
        f"about {speedup:.1f}× as fast as without drafts"
        if speedup >= MIN_SPEEDUP
        else "no speed-up"
    )
    return (
        f"{gain} in your last {len(together.chats)} chats:"
        f" {counts.tokens_per_step:.2f} tokens per step (each alone: {alone})"
        f"{'' if _is_measured(costs) else ESTIMATED}"
    )


def _is_measured(costs: CostModel) -> bool:
    return bool(costs.state()["plain"])


def _report(
    drafters: dict[str, Simulated], tokens: Sequence[int], costs: CostModel, model: Path
) -> dict[str, Any]:
    table = costs.table(0)
    return {
        "model": model.name,
        "machine": machine(),
        "measured": _is_measured(costs),
        "verify_ms": {str(rows): round(1e3 * table[rows], 3) for rows in WIDTHS},
        "tokens": sum(tokens),
        "rows": [row for name in drafters for row in _rows(name, drafters[name], table)],
        "chats": [
            {"tokens": count, "tokens_per_step": _rates(drafters, table, number)}
            for number, count in enumerate(tokens)
        ],
    }


def _rows(name: str, simulated: Simulated, table: Sequence[float]) -> list[dict[str, object]]:
    """One row for each draft length; null means the budget chose it at each step."""
    return [
        {
            "drafters": name,
            "budget": None if name == ALL else budget,
            "tokens_per_step": counts.tokens_per_step,
            "mean_acceptance_rate": counts.mean_acceptance_rate,
            "drafted_per_step": counts.drafted_per_step,
            # All together, drafters that do not pay are not consulted.
            "speedup": max(simulated.speedup(counts, table), 1.0 if name == ALL else 0.0),
        }
        for budget, counts in simulated.total().items()
    ]


def _rates(drafters: dict[str, Simulated], table: Sequence[float], number: int) -> dict[str, float]:
    """Tokens per step of one chat, each drafter at the draft length that is best over all chats."""
    return {
        name: simulated.chats[number][simulated.best(table)].tokens_per_step
        for name, simulated in drafters.items()
    }

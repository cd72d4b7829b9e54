"""`specchat doctor`: versions, places, model and devices; what is off, and why."""

from __future__ import annotations

import click


@click.command()
def doctor() -> None:
    """Say what works here, what is off, and why."""

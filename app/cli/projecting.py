"""Bringing what the person's model drafts from up to date, in the foreground, for commands."""

from __future__ import annotations

from app.cli.terminal import Status, amount
from app.config import load_config
from app.locations import Locations
from app.models.finding import path_of
from app.options import Options
from app.projection import Projecting, opened


def project(options: Options, locations: Locations, status: Status) -> int | None:
    """Make every text ready for drafting with the chosen model's tokenizer.

    Returns the number of tokens that were new, or None where another process is at it.

    Raises:
        ModelError: the model's tokenizer cannot be read.
        StoreError: a store cannot be written.
    """
    from engines.llama.tokenizer import load_vocabulary

    config = load_config(locations.settings)
    vocabulary = load_vocabulary(path_of(options.model or config.model, locations))
    tokens = 0
    with opened(locations, vocabulary, config.crest.max_bytes) as projection:
        if not projection.lock.take():
            return None
        for progress in projection.run(settle=True):
            status.show(_line(progress))
            tokens = progress.tokens
    status.clear()
    return tokens


def _line(progress: Projecting) -> str:
    if progress.building:
        return "building what is drafted from"
    return f"tokenising {progress.done:,} of {amount(progress.total, 'text')}"

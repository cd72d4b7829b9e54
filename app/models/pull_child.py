"""The process that fetches one model for the interface: `python -m app.models.pull_child`.

A process of its own, so that stopping is at once, whatever the connection is waiting for: it may be
killed at any moment, and the next one goes on from what has come. Its parent reads one line of JSON
from standard output for each event; when nobody reads them, it ends.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from time import monotonic

from app.models.pulling import Progress, Pulled, pull
from app.models.remote import look_up
from datastores.errors import SpecchatError

INTERVAL = 0.2
"""Seconds between two reports."""


def main(arguments: Sequence[str]) -> int:
    """Look up what is wanted and fetch it.

    Args:
        arguments: `ORG/REPO[:QUANT]`; the cache to fetch it into.
    """
    wanted, cache = arguments
    try:
        offer = look_up(wanted)
        _report(name=f"{offer.repository}:{offer.tag}", total=offer.size)
        with closing(pull(offer, Path(cache))) as events:
            for event in spaced(events):
                if isinstance(event, Pulled):
                    _report(path=str(event.path))
                else:
                    _report(done=event.done, total=event.total)
    except SpecchatError as error:
        _report(failure=str(error))
        return 1
    except BrokenPipeError:
        os._exit(1)
    return 0


def spaced(events: Iterable[Progress | Pulled]) -> Iterator[Progress | Pulled]:
    """`events` without most of the progress; the first and the last are among what is left."""
    reported = float("-inf")
    for event in events:
        now = monotonic()
        if isinstance(event, Pulled) or event.done == event.total or now - reported >= INTERVAL:
            reported = now
            yield event


def _report(**told: object) -> None:
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

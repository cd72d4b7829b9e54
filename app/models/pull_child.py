"""The process that fetches one model for the interface: `python -m app.models.pull_child`.

A process of its own, so that stopping is at once, whatever the connection is waiting for: it may be
killed at any moment, and the next one goes on from what has come. Its parent reads one line of JSON
from standard output for each event; when nobody reads them, it ends.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from app.children import tell
from app.models.pulling import Pulled, pull
from app.models.remote import look_up
from datastores.errors import SpecchatError


def main(arguments: Sequence[str]) -> int:
    """Look up what is wanted and fetch it.

    Args:
        arguments: `ORG/REPO[:QUANT]`; the cache to fetch it into.
    """
    wanted, cache = arguments
    try:
        offer = look_up(wanted)
        tell({"name": f"{offer.repository}:{offer.tag}", "total": offer.size})
        with closing(pull(offer, Path(cache))) as events:
            for event in events:
                if isinstance(event, Pulled):
                    tell({"path": str(event.path)})
                else:
                    tell({"done": event.done, "total": event.total})
    except SpecchatError as error:
        tell({"failure": str(error)})
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

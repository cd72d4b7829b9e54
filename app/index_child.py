"""The process that brings one tokenizer's stores up to date: `python -m app.index_child`.

A process of its own, at the lowest priority: building CREST takes memory and minutes where a
library is large, and neither may cost the answer that is being written meanwhile. It may be killed
at any moment. One line of JSON on standard output for each step; when nobody reads them, it ends.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from app.locations import Locations
from app.projection import opened
from datastores.errors import SpecchatError
from engines.llama.tokenizer import load_vocabulary

NICEST = 19


def main(arguments: Sequence[str]) -> int:
    """Work off all that is due, unless another process is at it.

    Args:
        arguments: model file; data, cache and configuration directory; bytes CREST may take.
    """
    model, data, cache, config, budget = arguments
    _yield_to_others()
    locations = Locations(Path(data), Path(cache), Path(config))
    try:
        with opened(locations, load_vocabulary(Path(model)), int(budget)) as projection:
            if projection.lock.take():
                for progress in projection.run():
                    print(json.dumps(asdict(progress)), flush=True)
    except SpecchatError as error:
        print(error, file=sys.stderr)
        return 1
    except BrokenPipeError:
        # Whoever asked for it has ended.
        os._exit(1)
    return 0


def _yield_to_others() -> None:
    """Run only where nobody else wants to."""
    if sys.platform != "win32":
        os.nice(NICEST)
    if sys.platform == "linux":
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

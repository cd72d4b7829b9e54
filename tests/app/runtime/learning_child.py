"""A child that stands in for training: `python -m tests.app.runtime.learning_child MODE FILE`.

It writes how many steps it has done into FILE. MODE: `learn` ends with a version after 30 steps,
`nothing` with none, `endless` never, `load` reads after one step and never gets to the next, `fail`
and `crash` end without a result.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from datastores.errors import ModelError
from engines.child_process import emit, run_child

STEPS = 30


def main(arguments: Sequence[str]) -> None:
    mode, path, *_ = arguments
    if mode == "fail":
        raise ModelError("the loss is not a number")
    if mode == "crash":
        os._exit(3)
    if mode == "load":
        emit({"done": 1, "steps": 1})
        emit({"reading": True})
    steps = sys.maxsize if mode in ("endless", "load") else STEPS
    for step in range(1, steps + 1):
        Path(path).write_text(str(step))
        if mode != "load":
            emit({"done": step, "steps": steps})
        time.sleep(0.005)
    figures = {"acceptance_before": 0.5, "acceptance": 0.75}
    version = {"number": 4, "parent": 3, "figures": figures} if mode == "learn" else None
    emit({"version": version, "reason": "" if version else "acceptance fell", "head": False})


if __name__ == "__main__":
    run_child(main)

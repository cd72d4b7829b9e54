"""An import that comes to a halt: `python -m tests.app.importing.halting_child …`.

Its arguments are those of `app.importing.process`. It stores each file at once, and none after the
first `FILES`.
"""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event as Flag
from typing import Any
from unittest.mock import patch

from app.importing import pipeline, process
from app.importing.events import Event, ImportProgress
from app.importing.session import import_into
from engines.child_process import run_child

FILES = 20


def import_some(*arguments: Any) -> Iterator[Event]:
    for event in import_into(*arguments):
        yield event
        if isinstance(event, ImportProgress) and event.files == FILES:
            Flag().wait()


if __name__ == "__main__":
    pipeline.MAX_GROUP_AGE_S = 0.0
    with patch("app.importing.process.import_into", import_some):
        run_child(process.import_and_report)

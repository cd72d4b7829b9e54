"""Putting exported chats back into a history.

One that is there already is left alone, so restoring twice is harmless, and brings back what was
deleted in between.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from app.exported import Flawed, read_export
from datastores.errors import InputError
from datastores.history import History
from datastores.transfer import holds, put_back


@dataclass(slots=True)
class Report:
    """What became of the chats of a file.

    Attributes:
        restored, present: chats put back, and chats that were there already.
        flaws: what is wrong with the others, a sentence each.
    """

    restored: int = 0
    present: int = 0
    flaws: list[str] = field(default_factory=list)


def restore(path: Path, history: History) -> Report:
    """Put the chats of the file back.

    Raises:
        InputError: it cannot be read, is no export of specchat's, or holds no chats; damage after
            some chats were read is a flaw.
        StoreError: the history cannot be written.
    """
    report = Report()
    try:
        for number, found in enumerate(read_export(path), start=1):
            if isinstance(found, Flawed):
                report.flaws.append(f"chat {number}: {found.reason}")
            elif holds(history, found.chat, found.messages):
                report.present += 1
            else:
                put_back(history, found.chat, found.messages)
                report.restored += 1
    except InputError as error:
        if report == Report():
            raise
        report.flaws.append(f"the rest: {error}")
    if report == Report():
        raise InputError(f"{path} holds no chats")
    return report

"""The functions of the search form in SQL, and what they raise.

SQLite replaces whatever a function raises by an error of its own. Ctrl-C and SIGTERM, which Python
raises in the function that it is about to call, would be lost and the database blamed for them.
Owns that they are raised again where the statement failed (`raise_again`).
"""

from __future__ import annotations

import sqlite3
import sys
import threading

from datastores.search_form import fold, index_form

FUNCTIONS = {"index_form": index_form, "fold": fold}


class _Raised(threading.local):
    """What a function raised in this thread's last statement."""

    error: BaseException | None = None


_raised = _Raised()
_others = sys.unraisablehook


def add_functions(connection: sqlite3.Connection) -> None:
    """Let statements on `connection`, and its triggers, call `FUNCTIONS`."""
    global _others
    if sys.unraisablehook is not _remember:
        _others, sys.unraisablehook = sys.unraisablehook, _remember
    # Nothing is printed: this is how Python hands over what it would drop.
    sqlite3.enable_callback_tracebacks(True)
    for name, function in FUNCTIONS.items():
        connection.create_function(name, 1, function, deterministic=True)


def forget_raised() -> None:
    """A statement begins: what was raised before is not its."""
    _raised.error = None


def raise_again(error: sqlite3.Error) -> None:
    """Raise what a function raised, if that is why a statement failed with `error`."""
    raised, _raised.error = _raised.error, None
    if raised is not None:
        raise raised from error


def _remember(unraisable: sys.UnraisableHookArgs) -> None:
    if unraisable.object in FUNCTIONS.values() and unraisable.exc_value is not None:
        _raised.error = unraisable.exc_value
    else:
        _others(unraisable)

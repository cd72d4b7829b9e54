"""The functions of the search form in SQL, and the exceptions they raise.

SQLite replaces an exception of a function with an error of its own. Ctrl-C and SIGTERM, which
Python raises in the function that it is about to call, would be lost and reported as errors of the
database. `raise_again` raises them where the statement failed.
"""

from __future__ import annotations

import sqlite3
import sys
import threading

from datastores.search_form import fold, index_form

FUNCTIONS = {"index_form": index_form, "fold": fold}


class _Raised(threading.local):
    """The exception of a function in this thread's last statement."""

    error: BaseException | None = None


_raised = _Raised()
_others = sys.unraisablehook


def add_functions(connection: sqlite3.Connection) -> None:
    """Define `FUNCTIONS` for statements and triggers on `connection`."""
    global _others
    if sys.unraisablehook is not _remember:
        _others, sys.unraisablehook = sys.unraisablehook, _remember
    # This prints nothing; it makes Python pass exceptions to `sys.unraisablehook`.
    sqlite3.enable_callback_tracebacks(True)
    for name, function in FUNCTIONS.items():
        connection.create_function(name, 1, function, deterministic=True)


def forget_raised() -> None:
    """Forget earlier exceptions before a statement."""
    _raised.error = None


def raise_again(error: sqlite3.Error) -> None:
    """Raise the function's exception that made a statement fail with `error`, if there is one."""
    raised, _raised.error = _raised.error, None
    if raised is not None:
        raise raised from error


def _remember(unraisable: sys.UnraisableHookArgs) -> None:
    if unraisable.object in FUNCTIONS.values() and unraisable.exc_value is not None:
        _raised.error = unraisable.exc_value
    else:
        _others(unraisable)

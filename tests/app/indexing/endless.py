"""A child process that reports nothing and never ends: `python -m tests.app.indexing.endless`."""

from __future__ import annotations

from threading import Event

if __name__ == "__main__":
    Event().wait()

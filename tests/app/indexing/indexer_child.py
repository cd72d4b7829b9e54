"""The indexer's worker at normal priority: beside load, the lowest gets no time at all."""

from __future__ import annotations

from app.child_process import run_child
from app.indexing.indexer import bring_up_to_date

if __name__ == "__main__":
    run_child(bring_up_to_date)

"""The indexer's worker at normal priority: beside load, the lowest gets no time at all."""

from __future__ import annotations

from app.indexing.indexer import bring_up_to_date
from engines.child_process import run_child

if __name__ == "__main__":
    run_child(bring_up_to_date)

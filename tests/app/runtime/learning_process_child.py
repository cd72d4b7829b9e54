"""The process that trains at normal priority: beside load, the lowest gets no time at all."""

from __future__ import annotations

from app.runtime.learning_process import learn
from engines.child_process import run_child

if __name__ == "__main__":
    run_child(learn)

"""The child that learns a classifier, of few notes and at normal priority: beside load, the lowest
gets no time at all."""

from __future__ import annotations

from app.runtime import idle_answerability
from engines.child_process import run_child

NOTES, PART = 12, 5

if __name__ == "__main__":
    idle_answerability.NOTES, idle_answerability.PART = NOTES, PART
    run_child(idle_answerability.learn_from_parts)

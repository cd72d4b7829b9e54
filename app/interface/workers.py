"""Starts coroutines beside the interface, as workers of a widget.

A coroutine is made by the worker that awaits it: one that is cancelled before its first step, by
the next of its group or by the end of the program, leaves none behind that was never awaited.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import TypeVar, TypeVarTuple

from textual.dom import DOMNode
from textual.worker import Worker, WorkType

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")


def start_worker(
    node: DOMNode,
    function: Callable[[*Arguments], Coroutine[None, None, Result]],
    *arguments: *Arguments,
    group: str = "default",
    exclusive: bool = False,
) -> Worker[Result]:
    """Run `function` with `arguments`; it is cancelled when `node` is removed.

    Args:
        exclusive: whether it cancels the others of its `group`.
    """
    work: WorkType[Result] = partial(function, *arguments)
    return node.run_worker(work, group=group, exclusive=exclusive)

"""Starts coroutines as workers of a widget.

The worker itself creates the coroutine, so that one that is cancelled before its first step leaves
no coroutine that was never awaited, which Python warns about.
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
    """Run `function` with `arguments` until `node` is removed; `exclusive` cancels its `group`."""
    work: WorkType[Result] = partial(function, *arguments)
    return node.run_worker(work, group=group, exclusive=exclusive)

"""Where long work may be paused: at `pause_here`, where no other process waits for it.

A process of idle work decides once, with `pause_with`, what happens there; in all others it costs a
call. The work itself does not know what it waits for.
"""

from __future__ import annotations

from collections.abc import Callable

_wait: Callable[[], object] = lambda: None  # noqa: E731


def pause_with(wait: Callable[[], object]) -> None:
    """Call `wait` at every pause of this process from now on."""
    global _wait
    _wait = wait


def pause_here() -> None:
    """Wait, in a process of idle work, for as long as it is to be paused."""
    _wait()

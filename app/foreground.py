"""Tells every process of this person that somebody waits for specchat, so that idle work pauses.

Whoever answers, searches or imports holds a mark: an empty file, named after its process, in a
folder that all processes share. The mark of a process that died counts for nothing. Idle work asks
`busy` between slices of about a tenth of a second, within those that take longer, or waits in
`datastores.pauses`; looking into an empty folder takes some microseconds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from time import monotonic, sleep

from datastores.storage.files import is_running, process_id

LOGGER = logging.getLogger("specchat.foreground")

POLL_S = 0.2
"""Seconds between two looks of waiting idle work."""
CHECK_S = 2.0
"""Seconds between two checks that the process of a mark still runs, each of which takes a
millisecond."""
_SEPARATOR = "-"
"""In place of the colon of a process's identity, which Windows allows in no file name."""
_numbers = count()


class Foreground:
    """The marks in `folder`, which need not exist. For any number of threads and processes.

    Attributes:
        folder: with the marks.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._checked: dict[str, float] = {}

    def begin(self) -> Callable[[], None]:
        """Mark that somebody waits for this process; returns what ends that.

        Without a place for the mark idle work goes on, and nothing else changes; where the cache
        does not exist yet, there is none.
        """
        mark = self.folder / f"{process_id().replace(':', _SEPARATOR)}{_SEPARATOR}{next(_numbers)}"
        try:
            self.folder.mkdir(mode=0o700, exist_ok=True)
            mark.touch(mode=0o600)
        except FileNotFoundError:
            pass
        except OSError as error:
            LOGGER.warning("idle work is not paused: %s cannot be written (%s)", mark, error)

        def end() -> None:
            with suppress(OSError):  # a stale mark of a process that ended counts for nothing
                mark.unlink(missing_ok=True)

        return end

    @contextmanager
    def work(self) -> Iterator[None]:
        """Within this, somebody waits for this process."""
        end = self.begin()
        try:
            yield
        finally:
            end()

    def busy(self) -> bool:
        """Whether somebody waits for any process, this one included."""
        try:
            marks = list(self.folder.iterdir())
        except OSError:  # nobody has waited yet
            return False
        return any(map(self._holds, marks))

    def wait(self) -> None:
        """Return when nobody waits."""
        while self.busy():
            sleep(POLL_S)

    def _holds(self, mark: Path) -> bool:
        """Whether the process of `mark` still runs; if not, removes the mark."""
        if monotonic() < self._checked.get(mark.name, 0.0):
            return True
        process, _, _ = mark.name.rpartition(_SEPARATOR)
        if is_running(process.replace(_SEPARATOR, ":")):
            self._checked[mark.name] = monotonic() + CHECK_S
            return True
        self._checked.pop(mark.name, None)
        with suppress(OSError):  # another process was faster, or the next look removes it
            mark.unlink(missing_ok=True)
        return False

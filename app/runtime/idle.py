"""What the loaded model does while nobody asks: slice by slice, so that whoever asks goes first.

Owns when there may be something to do, and that a laptop's battery is left alone. Refuses to know
what is done, and on which thread: that of the model, which is the caller's.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from threading import Event
from time import monotonic

from app.machine import on_battery
from app.runtime.idle_encoding import EncodingProgress
from datastores.errors import SpecchatError

LOOK = 10.0
"""Seconds between two looks at the battery."""

Begin = Callable[[bool], Generator[EncodingProgress | None]]
"""Begins what there is to do; told whether texts may have come or gone."""
Tell = Callable[[EncodingProgress | None, SpecchatError | None], object]


class IdleWork:
    """Work of one model. All but `rouse` belongs to the model's thread.

    Attributes:
        roused: called by `rouse`, on any thread; set by whoever drives the work.
    """

    def __init__(self, begin: Begin, tell: Tell) -> None:
        """`tell` hears how far it is, None where there is nothing to tell, and what went wrong."""
        self.roused: Callable[[], object] = lambda: None
        self._begin = begin
        self._tell = tell
        self._texts = Event()
        self._texts.set()
        self._going: Generator[EncodingProgress | None] | None = None
        self._told: EncodingProgress | SpecchatError | None = None
        self._looked = -LOOK
        self._spared = False

    def rouse(self) -> None:
        """Texts may have come or gone: look again."""
        self._texts.set()
        self.roused()

    def slice(self) -> bool:
        """Do a little; whether there is more to do."""
        if self._must_spare():
            self._say(None)
            return False
        if self._going is None:
            texts = self._texts.is_set()
            self._texts.clear()
            self._going = self._begin(texts)
        try:
            self._say(next(self._going))
        except StopIteration:
            self._going = None
            self._say(None)
            return self._texts.is_set()
        except SpecchatError as error:
            self._going = None
            self._fail(error)
            return False
        return True

    def close(self) -> None:
        """Leave what is not done for the next time."""
        if self._going is not None:
            self._going.close()
            self._going = None

    def _must_spare(self) -> bool:
        if monotonic() >= self._looked + LOOK:
            self._looked, self._spared = monotonic(), on_battery()
        return self._spared

    def _say(self, reading: EncodingProgress | None) -> None:
        """Tell what can be seen to have changed: a hundredth, or the end."""
        reading = reading if reading is not None and reading.noticed else None
        if _step(reading) != _step(self._told):
            self._told = reading
            self._tell(reading, None)

    def _fail(self, error: SpecchatError) -> None:
        if str(error) != str(self._told):
            self._told = error
            self._tell(None, error)


def _step(told: EncodingProgress | SpecchatError | None) -> object:
    if isinstance(told, EncodingProgress):
        return told.imports, told.renewing, 100 * told.done // max(1, told.total)
    return None

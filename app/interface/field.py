"""One setting in a form: its name, a box for its value, and what it means or what is wrong.

Owns what was typed. What makes sense is `app.sampling`'s business.
"""

from __future__ import annotations

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.widgets import Input, Static

from app.interface.writing import Line
from app.sampling import read_setting
from datastores.errors import InputError


class Field(Horizontal):
    """A line of the form; an empty box stands for the default.

    Attributes:
        setting: the name of the setting.
        trouble: what is wrong with what stands in the box; empty where nothing is.
    """

    def __init__(self, setting: str, default: str, hint: str) -> None:
        super().__init__()
        self.setting = setting
        self.trouble = ""
        self._default = default
        self._hint = hint

    def compose(self) -> ComposeResult:
        yield Static(self.setting.replace("_", " "), markup=False, classes="-name")
        yield Line(placeholder=self._default)
        yield Static(self._hint, markup=False, classes="-hint")

    @property
    def box(self) -> Line:
        return self.query_one(Line)

    def value(self) -> int | float | None:
        """What was typed; None where nothing was.

        Raises:
            InputError: it makes no sense.
        """
        typed = self.box.value.strip()
        return read_setting(self.setting, typed) if typed else None

    def show(self, value: object) -> None:
        """Put a stored value into the box; None: the default."""
        self.box.value = "" if value is None else str(value)

    @on(Input.Changed)
    def check(self) -> None:
        """Say what is wrong with what stands in the box, or what it is for."""
        try:
            self.value()
            self.trouble = ""
        except InputError as error:
            self.trouble = str(error)
        beside = self.query_one(".-hint", Static)
        beside.update(self.trouble or self._hint)
        beside.set_class(bool(self.trouble), "-wrong")

"""How much a foreign template may make: every operation that builds something pays beforehand.

The sandbox keeps a template from reaching out; this keeps it from eating memory. A single
expression can ask for gigabytes, so sizes are reckoned before the work is done, not after.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from jinja2.exceptions import SecurityError

RATION = 1 << 22
"""Characters and items one rendering may make in all."""
LARGEST_POWER = 64
WIDTH = re.compile(r"\d{5}|\*")
"""In a format string: a field wider than any in use, or one whose width is an argument."""
PADDING_METHODS = frozenset({"center", "expandtabs", "ljust", "rjust", "zfill"})
FORMATS = frozenset({"format", "format_map"})


class Ration:
    """What is left for the rendering under way."""

    def __init__(self) -> None:
        self._left = RATION

    def renew(self) -> None:
        """Begin another rendering."""
        self._left = RATION

    def spend(self, amount: int) -> None:
        """Take `amount` characters or items.

        Raises:
            SecurityError: there are not that many left.
        """
        self._left -= amount
        if self._left < 0:
            raise SecurityError(f"it makes more than {RATION} characters")

    def spend_on(self, value: Any) -> Any:
        """Pay for writing `value` out, whatever it holds; returns it."""
        waiting = [value]
        while waiting:
            item = waiting.pop()
            if isinstance(item, Mapping):
                waiting.extend([*item.keys(), *item.values()])
            elif isinstance(item, list | tuple | set | frozenset | range):
                waiting.extend(item)
            self.spend(1 + _extent(item))
        return value

    def spend_shallow(self, value: Any) -> None:
        """Pay for going over `value`'s items once."""
        self.spend(1 + _extent(value))

    def spend_on_operator(self, operator: str, left: Any, right: Any) -> None:
        """Pay for `left operator right`."""
        if operator == "**":
            if not isinstance(right, int | float) or abs(right) > LARGEST_POWER:
                raise SecurityError("it raises to a high power")
            self.spend(_extent(left) * LARGEST_POWER)
        elif operator == "*":
            self.spend(_product(left, right))
        elif operator == "%" and isinstance(left, str):
            self.spend_on_format(left, right)
        else:
            self.spend(_extent(left) + _extent(right))

    def spend_on_format(self, template: str, *values: Any) -> None:
        """Pay for filling in a format string."""
        if WIDTH.search(template):
            raise SecurityError("it formats very wide")
        places = 1 + template.count("%") + template.count("{")
        before = self._left
        self.spend_on(values)
        self.spend(len(template) + places * (before - self._left))

    def spend_on_method(self, text: str, name: str, arguments: tuple[Any, ...]) -> None:
        """Pay for a call of `text`'s method `name`."""
        if name in FORMATS:
            self.spend_on_format(text, *arguments)
        elif name in PADDING_METHODS:
            width = max((item for item in arguments if isinstance(item, int)), default=8)
            self.spend((1 + text.count("\t")) * max(width, 8) + len(text))
        elif name == "replace":
            self.spend_on_replace(text, *arguments[:2])
        elif name == "join":
            self.spend_on_join(arguments[0], text)
        else:
            self.spend(4 * len(text))

    def spend_on_replace(self, text: Any, old: Any = "", new: Any = "", *_count: Any) -> None:
        """Pay for replacing `old` by `new` throughout."""
        text, old, new = str(self.spend_on(text)), str(self.spend_on(old)), self.spend_on(new)
        self.spend(len(text) + text.count(old) * len(str(new)))

    def spend_on_join(self, items: Any, separator: Any = "") -> None:
        """Pay for joining `items`."""
        if isinstance(items, list | tuple | str | Mapping):
            self.spend(len(items) * (1 + len(str(separator))))
        self.spend_on(items)


def _extent(value: Any) -> int:
    """Characters or items of a value by itself; bytes of an integer."""
    if isinstance(value, int):
        return value.bit_length() >> 3
    if isinstance(value, str | bytes | list | tuple | Mapping | set | frozenset | range):
        return len(value)
    return 0


def _product(left: Any, right: Any) -> int:
    """What `left * right` makes."""
    for text, count in ((left, right), (right, left)):
        if isinstance(text, str | bytes | list | tuple) and isinstance(count, int):
            return len(text) * max(count, 0)
    return _extent(left) + _extent(right)

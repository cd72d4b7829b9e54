"""Turns a gauge's line into a reading."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

_LINE = re.compile(rb"#(?P<gauge>[NS]) (?P<stamp>\d{12}) (?P<mm>[+-]\d{5}) \*(?P<sum>[0-9A-F]{2})")
GAUGES = {"N": "north", "S": "south"}


class BadLineError(ValueError):
    """The line is not a reading, or was damaged on the wire."""


@dataclass(frozen=True)
class TideReading:
    """Height of the water at a time, in metres above the gauge's own zero."""

    gauge: str
    at: datetime
    metres: float


def parse_line(line: bytes) -> TideReading:
    """The reading in a line such as `#N 250311064200 +02817 *4C`.

    Raises:
        BadLineError: wrong form or wrong checksum.
    """
    match = _LINE.fullmatch(line)
    if match is None:
        raise BadLineError(f"not a reading: {line[:40]!r}")
    if xor_checksum(line[: match.start("sum") - 1]) != int(match["sum"], 16):
        raise BadLineError("checksum differs")
    at = datetime.strptime(match["stamp"].decode(), "%y%m%d%H%M%S").replace(tzinfo=UTC)
    return TideReading(GAUGES[match["gauge"].decode()], at, int(match["mm"]) / 1000)


def xor_checksum(content: bytes) -> int:
    """All bytes combined by exclusive or, then by 0x5A, as the manufacturer's manual has it."""
    total = 0x5A
    for byte in content:
        total ^= byte
    return total

"""What a command leaves out of the question it answers: sizes, times, numbers, names and actions.

The embedded model sometimes puts a value of the question into the wrong slot of a command, or
leaves it out: "files bigger than 100MB" became `find -mtime -100`. Comparing the two texts shows
whether each value is where its kind belongs. Doubtful cases count as right, since people ignore a
warning that is often wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

MAX_NAMED = 4
"""Parts of a question that are named in one line."""

_FENCE = re.compile(r"^[ \t]*```[^\n]*\n(.*?)(?:^[ \t]*```|\Z)", re.MULTILINE | re.DOTALL)
_COMPARED = (
    r"\b(?:(?P<more>bigger|larger|greater|more|longer|older|over|above|exceeding|at least)"
    r"|(?P<less>smaller|less|fewer|shorter|newer|younger|under|below|within|at most|last|past))?"
    r"(?: than| the)?\s*(?P<number>\d+(?:\.\d+)?)"
)
"""A number, and what it bounds."""
_SIZE = re.compile(
    _COMPARED + r"(?:\s?(?P<unit>[kmgt])(?:i?b|(?:ilo|ega|iga|era)bytes?|egs?|igs?)"
    r"|(?P<letter>(?-i:[KMG])))\b",
    re.IGNORECASE,
)
_TIME = re.compile(
    _COMPARED + r"\s?(?:(?P<s>s|secs?|seconds?)|(?P<mo>months?)|(?P<m>mins?|minutes?)"
    r"|(?P<h>h|hrs?|hours?)|(?P<d>d|days?)|(?P<w>weeks?)|(?P<y>years?))\b",
    re.IGNORECASE,
)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800, "mo": 2_592_000, "y": 31_536_000}
_NAME = re.compile(
    r"(?<![\w.*/~:@-])(?:https?://[^\s,'\"]+|(?:~|\.{1,2})?/[\w.+@/-]*\w|\*\.\w{1,5}"
    r"|[A-Za-z_][\w-]*(?:/[\w.-]*\w)+|[\w-]+(?:\.[\w-]+)*\.[A-Za-z]\w{0,4}"
    r"|\d{1,3}(?:\.\d{1,3}){3})\b|(?<=\s)\.[a-z]\w{1,4}(?= files?\b)"
)
_KINDS = re.compile(r"(?i)\.?(?:tar(?:\.\w+)?|e\.g|i\.e|\w+\.(?:js|net|io|com|org)|and/or)")
"""Words that look like file names but are kinds of things."""
_NUMBER = re.compile(r"(?<![\w.,/:*@~+-])\d+(?![\w/:@-]|[.,]\d)")
_ACTION = re.compile(
    r"\b(?:and|then|,)(?: then)? ((?P<delete>delete|remove|erase)|(?P<copy>copy)"
    r"|(?P<move>move|rename)|(?P<compress>compress|zip)|(?P<count>count)|(?P<sort>sort)"
    r"|(?P<kill>kill)) (?:them|it|those|these|all)\b",
    re.IGNORECASE,
)
"""A further action on what was found."""
_TASK = re.compile(
    r"(?:^|(?<=[.!?] ))(?:how (?:do|can|to|would|should) (?:i |you |we )?|please |can you )?"
    r"(?P<task>(?P<delete>delete|remove|erase)|(?P<copy>copy)|(?P<move>move|rename)"
    r"|(?P<compress>compress|zip)|(?P<count>count)|(?P<kill>kill))\b",
    re.IGNORECASE,
)
"""The action that the whole question asks for."""
_LISTS = re.compile(r"\s*(?:sudo )?(?:find|fd|ls|locate|plocate|tree|du|ps|pgrep|lsof)\s.*")
"""A command that only lists."""
_ACTIONS = {
    "delete": r"\brm|-delete|unlink|remove|prune|delete|purge|trash|shred|\bdel\b|/d\b| -[dD]\b",
    "copy": r"\bcp\b|rsync|scp|install|copy|clip",
    "move": r"\bmv\b|rename|move",
    "compress": r"tar|zip|xz\b|bz|zst|compress",
    "count": r"\bwc\b|count|-\w*c\b|\bnl\b|length",
    "sort": r"sort|-\w*[tSU]\b|order",
    "kill": r"kill|stop",
}
"""Commands and options that perform each action."""
_SLOT = re.compile(
    r"(?P<sign>[+-]?)(?P<number>\d+(?:\.\d+)?)(?P<unit>[a-zA-Z]*)"
    r"(?: (?P<word>sec|min|hour|day|week|month|year)\w*)?"
)
"""A number in a command."""


def remark(question: str, answer: str) -> str:
    """The line that names what the command in `answer` leaves out; empty for nothing."""
    named = ", ".join(f'"{part}"' for part in left_out(question, answer)[:MAX_NAMED])
    advice = "check it before you run it, or ask for one thing at a time"
    return f"The command leaves out {named}: {advice}." if named else ""


def left_out(question: str, answer: str) -> list[str]:
    """The parts of `question` that no command of `answer` has; none if it has no command."""
    code = "\n".join(_FENCE.findall(answer))
    return list(dict.fromkeys(_left_out(question, code))) if code.strip() else []


def _left_out(question: str, code: str) -> Iterator[str]:
    checks: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], str], bool]], ...] = (
        (_SIZE, _has_size),
        (_TIME, _has_time),
        (_NAME, _has_name),
        (_NUMBER, _has_number),
        (_ACTION, _has_action),
        (_TASK, _may_have_task),
    )
    for pattern, is_met in checks:
        for match in pattern.finditer(question):
            if not is_met(match, code):
                part = match.groupdict().get("task") or match[0]
                yield part.removeprefix("and ").strip(" ,")
        question = pattern.sub(" ", question)  # a size is not also a number


def _has_size(match: re.Match[str], code: str) -> bool:
    """Whether a number of `code` is the size, in any unit, with the right sign."""
    unit = "kmgt".index((match["unit"] or match["letter"]).lower()) + 1
    sizes = {float(match["number"]) * base**unit for base in (1000, 1024)}
    # As in `dd bs=1M count=100`.
    blocks = re.search(rf"bs=1{'kmgt'[unit - 1]}", code, re.IGNORECASE) is not None

    def is_it(slot: re.Match[str]) -> bool:
        power = "kmgt".find(slot["unit"][:1].lower()) + 1 if slot["unit"] else unit * blocks
        return any(float(slot["number"]) * base**power in sizes for base in (1000, 1024))

    return any(is_it(slot) and _on_its_side(match, slot) for slot in _SLOT.finditer(code))


def _has_time(match: re.Match[str], code: str) -> bool:
    """Whether a number of `code` is the time, in any unit, with the right sign."""
    number = float(match["number"])
    seconds = number * next(length for name, length in _SECONDS.items() if match[name])

    def is_it(slot: re.Match[str]) -> bool:
        unit, found = _time_unit(slot), float(slot["number"])
        if unit in _SECONDS:
            return found * _SECONDS[unit] == seconds
        return unit == UNKNOWN and found == number

    return any(is_it(slot) and _on_its_side(match, slot) for slot in _SLOT.finditer(code))


UNKNOWN, NO_TIME = "", "no time"


def _time_unit(slot: re.Match[str]) -> str:
    """The unit of time of a number in a command, as in `_SECONDS`."""
    option = _option(slot)
    if re.fullmatch(r"-[amc](?:time|min)", option):
        return "d" if option.endswith("time") else "m"
    if option.endswith("-size") or re.fullmatch(r"[KMGTkc]i?[bB]?", slot["unit"]):
        return NO_TIME
    if option in ("sleep", "timeout"):
        return slot["unit"] or "s"
    if slot["word"]:
        return "mo" if slot["word"] == "month" else str(slot["word"][0])
    return slot["unit"] if slot["unit"] in _SECONDS else UNKNOWN


def _option(slot: re.Match[str]) -> str:
    """The word before a number."""
    return next(iter(slot.string[: slot.start()].rpartition("\n")[2].split()[-1:]), "")


def _on_its_side(match: re.Match[str], slot: re.Match[str]) -> bool:
    """Whether a bound of `find` has the sign that the question asks for."""
    wanted = "+" if match["more"] else "-" if match["less"] else slot["sign"]
    return slot["sign"] == wanted or not re.fullmatch(r"-size|-[amc](?:time|min)", _option(slot))


def _has_name(match: re.Match[str], code: str) -> bool:
    name = match[0].removeprefix("*").removeprefix("~")
    return name in code or _KINDS.fullmatch(match[0]) is not None


def _has_number(match: re.Match[str], code: str) -> bool:
    return re.search(rf"(?<![\d.]){int(match[0])}(?!\.?\d)", code) is not None


def _has_action(match: re.Match[str], code: str) -> bool:
    said = match.groupdict()
    name = next(name for name in _ACTIONS if said.get(name))
    return re.search(_ACTIONS[name], code) is not None


def _may_have_task(match: re.Match[str], code: str) -> bool:
    """Whether some command of `code` does more than list, or performs the task by an option."""
    lines = [line for line in code.splitlines() if line.strip()]
    return not all(map(_LISTS.fullmatch, lines)) or _has_action(match, code)

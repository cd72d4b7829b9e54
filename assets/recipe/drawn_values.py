"""Draws values such as file names and ports and puts them into questions.

A drawn value fills a placeholder or replaces another value. Module `values` recognises the values
of a question and puts them into the command.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from random import Random

from assets.recipe import words
from assets.recipe.outside import read_outside
from assets.recipe.placeholders import Kind, kind_of, marks_of
from assets.recipe.values import VALUES, carry, english, find_values

_VAGUE: Mapping[Kind, str] = {
    "file": r"file|document|script|image|video|archive",
    "archive": r"archive|zip file|tar file|tarball",
    "path": r"file or directory|file|directory|folder",
    "directory": r"directory|folder",
    "device": r"device|disk|drive|partition",
    "port": r"port",
    "pid": r"process|PID",
    "user": r"user|username",
    "group": r"group",
    "host": r"host|server|domain|remote host|website|machine|IP address",
    "url": r"URL|website|page",
    "service": r"service|unit|systemd service",
    "package": r"package",
    "branch": r"branch",
    "container": r"container",
    "image": r"image",
    "program": r"program|process|application",
    "pattern": r"pattern|string|text|word|regular expression|regex|search pattern",
    "message": r"message|commit message",
}
_KEEPS_NOUN = frozenset(words("port pid user group service package branch container directory"))
_AFTER: Mapping[Kind, tuple[str, ...]] = {
    "file": (" {}", " for {}", ": {}", ", it is called {}", " ({})"),
    "path": (" {}", " for {}", ": {}"),
    "directory": (" in {}", " under {}", ", the folder is {}", " for {}", " {}"),
    "device": (" on {}", ": {}", ", it is {}"),
    "port": (" on port {}", ", port {}", " with port {}"),
    "pid": (", process {}", " with pid {}"),
    "number": (" {}", ", {} of them", " with {}"),
    "size": (" {}", " of {}", ", {}"),
    "duration": (" for {}", " every {}", ", {}"),
    "glob": (", only {}", " for {}", " of all {}"),
    "user": (" for {}", " for user {}", ", the user is {}", " as {}"),
    "group": (" for the group {}", ", group {}"),
    "host": (" on {}", " at {}", " for {}", ", the host is {}"),
    "url": (" {}", " from {}", ": {}"),
    "pattern": (' "{}"', " for the word {}", ", the word is {}", " with the text {}"),
    "message": (' with the message "{}"', ' saying "{}"'),
}
_ENDINGS = words("txt pdf csv log py md jpg json html conf sh mp4")
_SYLLABLES = words("ba co de fi go ha ju ka lo mi na po ra su ti vo we xi ya zu ber lin tok mar")


def draw_value(kind: Kind, mark: str, rng: Random) -> str:
    """A value for a placeholder, as a person writes it in a question."""
    if kind in {"file", "path"} and rng.random() < 0.5:
        return _file_name(mark, rng)
    if kind == "file" and re.search(r"\.(tar|zip|7z|rar|tgz)|archive", mark):
        return rng.choice(VALUES["archive"])
    if kind == "path":
        kind = rng.choice(("file", "directory"))
    if kind in {"user", "branch", "container", "group"} and rng.random() < 0.4:
        return _stem(rng)
    if kind == "port" and rng.random() < 0.5:
        return str(rng.randint(80, 65000))
    if kind == "number" and rng.random() < 0.5:
        return str(rng.randint(2, 400))
    if kind == "directory" and rng.random() < 0.4:
        root = rng.choice(("~/", "/srv/", "/home/", "/var/", "./", "/mnt/", "/"))
        return root + "/".join(_stem(rng) for _ in range(rng.randint(1, 2)))
    return rng.choice(VALUES[kind])


def _invented(rng: Random) -> str:
    return "".join(rng.choice(_SYLLABLES) for _ in range(rng.randint(2, 3)))


def _file_name(mark: str, rng: Random) -> str:
    """An invented file name, with the placeholder's file extension if it has one."""
    wanted = re.sub(r"\[[^\]]*\]", "", mark.split(" ")[0]).rsplit("/", 1)[-1].partition(".")[2]
    usual = rng.choice(_ENDINGS)
    return f"{_stem(rng)}.{wanted if re.fullmatch('[a-z0-9.]{1,7}', wanted) else usual}"


def name_values(phrase: str, command: str, rng: Random) -> str:
    """``phrase`` with values for one to three of the placeholders of ``command``.

    A value replaces the phrase's vague noun or the placeholder's own name, or is appended.
    """
    known = [mark for mark in dict.fromkeys(marks_of(command)) if kind_of(mark) in _TAKES_VALUES]
    count = min(len(known), rng.choices((1, 2, 3), (6, 3, 1))[0])
    for mark in sorted(rng.sample(known, count), key=known.index):
        phrase = _name_value(phrase, mark, rng)
    return phrase


_TAKES_VALUES = frozenset(VALUES) | {"path"}


def takes_value(mark: str) -> bool:
    """Whether `draw_value` has values for a placeholder."""
    return kind_of(mark) in _TAKES_VALUES


def _name_value(phrase: str, mark: str, rng: Random) -> str:
    kind = kind_of(mark)
    value = draw_value(kind, mark, rng)
    own = re.search(rf"(?<!\S)`?{re.escape(mark)}`?(?!\S)", phrase)
    if own and mark.isidentifier():
        return phrase[: own.start()] + value + phrase[own.end() :]
    pattern = rf"\b(?:an? |the |your )?(?:\w+ )??(?:{_VAGUE.get(kind, '(?!)')})(?![\w-])"
    vague = re.search(pattern, phrase)
    if vague and rng.random() < 0.7:
        noun = re.search(r"\w+$", vague[0])
        cue = f"{noun[0]} " if noun and kind in _KEEPS_NOUN and value[0] not in "~/." else ""
        return phrase[: vague.start()] + cue + value + phrase[vague.end() :]
    return phrase + rng.choice(_AFTER.get(kind, (f" {kind} {{}}",))).format(value)


def redraw_values(phrase: str, command: str, rng: Random) -> str:
    """``phrase`` with each value that goes into ``command`` replaced by another one.

    A hand-written phrase always names the same file, which a model would memorise; a fresh name
    each time has to be copied. Modes of chmod stay, since few numbers are valid modes.
    """
    fixed = "number" if command.startswith("chmod") else ""
    for kind, values in find_values(phrase).items():
        for value in values if kind != fixed else ():
            drawn = _redraw(phrase, kind, value, rng)
            before, after = carry(phrase, command), carry(drawn, command)
            if before != after and before.count("<") == after.count("<"):
                phrase = drawn
    return phrase


def _redraw(phrase: str, kind: Kind, value: str, rng: Random) -> str:
    """``phrase`` with ``value`` replaced by another of its kind, if it occurs there literally."""
    digits = re.match(r"\d+", value)
    if kind in _COUNTED and digits:
        drawn = str(rng.randint(2, 10 ** len(digits[0]) + 9))
        return re.sub(rf"(?<![\w.]){digits[0]}(?!\d)", drawn, phrase, count=1)
    drawn = _another(kind, value, rng)
    return re.sub(rf"(?<![\w./~-]){re.escape(value)}(?![\w/])", lambda _: drawn, phrase, count=1)


def _another(kind: Kind, value: str, rng: Random) -> str:
    """A value of ``kind``; a file keeps its extension."""
    if kind == "file":
        stem, dot, ending = value.rpartition("/")[2].partition(".")
        folder = value.removesuffix(f"{stem}{dot}{ending}")
        return f"{folder}{_stem(rng)}{dot}{ending}"
    if kind == "directory":
        return draw_value("directory", "", rng)
    known = VALUES.get("pattern" if kind in _WORDS else kind, [value])
    return _stem(rng) if kind in _FREE and rng.random() < 0.5 else rng.choice(known)


def _stem(rng: Random) -> str:
    """A name as people give files: one word, two words, or a word with a number."""
    first, second = rng.choice(_NAMES), rng.choice(_NAMES)
    forms = (first, first, f"{first}-{second}", f"{first}_{second}", f"{first}{rng.randint(1, 99)}")
    return rng.choice((*forms, _invented(rng)))


_COUNTED = frozenset(words("port pid number size duration"))
_WORDS = frozenset(words("quoted pattern message old new"))
_FREE = frozenset(words("user group branch container pattern quoted old new message"))
_OUTSIDE = {word for values in read_outside().slots.values() for word in " ".join(values).split()}
_NAMES = sorted(
    word
    for word in english() | {word.lower() for word in _OUTSIDE}
    if 3 <= len(word) <= 10 and word.isascii() and word.isalpha()
)
"""Words used as names. Words of questions outside the subject are included, so that no word alone
marks a question as outside."""

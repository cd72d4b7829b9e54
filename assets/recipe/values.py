"""Finds values in a question and fills them into the command.

Values are file names, ports, sizes and so on. What a question does not name stays a placeholder.
Only the text counts, so every answer agrees with its question however the question was made.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from types import MappingProxyType

from assets.recipe import read_lines, words
from assets.recipe.placeholders import Kind, kind_of, label, marks_of, rewrite

_RARE = 4


@cache
def english() -> frozenset[str]:
    """Words of at least `_RARE` phrases; after a cue such as "user" they are not names."""
    files = ("everyday.txt", "harmless.txt", "own_words.txt")
    tasks = (line for file in files for line in read_lines(file))
    phrases = (task.rpartition("::")[2].lower() for task in tasks)
    counts = Counter(word for each in phrases for word in set(re.findall(r"[a-z]+", each)))
    return frozenset(word for word, count in counts.items() if count >= _RARE)


def _table() -> dict[Kind, list[str]]:
    lines = (line.partition(":") for line in read_lines("values.txt"))
    return {kind: [each.strip() for each in values.split(",")] for kind, _, values in lines}


VALUES: Mapping[Kind, list[str]] = _table()

_NOT_FILES = re.compile(
    r"^(tar\.\w+|node\.js|vue\.js|asp\.net|e\.g|i\.e|\d+\.\d[\d.]*|v\d[\d.]*)$", re.I
)
_UNITS = {"k": "k", "m": "M", "g": "G", "t": "T"}
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_HOME = re.compile(r"\b(?:my |the |your )?home (?:directory|folder|dir)\b", re.I)
_HERE = re.compile(
    r"\b(?:this|the current|the present) (?:directory|folder|dir)\b|\bin here\b", re.I
)
_URL = re.compile(r"\b(?:https?://|git@[\w.-]+:)[^\s,'\"]*[^\s,.?!:;'\"]")
_ADDRESS = re.compile(r"(?<![\w/.-])\d{1,3}(?:\.\d{1,3}){3}\b")
_DOMAIN = re.compile(
    r"(?<![\w/.@-])(?:[a-z0-9-]+\.)+(?:com|org|net|io|local|lan|de|eu|dev|edu)\b(?!/|\.\w)", re.I
)
_PATH = re.compile(r"(?<![\w.~:/])(?:~|\.{1,2})?/(?:[\w.+@-]+/)*[\w.+@-]*\w|(?<!\S)~(?![\w/])")
_RELATIVE = re.compile(r"(?<![\w./~-])[A-Za-z_][\w-]*(?:/[\w.-]*\w)+")
_HIDDEN = re.compile(r"(?<![\w*.])\.(?:env|bashrc|zshrc|profile|gitignore|vimrc|htaccess)\b")
_FILE = re.compile(
    r"(?<![\w./*~-])[A-Za-z0-9_][\w-]*(?:\.[A-Za-z0-9-]*[A-Za-z][A-Za-z0-9]*)+\b(?!/)"
)
_GLOB = re.compile(
    r"(?:\*\.(\w{1,5})\b)|(?:(?<![\w*])\.(\w{1,5})(?= files?\b))|(?:\bending in \.(\w{1,5})\b)"
    r"|\b(jpe?g|png|gif|txt|pdf|log|csv|py|md|mp3|mp4|html|json|xml|tmp|bak|zip|docx?)(?= files?\b)"
)
_SIZE = re.compile(
    r"(?<![\w.])(\d+)\s?(?:([kmgt])i?b?|(kilo|mega|giga|tera)bytes?|([kmgt])(?:eg|ig|ilo)s?)\b"
    r"(?! (?:lines|rows))",
    re.I,
)
_DURATION = re.compile(r"(?<![\w.])(\d+) ?(s|m|h|d)(?:ec|econd|in|inute|our|ay|r)?s?\b", re.I)
_RANGE = re.compile(
    r"\blines? (\d+) ?(?:-|to|and|through|until|till|up to)(?: line)? ?(\d+)\b", re.I
)
_VERSION = re.compile(
    r"(?<![\w./-])(?:v?\d+(?:\.\d+)+(?:-?(?:rc|beta|alpha)\d*)?(?![\w/-])|v\d+\b)", re.I
)
_NUMBER = re.compile(r"(?<![\w.:/-])\d+(?![\w.:/-]*\w)")
_IMAGE = re.compile(
    r"(?<![\w/.])(?!localhost)[a-z][\w-]+:(?:latest|alpine|\d+\.\d[\w.-]*|\d{1,2}\b)"
)
_QUOTED = re.compile(r"\"([^\"]{1,60})\"|(?<![\w`])'([^']{1,60})'(?!\w)")
_PORT = re.compile(r"\bports? (\d{2,5})\b|(?<=:)(\d{2,5})\b", re.I)
_PID = re.compile(r"\b(?:pid|process|process id|id|number) (\d{2,7})\b", re.I)
_SWAP = re.compile(
    r"\b(?:replac\w*|substitut\w*|swap\w*|chang\w*|turn\w*) (?:every |all |the (?:word |text )?)?"
    r"[\"']?([\w-]{2,20})[\"']? (?:with|by|to|into|for) [\"']?([\w-]{2,20})[\"']?",
    re.I,
)
_CUES: tuple[tuple[Kind, str], ...] = (
    ("user", r"users?(?: called| named)?"),
    ("surely user", r"(?:log(?:ged|ging)? ?in|ssh|sign in|connect)\b.{0,40}? as"),
    ("user", r"password (?:of|for)(?: the user)?"),
    ("surely user", r"groups (?:is|does|of|has)"),
    ("surely user", r"(?:put|add)(?= [\w.-]+ (?:in)?to (?:the )?(?:\w+ )?group)"),
    ("surely user", r"(?:give|make)(?= [\w.-]+ (?:the )?owner)"),
    ("group", r"group(?: called| named)?"),
    ("service", r"(?:service|unit|daemon)"),
    ("package", r"(?:package|library|module)(?: called| named)?"),
    ("package", r"(?:un|re)?install"),
    ("branch", r"branch(?: called| named)?"),
    ("container", r"container(?: called| named)?"),
    ("program", r"(?:process|program|application|app)(?: called| named)?"),
    ("pattern", r"(?:the )?(?:word|text|string|pattern|term)"),
    ("rare pattern", r"(?:look|search|grep|searching|looking) for"),
    ("host", r"(?:host|server|machine)(?: called| named)?"),
    ("directory", r"(?:director(?:y|ies)|folder|dir)(?: called| named)?"),
    ("message", r"message"),
)
_CUED = [
    (kind, re.compile(rf"\b{cue}:? [\"'`]?([A-Za-z0-9][\w.@-]*\w)\b", re.I)) for kind, cue in _CUES
]
_LAST_GROUP = re.compile(r"\bgroup ([a-z][\w-]*)[.?!]?$", re.I)
_ANY_WORD = frozenset({"pattern", "surely user"})
_RUNNING = ("service", "package", "program", "container")
_KNOWN_NAMES = frozenset(name for kind in _RUNNING for name in VALUES[kind])
"""Names accepted after a cue although they occur in several phrases."""
_LISTED = {
    kind: frozenset(known)
    for kind, known in VALUES.items()
    if kind in {"image", *(kind for kind, _ in _CUES)}
}
_FUNCTION_WORDS = frozenset(
    words(
        "a an the and or of in on at to for with from by is are was be it its that this my your "
        "not no all any some which what who how when where why do does did can could should would "
        "will has have had if so as but into than then using only also there called named another "
        "other different someone somebody else me myself you him her us them everyone"
    )
)
_COMMON = (
    english()
    | _FUNCTION_WORDS
    | frozenset(words("name names id ids list info exists running inside itself contents sizes"))
)
_NOT_GROUPS = _FUNCTION_WORDS | frozenset(
    words("name names id ids list owner owners ownership permissions members membership please now")
)
"""Words that are not group names at the end of a question; any other word is one there, even a
common one such as "printers"."""
_NOT_REPLACED = _FUNCTION_WORDS | frozenset(
    words("permissions owner password extension case branch directory folder file name format port")
)
_WORD = re.compile(r"[A-Za-z0-9_][\w:./-]*\w|\w")
_ALIKE = ({"tar.gz", "tgz", "tar", "tar.xz", "tar.bz2", "txz"}, {"jpg", "jpeg"}, {"htm", "html"})
_SOURCE_FIRST = re.compile(r"output|target|destination|new|compressed|result")

Found = dict[Kind, list[str]]

NOTHING_NAMED: Mapping[str, str] = MappingProxyType({})


def find_values(question: str) -> Found:
    """The values in ``question`` as written in a command, by kind, in order of appearance."""
    found: Found = defaultdict(list)
    rest = question
    for kind, value, span in _formed(question):
        if rest[span[0] : span[1]].strip("\0"):
            found[kind].append(value)
            rest = rest[: span[0]] + "\0" * (span[1] - span[0]) + rest[span[1] :]
    for kind, value in _named(rest):
        if value not in found[kind]:
            found[kind].append(value)
    found["directory"].sort(key=question.find)
    return found


def _formed(text: str) -> Iterator[tuple[Kind, str, tuple[int, int]]]:
    """Values recognised by their form, with spans; of overlapping ones, the first counts."""
    for kind, pattern in (("url", _URL), ("host", _ADDRESS), ("host", _DOMAIN)):
        yield from ((kind, m[0], m.span()) for m in pattern.finditer(text))
    for m in _QUOTED.finditer(text):
        yield "quoted", m[1] or m[2], m.span()
    for m in _SWAP.finditer(text):
        if (
            not {m[1].lower(), m[2].lower()} & _NOT_REPLACED
            and text[m.start(1) - 1 : m.start(1)] != "."
        ):
            yield "old", m[1], m.span(1)
            yield "new", m[2], m.span(2)
    yield from (("image", m[0], m.span()) for m in _IMAGE.finditer(text))
    for m in _GLOB.finditer(text):
        yield "glob", f"*.{m[1] or m[2] or m[3] or m[4]}", m.span()
    for m in (*_PATH.finditer(text), *_RELATIVE.finditer(text)):
        yield _path_kind(m[0]), m[0], m.span()
    for m in (*_HIDDEN.finditer(text), *_FILE.finditer(text)):
        if not _NOT_FILES.match(m[0]):
            yield "file", m[0], m.span()
    yield from (("directory", "~", m.span()) for m in _HOME.finditer(text))
    yield from (("directory", ".", m.span()) for m in _HERE.finditer(text))
    for m in _SIZE.finditer(text):
        yield "size", m[1] + _UNITS[(m[2] or m[3] or m[4])[0].lower()], m.span()
    for m in _DURATION.finditer(text):
        yield "duration", m[1] + m[2].lower(), m.span()
    yield from (("range", f"{m[1]},{m[2]}", m.span()) for m in _RANGE.finditer(text))
    yield from (("version", m[0], m.span()) for m in _VERSION.finditer(text))
    yield from (("port", m[1] or m[2], m.span()) for m in _PORT.finditer(text))
    yield from (("pid", m[1], m.span(1)) for m in _PID.finditer(text))
    yield from (("number", m[0], m.span()) for m in _NUMBER.finditer(text))


def _path_kind(path: str) -> Kind:
    if path.startswith("/dev/"):
        return "device"
    return "file" if re.search(r"\w\.\w{1,5}$", path) else "directory"


def _named(text: str) -> Iterator[tuple[Kind, str]]:
    """Values recognised by a preceding cue, or because they are well known."""
    for kind, pattern in _CUED:
        for m in pattern.finditer(text):
            common = m[1].lower() in (_FUNCTION_WORDS if kind in _ANY_WORD else _COMMON)
            if not common or (kind in _RUNNING and m[1] in _KNOWN_NAMES):
                yield kind, m[1]
    for m in _LAST_GROUP.finditer(text):
        if m[1].lower() not in _NOT_GROUPS:
            yield "group", m[1]
    for m in _WORD.finditer(text):
        for kind, known in _LISTED.items():
            if m[0] in known or m[0].lower() in known:
                yield kind, m[0]


_TAKES: Mapping[Kind, tuple[Kind, ...]] = {
    "file": ("file",),
    "path": ("file", "directory"),
    "directory": ("directory",),
    "port": ("port", "number"),
    "pid": ("pid", "number"),
    "number": ("number", "duration"),
    "size": ("size",),
    "duration": ("duration", "number"),
    "user": ("surely user", "user"),
    "pattern": ("quoted", "pattern", "rare pattern"),
    "message": ("quoted", "message"),
    "image": ("image",),
    "old": ("old",),
    "new": ("new",),
}


def carry(question: str, command: str, named: Mapping[str, str] = NOTHING_NAMED) -> str:
    """``command`` in the notation of answers, with the values of ``question`` filled in.

    If there are more numbers than placeholders for them, they are ambiguous and left out. ``named``
    holds values by placeholder that take precedence.
    """
    found, marks = find_values(question), marks_of(command)
    if len(found["number"]) > sum("number" in _takes(mark) for mark in marks):
        found["number"].clear()
    found_here = _assign(found, marks)
    assigned = [named.get(mark, value) for mark, value in zip(marks, found_here, strict=True)]
    values = iter(assigned)
    carried = rewrite(command, lambda mark: next(values) or f"<{label(mark)}>")
    return _without_double_endings(carried, assigned)


def _without_double_endings(command: str, values: Sequence[str]) -> str:
    """``command`` with ``film.avi`` for ``film.avi.avi``: an ending follows the placeholder."""
    for value in values:
        _, dot, ending = value.rpartition(".")
        if dot:
            command = re.sub(rf"({re.escape(value)})\.{re.escape(ending)}(?![\w.])", r"\1", command)
    return command


def _assign(found: Found, marks: Sequence[str]) -> list[str]:
    """The value of each placeholder, empty if there is none.

    Files go to placeholders with their ending first, then to inputs before outputs; a list takes
    all that remain. Folders go to placeholders that accept nothing else first; those that accept
    files and folders get the rest.
    """
    chosen = [""] * len(marks)
    folders = sum(kind_of(mark) == "directory" for mark in marks)
    spare = len(found.get("directory", [])) > folders
    order = sorted(range(len(marks)), key=lambda index: bool(_SOURCE_FIRST.search(marks[index])))
    for exact in (True, False):
        for index in order:
            if not chosen[index]:
                chosen[index] = _take(found, marks[index], exact=exact, folder=spare)
    for index in order:
        while chosen[index] and label(marks[index]).endswith("..."):
            another = _take(found, marks[index], exact=False, folder=spare)
            if not another:
                break
            chosen[index] += f" {another}"
    return chosen


def _takes(mark: str) -> tuple[Kind, ...]:
    """The kinds of value that fit a placeholder, best first."""
    kind = kind_of(mark)
    return _TAKES.get(kind, (kind,))


def _take(found: Found, mark: str, *, exact: bool, folder: bool) -> str:
    """Remove the value for ``mark`` from ``found``; empty if none fits.

    Args:
        exact: accept only a file with the placeholder's ending.
        folder: accept a folder where a file fits as well.
    """
    kind = kind_of(mark)
    for taken in _takes(mark):
        if taken == "directory" and kind == "path" and not folder:
            continue
        for value in found.get(taken, []):
            if not exact or (taken == "file" and _alike(value, mark)):
                if taken == "number" and kind == "port" and len(value) < 2:
                    continue
                found[taken].remove(value)
                return _plain_number(value, kind) if taken == "duration" else value
    return ""


def _plain_number(duration: str, kind: Kind) -> str:
    """A duration such as ``5m`` as seconds if ``kind`` is a duration, else its bare number."""
    number, unit = int(duration[:-1]), duration[-1]
    return str(number * _SECONDS[unit] if kind == "duration" else number)


def _alike(value: str, mark: str) -> bool:
    """Whether a file has the placeholder's ending, or an equivalent one."""
    ending = value.partition(".")[2].lower()
    wanted = re.sub(r"\[[^\]]*\]", "", mark.split(" ")[0]).rsplit("/", 1)[-1].partition(".")[2]
    return bool(wanted) and (
        ending == wanted or any({ending.rsplit(".", 1)[-1], wanted} <= each for each in _ALIKE)
    )

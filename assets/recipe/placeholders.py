"""Placeholders: the pages' notation, and the one that answers use.

Pages write ``{{path/to/file}}`` for what is to be filled in and ``{{[-r|--recursive]}}`` for either
form of an option. Answers write ``<file>`` and ``--recursive``, which need no explanation. This
module converts between the two and tells what kind of value a placeholder takes.
"""

from __future__ import annotations

import re
from collections.abc import Callable

Kind = str
"""What a placeholder takes: ``file``, ``directory``, ``port``, …; empty if unknown."""

_MARK = re.compile(r"\{\{(\[[^{}]*\]|(?:[^{}]|\{[^{}]*\})*)\}\}")
_OPTION = re.compile(r"\[([^\[\]]*\|[^\[\]]*)\]")
_OPTIONAL_ENDING = re.compile(r"\[[^\]]*\]")
_LIST = re.compile(r"^(?P<first>\S*?)_?1(?P<rest>\S*)(?:[ ,]\S*2\S*)+[ ,]*(?:\.\.\.)?$")
_NAME_OR_ID = "name|id"
"""How the pages of docker and podman write the placeholder of a container."""
_FOLDERS = re.compile(r"^/?(?:[A-Za-z]:\\)?path[\\/]to[\\/](?=.)")

KIND_PATTERNS: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    ("url", re.compile(r"url$|^https?://|repository_location$")),
    ("glob", re.compile(r"^\*\.\w+$")),
    ("device", re.compile(r"^/dev/|device")),
    (
        "path",
        re.compile(r"file_or_(director|folder)|directory_or_file|^(output|source|destination)$"),
    ),
    ("directory", re.compile(r"director|folder|(^|_)dir(_|$)|mount_?point")),
    ("port", re.compile(r"(^|_)port$|^(2222|8000|8080)$")),
    ("pid", re.compile(r"^(pid|process_id)$")),
    ("user", re.compile(r"^(new_|old_)?(user(_?name)?|owner|login)$")),
    ("group", re.compile(r"^group(_?name)?$|^group1,group2")),
    ("host", re.compile(r"(^|_)(host(_?name)?|server|ip(_address)?|domain)$|^[\w.]*example\.com$")),
    ("host", re.compile(r"^\d+\.\d+\.\d+\.\d+$")),
    ("size", re.compile(r"^\d+[kKMGT]i?B?$|^(file_)?size$")),
    ("duration", re.compile(r"^(\d+s|seconds|minutes|interval|duration|timeout|(in_)?seconds)$")),
    ("range", re.compile(r"^\d+,$")),
    ("version", re.compile(r"^(tag|version)(_?name)?$")),
    (
        "number",
        re.compile(r"^(\d{1,3}|1000|n|count|number|lines|num\w*|depth|bytes|days|max_\w+|level)$"),
    ),
    ("service", re.compile(r"^(unit|service)(_?name)?$")),
    ("package", re.compile(r"package|^(formula|gem|module|dependency|plugin)(_?name)?$")),
    ("branch", re.compile(r"branch")),
    ("container", re.compile(r"^container")),
    ("image", re.compile(r"^image(:tag|_name)?$")),
    ("program", re.compile(r"^(process|program|application|app)(_?name)?$")),
    ("pattern", re.compile(r"pattern|^(search_)?(string|text|word|query|keyword|regex|term)$")),
    ("message", re.compile(r"^(commit_)?message$")),
    ("old", re.compile(r"^(old|find|from)$")),
    ("new", re.compile(r"^(new|replace|replacement|to)$")),
    ("file", re.compile(r"file(_?name)?$|archive|symlink|^[\w*-]+\.[a-z][a-z0-9]{0,3}$|path/to/")),
)
"""The first pattern found in a placeholder's text, in the pages' notation and without a trailing
number, decides its kind."""


def kind_of(mark: str) -> Kind:
    """The kind of a placeholder from its text in the pages' notation."""
    plain = _OPTIONAL_ENDING.sub("", mark)
    if "|" in plain:
        return "container" if plain == _NAME_OR_ID else ""
    is_path = plain.lstrip("/").startswith("path/to/")
    last = plain.split(" ")[0].rsplit("/", 1)[-1] if is_path else plain
    bare = re.sub(r"\d+$", "", last) if "." not in last and not last.isdigit() else last
    for kind, pattern in KIND_PATTERNS:
        if pattern.search(bare):
            return kind
    return "file" if is_path else ""


def label(mark: str) -> str:
    """The text of a placeholder in an answer: ``path/to/file1 path/to/file2 ...`` is ``file...``.

    Leading folders, optional endings and angle brackets are left out; a sample address becomes the
    name of its kind, ``url`` or ``host``.
    """
    kind = kind_of(mark)
    if kind == "url" or (kind == "host" and "." in mark):
        return kind
    words = [_FOLDERS.sub("", word) for word in _OPTIONAL_ENDING.sub("", mark).split(" ")]
    text = " ".join(words).replace("<", "").replace(">", "").strip()
    several = _LIST.match(text)
    return f"{several['first']}{several['rest']}..." if several else text or "value"


def is_option(mark: str) -> bool:
    """Whether a placeholder is a choice between forms of one option or subcommand."""
    return mark.startswith("[") and mark.endswith("]") and "|" in mark


def long_form(mark: str) -> str:
    """The longest form of an option: ``[-r|--recursive]`` is ``--recursive``.

    Of subcommands, the longest single word: ``[ps|container ls]`` is ``ps``.
    """
    forms = mark.strip("[]").split("|")
    if not any(form.startswith("-") for form in forms):
        forms = [form for form in forms if " " not in form] or forms
    return max(forms, key=len)


def rewrite(command: str, fill: Callable[[str], str]) -> str:
    """``command``, in the pages' notation, with options in their long form.

    ``fill`` maps the text of each other placeholder to its replacement.
    """

    def replaced(match: re.Match[str]) -> str:
        mark = match[1]
        return long_form(mark) if is_option(mark) else fill(mark)

    text = _MARK.sub(replaced, _whole(command)).replace(r"\{\{", "{{").replace(r"\}\}", "}}")
    return _OPTION.sub(lambda match: long_form(match[0]), text) if "{{[" in command else text


def _whole(command: str) -> str:
    """``command`` with the slash of an absolute path moved inside its placeholder."""
    return re.sub(r"(?<=\s)/\{\{(?=path/to/)", "{{/", command)


def readable(command: str) -> str:
    """``command`` in the notation of answers: ``cp --archive <source> <target>``."""
    return rewrite(command, lambda mark: f"<{label(mark)}>")


def long_options(command: str) -> str:
    """``command`` with options in their long form, placeholders still in the pages' notation."""
    return rewrite(command, lambda mark: f"{{{{{mark}}}}}")


def marks_of(command: str) -> list[str]:
    """The texts of the placeholders to fill in, in order, without options."""
    return [match[1] for match in _MARK.finditer(_whole(command)) if not is_option(match[1])]

"""Titles of chats, derived from their questions by rules, without a model.

A question without its courtesies is a good title. If it says too little ("hi", "why?", "explain
this"), a heading of the answer is used, or a later question.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice

from engines.chat_template.reasoning import split_reasoning

MAX_CHARACTERS_READ = 2_000
"""Characters of a question or an answer that are considered."""
MAX_CHARACTERS = 48
"""Longest title; the list of chats shows about thirty characters."""
MIN_WORDS = 2
"""Fewest meaningful words of a title."""

_COURTESY = re.compile(
    r"(?:(?:hi|hello|hey|dear \w+|good (?:morning|afternoon|evening))\b[\s,.!:]*"
    r"|there\b[\s,.!:]+"
    r"|please\b,?\s*"
    r"|(?:can|could|would|will) you (?:please )?(?:(?:tell|show|teach) me )?"
    r"|(?:tell|show|teach) me "
    r"|i(?:'d| would) like (?:you )?to know "
    r"|i (?:want|need|would like) to know "
    r"|how (?:do|can|could|would|should|to) (?:i|you|we|one)\b\s*"
    r"|how to\s+)+",
    re.IGNORECASE,
)
_FENCE = re.compile(r"^[ \t]*(```|~~~).*?(?:^[ \t]*\1|\Z)", re.MULTILINE | re.DOTALL)
_MARKS = re.compile(r"^[ \t]*(?:#{1,6}\s+|[-*+>]\s+|\d+[.)]\s+)+|`+")
_EMPHASIS = re.compile(r"(?<![\w*])(\*{1,3})(?=[^\s*])([^*]+)(?<=[^\s*])\1(?![\w*])")
"""Text between asterisks, without those of `*.txt` and `**kwargs`; underscores are left alone, as
questions mention `__init__` and `my_file`."""
_HEADING = re.compile(r"[ \t]*#{1,6}\s")
_WORD = re.compile(r"[\w'’-]+")
_STOP_WORDS = frozenset(
    _WORD.findall(
        "a about again an and any are be can could did do does explain for from give has have hello"
        " help hey hi how i in is it its know make me mean means my of ok on one or please say"
        " should show so some tell thank thanks that the them there these they thing think this"
        " those to us was we what when where which who why will with would yes you your"
    )
)


def first_title(question: str) -> str:
    """The title before there is an answer."""
    beginning = question[:MAX_CHARACTERS_READ]
    lines = [*_lines(_FENCE.sub("", beginning)), *_lines(beginning), beginning]
    return _shortened(_without_courtesies(lines[0])) if lines else ""


def title(questions: Sequence[str], answer: str = "") -> str:
    """The title of a chat with `questions`, of which the first got `answer`."""
    candidates = list(map(first_title, questions))
    candidates[1:1] = [_shortened(line) for line in _headings(answer)]
    return next(filter(is_meaningful, candidates), candidates[0])


def _headings(answer: str) -> Iterator[str]:
    """The answer's first line, if it is a heading."""
    beginning = split_reasoning(answer).answer[:MAX_CHARACTERS_READ].lstrip()
    if _HEADING.match(beginning):
        yield from islice(_lines(beginning), 1)


def is_meaningful(text: str) -> bool:
    """Whether `text` says enough to be a title."""
    words = {word.lower() for word in _WORD.findall(text)} - _STOP_WORDS
    # Scripts without spaces write several words as one.
    return len(words) >= MIN_WORDS or any(len(word) > 1 and not word.isascii() for word in words)


def _lines(text: str) -> Iterator[str]:
    """The lines of prose in `text`, without Markdown markup."""
    for line in text.splitlines():
        plain = " ".join(_EMPHASIS.sub(r"\2", _MARKS.sub("", line)).split())
        if _WORD.search(plain):
            yield plain


def _without_courtesies(line: str) -> str:
    """The question itself, capitalised if courtesies were removed from its start."""
    asked = line[match.end() :] if (match := _COURTESY.match(line)) else line
    if not _WORD.search(asked):
        return line
    return asked if asked == line else asked[:1].upper() + asked[1:]


def _shortened(text: str) -> str:
    """`text` on one line, shortened between words."""
    line = " ".join(text.split())
    if len(line) > MAX_CHARACTERS:
        cut = line[: MAX_CHARACTERS - 1]
        words = cut.rpartition(" ")[0]
        kept = words if len(words) > MAX_CHARACTERS // 2 else cut
        line = kept.rstrip(" ,;:.-") + "…"
    return line if line.endswith("…") else line.rstrip(" ?.!:,;")

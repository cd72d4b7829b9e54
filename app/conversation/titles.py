"""Titles of chats, from their first exchange: short, and at once, since no model is asked.

A question says what a chat is about once its courtesies are gone. Where it says too little ("hi",
"why?", "explain this"), the first thing the answer says stands for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

LOOKED_AT = 2_000
"""Characters of a question or an answer that are looked at: they can be as long as a book."""

LONGEST = 48
"""Characters; a list of chats shows about thirty."""

FEWEST_WORDS = 2
"""Words of meaning in a question that can be a title."""

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
_MARKS = re.compile(r"^[ \t]*(?:#{1,6}\s+|[-*+>]\s+|\d+[.)]\s+)+|[*_`]+")
_SENTENCE = re.compile(r"(?<=[.!?。！？])\s")
_WORD = re.compile(r"[\w'’-]+")
_EMPTY = frozenset(
    _WORD.findall(
        "a about again an and any are be can could did do does explain for from give has have hello"
        " help hey hi how i in is it its know make me mean means my of ok on one or please say"
        " should show so some tell thank thanks that the them there these they thing think this"
        " those to us was we what when where which who why will with would yes you your"
    )
)


def first_title(question: str) -> str:
    """A title until there is an answer."""
    if question.startswith("File "):
        # Attached files stand before the question.
        lines = [*_lines(question[-LOOKED_AT:])][-1:]
    else:
        beginning = question[:LOOKED_AT]
        lines = [*_lines(_FENCE.sub("", beginning)), *_lines(beginning), beginning]
    return _short(_without_courtesies(lines[0])) if lines else ""


def title(question: str, answer: str) -> str:
    """The title of a chat that begins with this exchange."""
    given = first_title(question)
    if _says_enough(given):
        return given
    said = next(_lines(_FENCE.sub("", answer.rpartition("</think>")[2][:LOOKED_AT])), "")
    return _short(_SENTENCE.split(said)[0]) if _says_enough(said) else given


def _says_enough(text: str) -> bool:
    words = {word.lower() for word in _WORD.findall(text)} - _EMPTY
    # Scripts without spaces have their words in one.
    return len(words) >= FEWEST_WORDS or any(len(word) > 1 and not word.isascii() for word in words)


def _lines(text: str) -> Iterator[str]:
    """The lines of prose in `text`, without the marks of Markdown."""
    for line in text.splitlines():
        plain = " ".join(_MARKS.sub("", line).split())
        if _WORD.search(plain):
            yield plain


def _without_courtesies(line: str) -> str:
    """What is asked, beginning with a capital where courtesies stood before it."""
    asked = line[match.end() :] if (match := _COURTESY.match(line)) else line
    if not _WORD.search(asked):
        return line
    return asked if asked == line else asked[:1].upper() + asked[1:]


def _short(text: str) -> str:
    """`text` in one line, cut between words."""
    line = " ".join(text.split())
    if len(line) > LONGEST:
        cut = line[: LONGEST - 1]
        between_words = cut.rpartition(" ")[0]
        line = (between_words if len(between_words) > LONGEST // 2 else cut).rstrip(" ,;:.-") + "…"
    return line if line.endswith("…") else line.rstrip(" ?.!:,;")

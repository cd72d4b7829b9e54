"""Titles of chats, derived from the first exchange by rules, so that no model has to be asked.

A question is a good title once its courtesies are removed. If it says too little ("hi", "why?",
"explain this"), the first sentence of the answer is used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

MAX_CHARACTERS_READ = 2_000
"""Characters of a question or an answer that are considered: they can be as long as a book."""

MAX_CHARACTERS = 48
"""Of a title; the list of chats shows about thirty."""

MIN_WORDS = 2
"""Meaningful words that a title needs."""

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
_STOP_WORDS = frozenset(
    _WORD.findall(
        "a about again an and any are be can could did do does explain for from give has have hello"
        " help hey hi how i in is it its know make me mean means my of ok on one or please say"
        " should show so some tell thank thanks that the them there these they thing think this"
        " those to us was we what when where which who why will with would yes you your"
    )
)


def first_title(question: str) -> str:
    """The title until there is an answer."""
    beginning = question[:MAX_CHARACTERS_READ]
    lines = [*_lines(_FENCE.sub("", beginning)), *_lines(beginning), beginning]
    return _shortened(_without_courtesies(lines[0])) if lines else ""


def title(question: str, answer: str) -> str:
    """The title of a chat that begins with this exchange."""
    from_question = first_title(question)
    if _is_meaningful(from_question):
        return from_question
    beginning = answer.rpartition("</think>")[2][:MAX_CHARACTERS_READ]
    first_line = next(_lines(_FENCE.sub("", beginning)), "")
    if not _is_meaningful(first_line):
        return from_question
    return _shortened(_SENTENCE.split(first_line)[0])


def _is_meaningful(text: str) -> bool:
    words = {word.lower() for word in _WORD.findall(text)} - _STOP_WORDS
    # Scripts without spaces write several words as one.
    return len(words) >= MIN_WORDS or any(len(word) > 1 and not word.isascii() for word in words)


def _lines(text: str) -> Iterator[str]:
    """The lines of prose in `text`, without Markdown markup."""
    for line in text.splitlines():
        plain = " ".join(_MARKS.sub("", line).split())
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

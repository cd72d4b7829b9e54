"""The words of a question, and which of them say what it is about.

Owns how a question is split and its stop words. Refuses to know rankings.
"""

from __future__ import annotations

import re

MAX_QUERY_WORDS = 64
"""Later words of a query are ignored: a query is a question or 32 tokens, never a document."""
MIN_STATISTICS = 1000
"""How common a word is, is taken as if there were so many passages at least: in a few notes, the
words that they hold would count less than those that they lack."""
_STOP_WORDS = """
a about all an and any anyone are as at be been being best but by can command could did do does
doing each easiest everyone everything few for from get give had has have having he help here how i
idea if in is it its just know let line linux looking make may me might more most must my need no
nor not now of off on once only or other our over own please possible recommend remind same shall
she shell should show simplest so some someone something such tell terminal than that the their them
then there these they thing things this those to too try trying under us use used using very want
was way ways we were what when where which who whom whose why will with wonder wondering would you
your
"""
_GREETINGS = "bye goodbye hello hey hi ok okay thank thanks yeah yes"
STOP_WORDS = frozenset([*_STOP_WORDS.split(), *_GREETINGS.split()])
"""English words that carry a question, not its subject; elsewhere rarity has to do."""

_WORD = re.compile(r"\w+")
_CONTRACTION = re.compile(r"(?:n['’]t|['’](?:s|re|ve|ll|d|m))\b", re.IGNORECASE)
"""Else the "s" of "the router's address" is a word of the question."""


def informative_words(query: str) -> list[str]:
    """The query's words in order, without stop words unless nothing else is left."""
    words = list(dict.fromkeys(words_of(query)))
    return ([word for word in words if word not in STOP_WORDS] or words)[:MAX_QUERY_WORDS]


def split_words(text: str) -> list[str]:
    """The words of `text` in lower case, in order."""
    return [word.lower() for word in _WORD.findall(text)]


def words_of(query: str) -> list[str]:
    """The words of a question in lower case, in order; of "what's" the "what" alone."""
    return split_words(_CONTRACTION.sub("", query))

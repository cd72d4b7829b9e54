"""Completes a follow-up question from the chat before it is searched: "and for children?".

No model is asked: a question that leans on the previous one is searched together with it.
"""

from __future__ import annotations

from collections.abc import Sequence

from engines.retrieval.question_words import informative_words, words_of

MAX_INFORMATIVE = 3
"""Most words with a meaning of their own in a question that a pronoun ties to the previous one."""
MAX_BACK = 3
"""Most earlier questions that complete a question."""
_CONNECTIVES = """
and but or also then so for with without in on at from instead
und aber oder auch dann für mit ohne et mais ou aussi pour avec sans y pero o también para con sin
e ma anche per con senza en maar of ook voor met zonder и а но или также для с без
"""
CONNECTIVES = frozenset(_CONNECTIVES.split())
"""Words that continue a sentence if they begin a question; "what about" begins with none."""
_REFERENCES = """
it its they them their theirs that this these those there he she him her his hers one ones same
er sie es ihm ihr ihn ihnen sein seine ihre dort damit dafür davon dieser diese dieses
il elle ils elles lui leur celui celle ceux cela ça ello ellos ellas eso esto
"""
REFERENCES = frozenset(_REFERENCES.split())
"""Words that stand for something said before."""


def completed(earlier: Sequence[str], asked: str) -> str:
    """What to search for the question `asked` after `earlier` ones of its chat: a follow-up with
    what it follows."""
    parts, before = [asked], list(earlier)
    while before and len(parts) <= MAX_BACK and is_follow_up(parts[0]):
        parts.insert(0, before.pop())
    return "\n".join(parts)


def is_follow_up(question: str) -> bool:
    """Whether `question` needs the previous one to be understood."""
    words = words_of(question)
    if not words or words[0] in CONNECTIVES or words[:2] in (["what", "about"], ["how", "about"]):
        return True
    return not REFERENCES.isdisjoint(words) and len(informative_words(question)) <= MAX_INFORMATIVE

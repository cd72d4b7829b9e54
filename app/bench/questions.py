"""Questions about a corpus, and whether an answer to one is right or declines.

A file has one question per line, in JSON:

    {"question": "…", "kind": "reworded", "documents": ["bike.md"],
     "answer": [["5.5 bar", "80 psi"]], "before": ["…"]}

An answer is right if it has one alternative of each group of `answer`. `before` are the earlier
questions of the same chat. Documents are paths relative to the corpus, or titles of documents in a
file that holds several, such as a mailbox.
"""

from __future__ import annotations

import json
import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datastores.errors import InputError

TWO, NOTHING = "two", "nothing"
KINDS = ("one", "reworded", TWO, "followup", "code", NOTHING)
"""Answered by one document; in words that it does not have; by two documents together; after an
earlier question; about code; not answered by any document."""


@dataclass(frozen=True, slots=True)
class GradedQuestion:
    """One line of a file of questions.

    Attributes:
        documents: each holds the answer, or with kind `TWO` a part of it; none with `NOTHING`.
        answer: groups of alternatives.
        before: earlier questions of the chat.
    """

    text: str
    kind: str
    documents: tuple[str, ...] = ()
    answer: tuple[tuple[str, ...], ...] = ()
    before: tuple[str, ...] = ()

    @property
    def needed(self) -> int:
        """The number of `documents` that are needed for an answer."""
        return len(self.documents) if self.kind == TWO else min(1, len(self.documents))


def read_questions(path: Path) -> list[GradedQuestion]:
    """The questions in `path`.

    Raises:
        InputError: it cannot be read, a line is not a question, or there is none.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path}: {error}") from error
    found = [
        _question(line, f"{path}, line {number}")
        for number, line in enumerate(lines, 1)
        if line.strip()
    ]
    if not found:
        raise InputError(f"{path} holds no questions")
    return found


def _question(line: str, place: str) -> GradedQuestion:
    try:
        record = json.loads(line)
        question = GradedQuestion(
            _text(record["question"]),
            record["kind"],
            _texts(record.get("documents", [])),
            tuple(_texts(group) for group in record.get("answer", [])),
            _texts(record.get("before", [])),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f'{place}: not a question, {{"question", "kind", …}}') from error
    if question.kind not in KINDS:
        raise InputError(f"{place}: '{question.kind}' is none of the kinds {', '.join(KINDS)}")
    answered = question.kind != NOTHING
    if bool(question.documents) != answered or bool(question.answer) != answered:
        needs = f"'{NOTHING}' has neither documents nor an answer, every other kind has both"
        raise InputError(f"{place}: {needs}")
    return question


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _texts(values: Any) -> tuple[str, ...]:
    if not isinstance(values, list):
        raise TypeError(values)
    return tuple(map(_text, values))


NUMBER_WORDS = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen"),
    *("nineteen", "twenty"),
)
_NUMBERS = {word: str(number) for number, word in enumerate(NUMBER_WORDS)}

_THOUSANDS = re.compile(r"(?<=\d)[,'’\u00a0\u202f](?=\d{3}(?!\d))")
_DECIMAL_COMMA = re.compile(r"(?<=\d),(?=\d)")
_DIGITS_AND_LETTERS = re.compile(r"(?<=\d)(?=[^\W\d_])|(?<=[^\W\d_])(?=\d)")
_IGNORED = re.compile(r"[^\w.:/%€$£+@]+|_+|(?<!\d)[.:/]|[.:/](?!\d)")
_WORD = re.compile(r"\w+")


def normalised(text: str) -> str:
    """`text` without case, accents, markup, punctuation around words and the forms of numbers:
    `1,250 W` and `**1250W**` become `1250 w`, `three` becomes `3`."""
    text = unicodedata.normalize("NFKD", text).casefold()
    text = "".join(letter for letter in text if not unicodedata.combining(letter))
    text = _DECIMAL_COMMA.sub(".", _THOUSANDS.sub("", text))
    text = _DIGITS_AND_LETTERS.sub(" ", _IGNORED.sub(" ", text))
    return _WORD.sub(lambda word: _NUMBERS.get(word[0], word[0]), " ".join(text.split()))


def is_right(answer: str, groups: tuple[tuple[str, ...], ...]) -> bool:
    """Whether `answer` has one alternative of each of the `groups`, of which there is one at least.

    Alternatives are whole words and numbers; a plural counts too.
    """
    text = normalised(answer)
    return bool(groups) and all(any(_has(text, one) for one in group) for group in groups)


FIRST_UNSPACED = "\u0530"
"""Scripts up to here, Latin, Greek and Cyrillic, separate words and add no prefixes to them."""


def _has(text: str, alternative: str) -> bool:
    wanted = normalised(alternative)
    before = r"(?<![\w.])" if wanted[:1] < FIRST_UNSPACED else ""
    after = r"(?:e?s)?(?!\w|[.:]\d)" if wanted[-1:] < FIRST_UNSPACED else ""
    return bool(wanted) and re.search(before + re.escape(wanted) + after, text) is not None


_DECLINES = tuple(
    map(
        re.compile,
        (
            r"\b(not|never)\b( \w+){0,4} (mention|state|specif|provid|contain|includ|cover|list"
            r"|record|given|giving|found|find|know|answer|determin|access|availab|clear|sure|say"
            r"|stated|noted|tell|appear|describ|indicat|address|discuss|refer|present|document|assist)",
            r"\b(not|never)\b( \w+){0,2} (have|give)( \w+){0,2} (any|information|enough|specific"
            r"|detail|record|data|note|access|that|answer|context)",
            r"\bno( \w+){0,3} (mention|information|records?|details?|reference|notes?|entry|data"
            r"|indication|answer|evidence|passages?)\b",
            r"\b(unable to|unknown|unclear|unspecified|undocumented|sorry|apologi[sz]e)\b",
            r"\bnothing\b( \w+){0,4} (about|on|in|regarding)\b",
            r"\bneither\b.{0,60}\b(mention|say|state|contain|specif)",
            r"\b(without|need|provide)\b( \w+){0,3} (more|further|additional) (information|details"
            r"|context)",
            # German, French, Spanish, Italian, Portuguese, Dutch
            r"\b(keine?n?|nicht)\b.{0,40}\b(angabe|information|erwahn|hinweis|bekannt|angegeben"
            r"|hervor|enthalten|notiert|genannt|weiss|finden|beantwort)",
            r"\b(pas|aucune?)\b.{0,40}\b(mention|information|indiqu|precis|note|sais|trouv|repond)",
            r"\b(no|ningun\w*)\b.{0,40}\b(mencion|informacion|indica|especific|consta|aparece|sabe"
            r"|se dice|encuentr)",
            r"\b(non|nessun\w*)\b.{0,40}\b(menzion|informazion|indicat|specificat|dicono|trova|so)",
            r"\b(nao|nenhum\w*)\b.{0,40}\b(mencion|informac|indica|especific|consta|sei|encontr)",
            r"\b(niet|geen)\b.{0,40}\b(vermeld|informatie|genoemd|bekend|gevonden|staat|weet)",
        ),
    )
)
_CONTRACTED = re.compile(r"n['’]t\b|(?<=\bcan)not\b", re.IGNORECASE)


def declines(answer: str) -> bool:
    """Whether `answer` says that the notes do not have it, or that the model does not know."""
    text = _CONTRACTED.sub(" not", answer)
    sentences = map(normalised, re.split(r"(?<=[.!?])\s|\n", text))
    return any(pattern.search(one) for one in sentences for pattern in _DECLINES)

"""Words a task as people ask for it, with synonyms, sentence frames and typing slips.

Some synonyms and frames are withheld from training, so that evaluation uses new wordings.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from random import Random

from assets.recipe import read_lines, words

_FILLERS = frozenset(
    words("the a an specific specified given all using its their that current new existing some")
)
_STOP = _FILLERS.union(
    words("to of for in on with from into by and or as at it is are be if this your my you i")
)
_DOUBLED = words("get set put run cut stop log scan skip ping split strip plot grep")

_NAMED = (
    "{ask} with {name}",
    "{ask} using {name}",
    "{name}: {ask}",
    "{name} {keys}",
    "with {name}, {ask}",
    "using {name}, {ask}",
    "in {name}, {ask}",
)


@dataclass(frozen=True)
class Style:
    """Which wordings may be drawn.

    ``fresh`` selects the frames and synonyms that training never sees. The others are
    probabilities: ``change`` that a word with synonyms is replaced, ``concrete`` that a vague noun
    becomes concrete, ``values`` that values are named for placeholders, ``slips`` that a letter is
    mistyped, ``terse`` that a colloquial question has only a few words ("disk space").
    """

    fresh: bool = False
    change: float = 0.35
    concrete: float = 0.3
    values: float = 0.4
    slips: float = 0.1
    terse: float = 0.3


def _table() -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Synonyms by word, for training and for evaluation; the same if a word has none withheld."""
    usual: dict[str, list[str]] = {}
    fresh: dict[str, list[str]] = {}
    for line in read_lines("synonyms.txt"):
        word, _, rest = line.partition(":")
        seen, _, kept = rest.partition("|")
        usual[word] = _listed(seen)
        fresh[word] = _listed(kept) or usual[word]
    return usual, fresh


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


_USUAL, _FRESH = _table()
_CONCRETE = {
    vague: _listed(things)
    for vague, _, things in (line.partition(":") for line in read_lines("concrete.txt"))
}
_VERBS = frozenset(words(" ".join(read_lines("verbs.txt"))))
_FRAMES = [line for line in read_lines("frames.txt") if not line.startswith("+ ")]
_FRESH_FRAMES = [line[2:] for line in read_lines("frames.txt") if line.startswith("+ ")]


def reword(task: str, rng: Random, style: Style) -> str:
    """The task reworded as an imperative phrase, in lower case and without a full stop."""
    text = _trim(task, rng)
    words = text.split()
    table = _FRESH if style.fresh else _USUAL
    out = []
    for word in words:
        key = word.lower().strip(",")
        if key in _FILLERS and rng.random() < 0.25:
            continue
        if table.get(key) and rng.random() < style.change:
            out.append(rng.choice(table[key]))
        else:
            out.append(word)
    if out and out[0][:1].isupper() and not out[0][1:2].isupper():
        out[0] = out[0][0].lower() + out[0][1:]
    return " ".join(out) or text


def concrete(phrase: str, rng: Random) -> str:
    """Make one vague noun concrete: ``delete a file`` may become ``delete report.pdf``."""
    found = [vague for vague in _CONCRETE if f" {vague} " in f" {phrase} "]
    if not found:
        return phrase
    vague = max(found, key=len)
    named = rng.choice(_CONCRETE[vague])
    return f" {phrase} ".replace(f" {vague} ", f" {named} ", 1).strip()


def _trim(task: str, rng: Random) -> str:
    text = task.rstrip(".:")
    if rng.random() < 0.7:
        text = re.sub(r"\s*\([^()]*\)", "", text)
    if rng.random() < 0.6:
        text = text.replace("`", "")
    if rng.random() < 0.35 and len(text) > 60:
        text = re.split(r", | and then | \(", text)[0]
    if rng.random() < 0.25:
        text = re.sub(r" (to|from|in) the (specified|given) \w+$", "", text)
    return text.strip() or task


def gerund(phrase: str) -> str:
    """``list files`` becomes ``listing files``; the first word is taken as the verb."""
    verb, _, rest = phrase.partition(" ")
    lower = verb.lower()
    if lower in _DOUBLED and not lower.endswith(("log in", "ng")):
        verb += verb[-1] + "ing"
    elif lower.endswith("e") and not lower.endswith("ee"):
        verb = verb[:-1] + "ing"
    else:
        verb += "ing"
    return f"{verb} {rest}".strip()


def keywords(phrase: str, rng: Random) -> str:
    """Search keywords: no stop words, sometimes in another order."""
    words = [word for word in phrase.replace("`", "").split() if word.lower() not in _STOP]
    if len(words) > 4 and rng.random() < 0.3:
        words = words[:4]
    if len(words) > 2 and rng.random() < 0.25:
        words = words[1:] + words[:1]
    return " ".join(words).lower() or phrase


def ask(
    phrase: str, rng: Random, style: Style, name: str | None = None, *, framed: bool = True
) -> str:
    """A question for ``phrase``, with the command's name if ``name`` is given.

    If ``framed``, an imperative gets a sentence frame; other phrases keep their form.
    """
    phrase = concrete(phrase, rng) if rng.random() < style.concrete else phrase
    frame = rng.choice(_FRESH_FRAMES if style.fresh else _FRAMES)
    frame = frame if framed and _is_imperative(phrase) else "{do}"
    text = frame.format(do=phrase, doing=gerund(phrase), keys=keywords(phrase, rng))
    if name is not None:
        text = _with_name(text, phrase, name, rng)
    if rng.random() < 0.3:
        text = text[:1].upper() + text[1:]
    elif rng.random() < 0.25:
        text = text.lower() if name is None else text
    return slip(text, rng) if rng.random() < style.slips else text


def _is_imperative(phrase: str) -> bool:
    first = re.split(r"[ ,/]", phrase.lower(), maxsplit=1)[0]
    return (first in _VERBS or first.endswith("ly")) and not phrase.endswith("?")


def _with_name(text: str, phrase: str, name: str, rng: Random) -> str:
    mark = text[-1] if text[-1] in "?." else ""
    shown = f"`{name}`" if rng.random() < 0.3 else name
    frame = rng.choice(_NAMED)
    return frame.format(ask=text.rstrip("?."), name=shown, keys=keywords(phrase, rng)) + mark


def slip(text: str, rng: Random) -> str:
    """Make one typing slip inside a longer word: swap two letters, drop one or double one."""
    places = [m.start() + 1 for m in re.finditer(r"[a-z]{5,}", text)]
    if not places:
        return text
    at = rng.choice(places) + rng.randrange(3)
    kind = rng.randrange(3)
    if kind == 0:
        return text[:at] + text[at + 1 : at + 2] + text[at : at + 1] + text[at + 2 :]
    if kind == 1:
        return text[:at] + text[at + 1 :]
    return text[:at] + text[at : at + 1] + text[at:]

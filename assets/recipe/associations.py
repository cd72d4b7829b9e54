"""``python -m assets.recipe.associations``: which words of a page answer which of a question.

Learned from tasks in people's own words, as the translation probabilities of IBM Model 1 (Brown et
al., 1993, section 4.1) from a page's words to a question's (Berger and Lafferty, SIGIR 1999). Owns
``word-associations.txt``, the file in ``assets`` that retrieval reads. Held-out pages take no part.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path

import click

from assets.recipe.pages import read_pages, split
from assets.recipe.prepare import make_pool
from assets.recipe.turns import Pool
from datastores.passages.associations import ASSOCIATIONS_FILE, write_associations
from datastores.passages.question_words import STOP_WORDS, informative_words
from datastores.passages.word_counts import count_terms

HEADING = "Words of questions: words of texts that answer them, with their chances in percent."
ROUNDS = 5
"""Of expectation maximisation; later ones only sharpen what is rare."""
MIN_COUNT = 1.0
"""Expected number of times that a word stands for the other in all pairs."""
PRIOR_COUNT = 10.0
"""Added to how often a page's word occurs, so that rare ones promise little."""
MIN_WEIGHT, MAX_WEIGHT = 0.02, 0.5
"""Less is noise; no associate counts more than half of the word itself."""
MAX_ASSOCIATES = 8

Pair = tuple[Sequence[str], Sequence[str]]
"""The different words of a question, and those of the text that answers it, as stems."""

_NO_WORD = ""
"""Stands in every text, for words of a question that nothing in it asks for."""


@click.command()
@click.option("--pages", type=click.Path(path_type=Path), required=True, help="As in the recipe.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder to write to.")
def main(pages: Path, out: Path) -> None:
    """Learn word associations and write them."""
    out.mkdir(parents=True, exist_ok=True)
    learned = associate(pairs(make_pool(split(read_pages(pages)))))
    write_associations(out / ASSOCIATIONS_FILE, HEADING, learned)


def pairs(pool: Pool) -> list[Pair]:
    """Each phrase that asks for a task, with the task, its command's name and its summary."""
    asked, answering = [], []
    for task in (*pool.own_words, *pool.tasks):
        page = pool.pages.get(task.name)
        text = f"{task.answer.plain} {task.name} {page.summary if page else ''}"
        asked += [" ".join(informative_words(phrase)) for phrase in task.phrases]
        answering += [text] * len(task.phrases)
    common = set().union(*_stems(STOP_WORDS))
    texts = dict(zip(dict.fromkeys(answering), _stems(dict.fromkeys(answering)), strict=True))
    return [
        (question, [word for word in texts[text] if word not in common])
        for question, text in zip(_stems(asked), answering, strict=True)
    ]


def _stems(texts: Iterable[str]) -> list[list[str]]:
    """The different words of each text, as the word index has them."""
    listed = list(texts)
    found: list[list[str]] = [[] for _ in listed]
    counted = count_terms([("", text) for text in listed])
    for number, rows in groupby(counted, lambda row: row[0]):
        found[number] = [term for _, term, _, _ in rows]
    return found


def associate(learned_from: Sequence[Pair]) -> dict[str, dict[str, float]]:
    """By word of a question the words of texts that it asks for, and their weights."""
    counts = expected_counts(learned_from)
    totals: dict[str, float] = defaultdict(float)
    for (_, other), count in counts.items():
        totals[other] += count
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for (word, other), count in counts.items():
        weight = count / (totals[other] + PRIOR_COUNT)
        numbers = word.isdecimal() or other.isdecimal()  # ask for themselves only
        if numbers or other in (word, _NO_WORD):
            continue
        if count >= MIN_COUNT and weight >= MIN_WEIGHT:
            found[word][other] = min(weight, MAX_WEIGHT)
    return {word: _best(others) for word, others in found.items()}


def _best(others: Mapping[str, float]) -> dict[str, float]:
    ranked = sorted(others.items(), key=lambda pair: (-pair[1], pair[0]))
    return dict(ranked[:MAX_ASSOCIATES])


def expected_counts(learned_from: Sequence[Pair]) -> dict[tuple[str, str], float]:
    """How often a question's word stands for a text's word, by both, as Model 1 expects it."""
    chances: dict[tuple[str, str], float] = {}
    counts: dict[tuple[str, str], float] = {}
    totals: dict[str, float]
    for _ in range(ROUNDS):
        counts, totals = defaultdict(float), defaultdict(float)
        for question, text in learned_from:
            sources = [_NO_WORD, *text]
            for word in question:
                # The first round divides evenly, whatever the value is.
                shares = [chances.get((word, other), 0.0) if chances else 1.0 for other in sources]
                whole = sum(shares)
                for other, share in zip(sources, shares, strict=True):
                    counts[word, other] += share / whole
                    totals[other] += share / whole
        chances = {pair: count / totals[pair[1]] for pair, count in counts.items()}
    return counts


if __name__ == "__main__":
    main()

"""``python -m assets.recipe.workloads``: questions for ``python -m app.bench distill``.

``known.jsonl`` asks about pages that the pair knows. Each other workload asks about a few held-out
pages, so that the draft model meets topics it has never seen; some questions are repeated, as
people do. The target's answers there are guesses, but a draft model has to learn what the target
says, right or wrong. ``known-questions.txt`` is the file in ``assets`` with questions that the
draft model rehearses while it learns, so that it does not forget.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import click

from assets.recipe.from_memory import everyday, recall
from assets.recipe.pages import Page, read_pages, split
from assets.recipe.prepare import make_pool
from assets.recipe.turns import Chat, Pool, ask_examples, ask_explained, ask_how, ask_what
from assets.recipe.wording import Style

REPEATED_SHARE = 0.15
"""The share of questions that repeat an earlier one of the same file."""
KNOWN_QUESTIONS, KNOWN_SEED = 1000, 2026
"""Number of questions in the file in ``assets``, and their seed."""
TOPIC_PAGES = 20
"""Number of pages per topic."""


@click.command()
@click.option("--pages", type=click.Path(path_type=Path), required=True, help="As in the recipe.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder to write to.")
@click.option("--topics", default=2, show_default=True, help="Files about held-out pages.")
@click.option("--count", default=300, show_default=True, help="Questions of each file.")
@click.option("--seed", default=7, show_default=True, help="Fixes pages and questions.")
def main(pages: Path, out: Path, topics: int, count: int, seed: int) -> None:
    """Write workloads of known and unknown topics."""
    out.mkdir(parents=True, exist_ok=True)
    parts = split(read_pages(pages))
    rng = Random(seed)
    held_out = rng.sample(parts.held_out, min(len(parts.held_out), topics * TOPIC_PAGES))
    pool = make_pool(parts)
    write(out / "known.jsonl", [known(pool, rng) for _ in range(count)])
    lines = "\n".join(known_questions(pool))
    (out / "known-questions.txt").write_text(f"{lines}\n", encoding="utf-8")
    for number in range(topics):
        chosen = held_out[number::topics]
        write(out / f"topic-{number + 1}.jsonl", list(questions(chosen, count, rng)))


def known(pool: Pool, rng: Random) -> str:
    """A question that the pair has to answer from memory."""
    chat: Chat = rng.choice((recall, everyday))(pool, rng, Style())
    return chat[-2].text


def known_questions(pool: Pool) -> list[str]:
    """Distinct questions that the pair has to answer from memory."""
    rng, found = Random(KNOWN_SEED), dict[str, None]()
    while len(found) < KNOWN_QUESTIONS:
        found[known(pool, rng)] = None
    return list(found)


def questions(pages: Sequence[Page], count: int, rng: Random) -> Iterator[str]:
    """Questions about ``pages`` without notes, some of them repeated."""
    asked: list[str] = []
    for _ in range(count):
        if asked and rng.random() < REPEATED_SHARE:
            yield rng.choice(asked)
            continue
        asked.append(_question(rng.choice(pages), rng))
        yield asked[-1]


def _question(page: Page, rng: Random) -> str:
    example, kind = rng.choice(page.examples), rng.random()
    if kind < 0.15:
        return ask_what(page, rng)[0].text
    if kind < 0.2:
        return ask_examples(page, rng, noted=False)[0].text
    if kind < 0.3:
        return ask_explained(page, example, rng, noted=False)[0].text
    return ask_how(page, example, rng, Style(), noted=False)[0].text


def write(path: Path, asked: Sequence[str]) -> None:
    """Write a workload with one question per chat."""
    lines = (
        {"id": f"{path.stem}-{number}", "messages": [{"role": "user", "content": question}]}
        for number, question in enumerate(asked)
    )
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    main()

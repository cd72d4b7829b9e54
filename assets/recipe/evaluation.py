"""Measures the pair: copying, recall, form, everyday questions, drafting.

Questions are in fresh wording (`wording.Style`), about held-out pages where notes are given and
about known pages otherwise. Hand-written questions are in `judged`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import torch

from assets.recipe.from_memory import everyday
from assets.recipe.pages import Page, Split
from assets.recipe.placeholders import readable
from assets.recipe.reader import (
    UNFINISHED,
    AnswerReader,
    command_of,
    fraction,
    name_of,
    well_formed,
)
from assets.recipe.retrieval import PageStatistics, question_model, translations
from assets.recipe.tokens import IM_END, render_prompt, whole
from assets.recipe.turns import (
    HEADER,
    Chat,
    ChatTurn,
    Pool,
    ask_how,
    excerpt_turns,
    notes_message,
)
from assets.recipe.wording import Style
from datastores.passages.chunks import split

_PLACEHOLDER = re.compile(r"<[^<>\s]+>")
_VALUE = re.compile(r"[^\s'\",;:=]+")
_FRESH = Style(fresh=True, concrete=0.0, values=0.0, slips=0.0, terse=0.0)


@dataclass(frozen=True)
class EvaluationQuestion:
    """A chat that ends in a question, the right answer, and the page not to copy from."""

    chat: Chat
    wanted: str
    wrong: Page | None = None


def noted_questions(pages: Sequence[Page], count: int, rng: Random) -> list[EvaluationQuestion]:
    """Questions on ``pages`` with the whole right page in the notes."""
    out = []
    for _ in range(count):
        page = rng.choice(pages)
        question, answer = ask_how(page, rng.choice(page.examples), rng, _FRESH, noted=True)
        notes = ChatTurn("system", notes_message([page.markdown]))
        out.append(EvaluationQuestion((notes, question), answer.text))
    return out


def excerpted(
    questions: Sequence[EvaluationQuestion], statistics: PageStatistics
) -> list[EvaluationQuestion]:
    """``questions`` with the notes reduced to what retrieval shows of them."""
    out = []
    for each in questions:
        notes, question = each.chat
        chunks = list(split(notes.text.removeprefix(HEADER).strip()))
        kept = statistics.excerpts(chunks, question.text, translations(), model=question_model())
        out.append(EvaluationQuestion((*excerpt_turns(kept), question), each.wanted))
    return out


def misled_questions(parts: Split, count: int, rng: Random) -> list[EvaluationQuestion]:
    """Questions on a page, half of them held out, with another held-out page in the notes."""
    out = []
    for number in range(count):
        page = rng.choice(parts.held_out if number % 2 else parts.known)
        wrong = rng.choice([each for each in parts.held_out if each is not page])
        question, answer = ask_how(page, rng.choice(page.examples), rng, _FRESH, noted=False)
        notes = ChatTurn("system", notes_message([wrong.markdown]))
        out.append(EvaluationQuestion((notes, question), answer.text, wrong))
    return out


def recall_questions(pages: Sequence[Page], count: int, rng: Random) -> list[EvaluationQuestion]:
    """Questions on ``pages`` without notes, in fresh wording."""
    out = []
    for _ in range(count):
        page = rng.choice(pages)
        question, answer = ask_how(page, rng.choice(page.examples), rng, _FRESH, noted=False)
        out.append(EvaluationQuestion((question,), answer.text))
    return out


def everyday_questions(pool: Pool, count: int, rng: Random) -> list[EvaluationQuestion]:
    """Questions for the hand-written everyday tasks, in fresh wording."""
    drawn = (everyday(pool, rng, _FRESH)[-2:] for _ in range(count))
    return [EvaluationQuestion((question,), answer.text) for question, answer in drawn]


def copies_from(answer: str, page: Page) -> bool:
    """Whether the answer's command, or its name, is taken from ``page``."""
    commands = {each.command for each in page.examples}
    return command_of(answer) in commands or name_of(answer) == page.name


def is_invented(command: str, wanted: str, question: str) -> bool:
    """Whether ``command`` is ``wanted`` with a value filled in that ``question`` does not name.

    Options and unfilled placeholders do not count.
    """
    pattern = _PLACEHOLDER.sub("(.+)", re.escape(wanted).replace(r"\ ", " "))
    found = re.fullmatch(pattern, command)
    filled = _PLACEHOLDER.sub(" ", " ".join(found.groups())) if found else ""
    return any(
        not word.startswith("-") and not whole(word.lower()).search(question.lower())
        for word in _VALUE.findall(filled)
    )


def evaluate(
    reader: AnswerReader, parts: Split, pool: Pool, count: int, seed: int
) -> dict[str, float]:
    """The target's figures, each a fraction between 0 and 1."""
    rng = Random(seed)
    held_out = parts.held_out or parts.familiar
    every = (*parts.known, *parts.familiar, *parts.held_out)
    statistics = PageStatistics(page.markdown for page in every)
    noted = noted_questions(held_out, count, rng)
    groups = {
        "noted": noted,
        "excerpted": excerpted(noted, statistics),
        "misled": misled_questions(Split(tuple(pool.known), (), held_out), count, rng),
        "core": recall_questions(pool.core, count, rng),
        "recall": recall_questions(pool.known, count, rng),
        "everyday": everyday_questions(pool, count, rng),
    }
    answers = {key: reader.answers([q.chat for q in group]) for key, group in groups.items()}
    figures = {"well_formed": fraction(well_formed(a) for group in answers.values() for a in group)}
    for key, group in groups.items():
        pairs = list(zip(answers[key], group, strict=True))
        if key == "misled":
            figures["misled_not_copied"] = fraction(
                not copies_from(a, q.wrong) for a, q in pairs if q.wrong
            )
            continue
        exact = [(command_of(a), command_of(q.wanted)) for a, q in pairs]
        if key not in ("noted", "excerpted"):
            exact = [(readable(command), wanted) for command, wanted in exact]
        if key == "everyday":
            figures["values_invented"] = fraction(
                is_invented(*each, q.chat[-1].text) for each, q in zip(exact, group, strict=True)
            )
        figures[f"{key}_exact"] = fraction(command == wanted for command, wanted in exact)
        figures[f"{key}_name"] = fraction(name_of(a) == name_of(q.wanted) for a, q in pairs)
    return figures


def acceptance(
    target: AnswerReader, draft_model: AnswerReader, questions: Sequence[EvaluationQuestion]
) -> dict[str, float]:
    """How well the draft model drafts the target's greedy answers.

    ``draft_model_overlap`` is the mean of Σ min(p, q), the probability that a token sampled from
    the draft model is accepted; ``draft_model_top`` is the fraction of positions where both have
    the same most likely token.
    """
    overlaps: list[torch.Tensor] = []
    tops: list[torch.Tensor] = []
    answers = target.answers([question.chat for question in questions])
    for question, answer in zip(questions, answers, strict=True):
        prompt = target.tokenizer.encode(render_prompt(question.chat)).ids
        ids = prompt + target.tokenizer.encode(answer.removesuffix(UNFINISHED)).ids + [IM_END]
        p = target.probabilities(ids)[len(prompt) - 1 : -1]
        q = draft_model.probabilities(ids)[len(prompt) - 1 : -1]
        overlaps.append(torch.minimum(p, q).sum(dim=-1))
        tops.append(p.argmax(dim=-1) == q.argmax(dim=-1))
    return {
        "draft_model_overlap": torch.cat(overlaps).mean().item(),
        "draft_model_top": torch.cat(tops).float().mean().item(),
    }

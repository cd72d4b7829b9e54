"""What the pair can do, in figures: copying, recall, form, everyday questions, drafting.

Owns the measures. Questions are drawn with fresh wording (`wording.Style`), on held-out pages
where notes are given and on known pages where none are.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random

import torch

from assets.recipe.material_files import read_evening_questions
from assets.recipe.notes import notes_message
from assets.recipe.pages import Page, Split
from assets.recipe.reader import UNFINISHED, Reader
from assets.recipe.recalled import everyday
from assets.recipe.tokens import IM_END, render_prompt
from assets.recipe.turns import Chat, Pool, Turn, ask_how
from assets.recipe.wording import Style

_FRESH = Style(fresh=True, concrete=0.0, slips=0.0)
_FENCE = re.compile(r"```sh\n(.*?)\n```", re.DOTALL)
_NAME = re.compile(r"Use `([^`]+)`")


@dataclass(frozen=True)
class Question:
    """A chat that ends in a question, the answer wanted, and the page it must not copy from."""

    chat: Chat
    wanted: str
    wrong: Page | None = None


def command_of(answer: str) -> str:
    """The first fenced command of an answer; empty where there is none."""
    found = _FENCE.search(answer)
    return found[1] if found else ""


def name_of(answer: str) -> str:
    """The command name an answer gives; empty where there is none."""
    found = _NAME.search(answer)
    return found[1] if found else ""


def well_formed(answer: str) -> bool:
    """Whether an answer ends by itself, closes its fences, and leaks no chat markup."""
    fences = sum(line.startswith("```") for line in answer.splitlines())
    return (
        bool(answer.strip())
        and fences % 2 == 0
        and not re.search(rf"{UNFINISHED}|<\|im_|<\|endoftext", answer)
    )


def noted_questions(pages: Sequence[Page], count: int, rng: Random) -> list[Question]:
    """Questions on held-out pages with the whole right page in the notes."""
    out = []
    for _ in range(count):
        page = rng.choice(pages)
        question, answer = ask_how(page, rng.choice(page.examples), rng, _FRESH, plain=False)
        notes = Turn("system", notes_message([page.markdown]))
        out.append(Question((notes, question), answer.text))
    return out


def misled_questions(parts: Split, count: int, rng: Random) -> list[Question]:
    """Questions on one page, half of them held out, with another held-out page in the notes."""
    out = []
    for number in range(count):
        page = rng.choice(parts.held_out if number % 2 else parts.known)
        wrong = rng.choice([each for each in parts.held_out if each is not page])
        question, answer = ask_how(page, rng.choice(page.examples), rng, _FRESH, plain=True)
        notes = Turn("system", notes_message([wrong.markdown]))
        out.append(Question((notes, question), answer.text, wrong))
    return out


def recall_questions(pages: Sequence[Page], count: int, rng: Random) -> list[Question]:
    """Tasks of ``pages`` without notes, in fresh wording."""
    out = []
    for _ in range(count):
        page = rng.choice(pages)
        question, answer = ask_how(page, rng.choice(page.examples), rng, _FRESH, plain=True)
        out.append(Question((question,), answer.text))
    return out


def everyday_questions(pool: Pool, count: int, rng: Random) -> list[Question]:
    """The hand-written everyday tasks, in fresh wording."""
    drawn = (everyday(pool, rng, _FRESH)[-2:] for _ in range(count))
    return [Question((question,), answer.text) for question, answer in drawn]


def copied(answer: str, page: Page) -> bool:
    """Whether an answer takes its command, or the command's name, from ``page``."""
    commands = {each.command for each in page.examples}
    return command_of(answer) in commands or name_of(answer) == page.name


def share(marks: Iterable[bool]) -> float:
    """The part of ``marks`` that hold."""
    held = list(marks)
    return sum(held) / max(len(held), 1)


def evaluate(reader: Reader, parts: Split, pool: Pool, count: int, seed: int) -> dict[str, float]:
    """The target's figures, each a share between 0 and 1."""
    rng = Random(seed)
    held_out = parts.held_out or parts.familiar
    groups = {
        "noted": noted_questions(held_out, count, rng),
        "misled": misled_questions(Split(tuple(pool.known), (), held_out), count, rng),
        "core": recall_questions(pool.core, count, rng),
        "recall": recall_questions(pool.known, count, rng),
        "everyday": everyday_questions(pool, count, rng),
    }
    answers = {key: reader.answers([q.chat for q in group]) for key, group in groups.items()}
    figures = {"well_formed": share(well_formed(a) for group in answers.values() for a in group)}
    for key, group in groups.items():
        pairs = list(zip(answers[key], group, strict=True))
        if key == "misled":
            figures["misled_not_copied"] = share(
                not copied(a, q.wrong) for a, q in pairs if q.wrong
            )
            continue
        figures[f"{key}_exact"] = share(command_of(a) == command_of(q.wanted) for a, q in pairs)
        figures[f"{key}_name"] = share(name_of(a) == name_of(q.wanted) for a, q in pairs)
    return figures | {"evening_name": evening(reader)}


def evening(reader: Reader) -> float:
    """The share of hand-written everyday questions answered with an accepted command."""
    questions = read_evening_questions()
    answers = reader.answers([(Turn("user", prompt),) for prompt, _ in questions])
    return share(name_of(a) in names for a, (_, names) in zip(answers, questions, strict=True))


def acceptance(target: Reader, student: Reader, questions: Sequence[Question]) -> dict[str, float]:
    """How the student drafts on the target's own greedy answers.

    ``student_overlap`` is the mean of sum min(p, q), the chance that a token drawn from the student
    is accepted; ``student_top`` the share of positions where both prefer the same token.
    """
    overlaps: list[torch.Tensor] = []
    tops: list[torch.Tensor] = []
    answers = target.answers([question.chat for question in questions])
    for question, answer in zip(questions, answers, strict=True):
        prompt = target.tokenizer.encode(render_prompt(question.chat)).ids
        ids = prompt + target.tokenizer.encode(answer.removesuffix(UNFINISHED)).ids + [IM_END]
        p = target.probabilities(ids)[len(prompt) - 1 : -1]
        q = student.probabilities(ids)[len(prompt) - 1 : -1]
        overlaps.append(torch.minimum(p, q).sum(dim=-1))
        tops.append(p.argmax(dim=-1) == q.argmax(dim=-1))
    return {
        "student_overlap": torch.cat(overlaps).mean().item(),
        "student_top": torch.cat(tops).float().mean().item(),
    }

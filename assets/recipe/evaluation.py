"""What the pair can do, in figures: copying, recall, form, everyday questions, drafting.

Owns the measures. Questions have fresh wording (`wording.Style`), on held-out pages where notes are
given and on known pages otherwise. The GGUF files are read through transformers, so that what is
measured is what is shipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor

from assets.recipe.from_memory import everyday
from assets.recipe.material_files import read_evening_questions
from assets.recipe.pages import Page, Split
from assets.recipe.tokens import END_OF_TEXT, IM_END, render_prompt
from assets.recipe.turns import Chat, Pool, Turn, ask_how, notes_message
from assets.recipe.wording import Style
from datastores.errors import ModelError

_READER_BATCH = 48

UNFINISHED = "<unfinished>"

_FRESH = Style(fresh=True, concrete=0.0, slips=0.0)
_FENCE = re.compile(r"```sh\n(.*?)\n```", re.DOTALL)
_NAME = re.compile(r"Use `([^`]+)`")


@dataclass(frozen=True)
class Question:
    """A chat that ends in a question, the right answer, and the page it must not copy from."""

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
    """Whether an answer is finished, closes its fences, and contains no chat markup."""
    fences = sum(line.startswith("```") for line in answer.splitlines())
    return (
        bool(answer.strip())
        and fences % 2 == 0
        and not re.search(rf"{UNFINISHED}|<\|im_|<\|endoftext", answer)
    )


def noted_questions(pages: Sequence[Page], count: int, rng: Random) -> list[Question]:
    """Questions on ``pages`` with the whole right page in the notes."""
    out = []
    for _ in range(count):
        page = rng.choice(pages)
        question, answer = ask_how(page, rng.choice(page.examples), rng, _FRESH, plain=False)
        notes = Turn("system", notes_message([page.markdown]))
        out.append(Question((notes, question), answer.text))
    return out


def misled_questions(parts: Split, count: int, rng: Random) -> list[Question]:
    """Questions on a page, half of them held out, with another held-out page in the notes."""
    out = []
    for number in range(count):
        page = rng.choice(parts.held_out if number % 2 else parts.known)
        wrong = rng.choice([each for each in parts.held_out if each is not page])
        question, answer = ask_how(page, rng.choice(page.examples), rng, _FRESH, plain=True)
        notes = Turn("system", notes_message([wrong.markdown]))
        out.append(Question((notes, question), answer.text, wrong))
    return out


def recall_questions(pages: Sequence[Page], count: int, rng: Random) -> list[Question]:
    """Questions on ``pages`` without notes, in fresh wording."""
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


def copies_from(answer: str, page: Page) -> bool:
    """Whether an answer takes its command, or the command's name, from ``page``."""
    commands = {each.command for each in page.examples}
    return command_of(answer) in commands or name_of(answer) == page.name


def fraction(marks: Iterable[bool]) -> float:
    """The fraction of ``marks`` that are true; 0 of none."""
    values = list(marks)
    return sum(values) / max(len(values), 1)


def evaluate(reader: Reader, parts: Split, pool: Pool, count: int, seed: int) -> dict[str, float]:
    """The target's figures, each a fraction between 0 and 1."""
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
    figures = {"well_formed": fraction(well_formed(a) for group in answers.values() for a in group)}
    for key, group in groups.items():
        pairs = list(zip(answers[key], group, strict=True))
        if key == "misled":
            figures["misled_not_copied"] = fraction(
                not copies_from(a, q.wrong) for a, q in pairs if q.wrong
            )
            continue
        figures[f"{key}_exact"] = fraction(command_of(a) == command_of(q.wanted) for a, q in pairs)
        figures[f"{key}_name"] = fraction(name_of(a) == name_of(q.wanted) for a, q in pairs)
    return figures | {"evening_name": evening_questions_answered(reader)}


def evening_questions_answered(reader: Reader) -> float:
    """The fraction of hand-written everyday questions answered with an accepted command."""
    questions = read_evening_questions()
    answers = reader.answers([(Turn("user", prompt),) for prompt, _ in questions])
    return fraction(name_of(a) in names for a, (_, names) in zip(answers, questions, strict=True))


def acceptance(target: Reader, student: Reader, questions: Sequence[Question]) -> dict[str, float]:
    """How well the student drafts the target's greedy answers.

    ``student_overlap`` is the mean of sum min(p, q), the chance that a token drawn from the student
    is accepted; ``student_top`` the fraction of positions where both prefer the same token.
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


class Reader:
    """One model file and its tokenizer."""

    def __init__(self, path: Path, tokenizer: Tokenizer) -> None:
        """Load ``path`` in float32.

        Raises:
            ModelError: there is no such file.
        """
        from transformers import AutoModelForCausalLM

        if not path.exists():
            raise ModelError(f"{path}: no such model file; run the export step first")
        self.tokenizer = tokenizer
        self.model: Any = AutoModelForCausalLM.from_pretrained(
            path.parent, gguf_file=path.name, dtype=torch.float32
        )
        self.model.eval()

    def answers(self, chats: Sequence[Chat], most: int = 256) -> list[str]:
        """The greedy answer to each chat, which must end in a question.

        An answer that is not finished within ``most`` tokens ends in ``UNFINISHED``.
        """
        prompts = [self.tokenizer.encode(render_prompt(chat)).ids for chat in chats]
        order = sorted(range(len(prompts)), key=lambda index: len(prompts[index]))
        out = [""] * len(prompts)
        for first in range(0, len(order), _READER_BATCH):
            chosen = order[first : first + _READER_BATCH]
            texts = self._batch([prompts[index] for index in chosen], most)
            for index, text in zip(chosen, texts, strict=True):
                out[index] = text
        return out

    def _batch(self, prompts: list[list[int]], most: int) -> list[str]:
        longest = max(map(len, prompts))
        ids = torch.tensor([[END_OF_TEXT] * (longest - len(p)) + p for p in prompts])
        mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts])
        written = self.model.generate(
            input_ids=ids,
            attention_mask=mask,
            max_new_tokens=most,
            do_sample=False,
            eos_token_id=IM_END,
            pad_token_id=END_OF_TEXT,
        )
        return [self._text(row) for row in written[:, longest:].tolist()]

    def _text(self, row: list[int]) -> str:
        if IM_END not in row:
            return self.tokenizer.decode(row) + UNFINISHED
        return self.tokenizer.decode(row[: row.index(IM_END)], skip_special_tokens=False)

    def probabilities(self, ids: Sequence[int]) -> Tensor:
        """Probabilities of the token after each of ``ids``: (len(ids), vocabulary)."""
        with torch.no_grad():
            logits: Tensor = self.model(torch.tensor([list(ids)])).logits[0]
        return logits.softmax(dim=-1)

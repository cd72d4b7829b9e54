"""Reads the hand-written material: tasks in many wordings, small talk, questions.

The head of each file in ``material/`` defines its line format.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from assets.recipe import read_lines
from assets.recipe.pages import Example, Page, is_held_out
from datastores.errors import InputError


@dataclass(frozen=True)
class Task:
    """A task: the command's name, the answer, and phrases that ask for it."""

    name: str
    answer: Example
    phrases: tuple[str, ...]

    def phrases_for(self, name: str) -> tuple[str, ...]:
        """The phrases for a command renamed to ``name``, without those that hold its old name."""
        if name == self.name:
            return self.phrases
        own = re.compile(rf"(?<!\w){re.escape(self.name)}(?!\w)", re.IGNORECASE)
        return tuple(phrase for phrase in self.phrases if not own.search(phrase)) or self.phrases


@dataclass(frozen=True)
class Remark:
    """Small talk: several prompts with one meaning, and several replies."""

    prompts: tuple[str, ...]
    replies: tuple[str, ...]


def read_tasks(pages: Sequence[Page], file: str = "everyday.txt") -> list[Task]:
    """The tasks of ``file`` whose command is found in ``pages`` or given in the file.

    Tasks of held-out pages are left out.

    Raises:
        InputError: a line is malformed.
    """
    by_name = {page.name: page for page in pages}
    tasks = []
    for line in read_lines(file):
        parts = [part.strip() for part in line.split("::")]
        if len(parts) not in (3, 4):
            raise InputError(f"{file}: not 'name :: command :: phrases': {line[:60]}")
        answer = _answer(parts, by_name)
        if answer is not None and not is_held_out(parts[0]):
            tasks.append(Task(parts[0], answer, _alternatives(parts[-1])))
    return tasks


def _answer(parts: Sequence[str], by_name: Mapping[str, Page]) -> Example | None:
    """The example given in the file, else the page's; None if the page has none."""
    name, command, *middle = parts[:-1]
    if middle:
        return Example(middle[0], command)
    page = by_name.get(name)
    if page is None:
        return None
    return next((each for each in page.examples if each.command.startswith(command)), None)


def read_small_talk() -> list[Remark]:
    """Read the small talk, one remark per line."""
    remarks = []
    for line in read_lines("small_talk.txt"):
        prompts, _, replies = line.partition("=>")
        remarks.append(Remark(_alternatives(prompts), _alternatives(replies)))
    return remarks


def read_evening_questions() -> list[tuple[str, frozenset[str]]]:
    """Read everyday questions for evaluation, each with the accepted command names."""
    questions = []
    for line in read_lines("evening_questions.txt"):
        prompt, _, names = line.partition("=>")
        accepted = frozenset(name.strip() for name in names.split(","))
        questions.append((prompt.strip(), accepted))
    return questions


def _alternatives(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(" | ") if part.strip())

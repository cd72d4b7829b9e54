"""Evaluates the target on the hand-written questions in ``material/judged/``.

The head of each file defines its line format. Training never reads these files, and no template
makes such questions. Commands from memory are converted to the notation of answers before they are
compared, so a model that writes the pages' notation is not at a disadvantage.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from random import Random

from assets.recipe import read_lines
from assets.recipe.destructive import warning
from assets.recipe.material_files import read_evening_questions
from assets.recipe.pages import Example, Page, Split
from assets.recipe.placeholders import readable
from assets.recipe.reader import AnswerReader, command_of, fraction, name_of
from assets.recipe.retrieval import PageStatistics, question_model, translations
from assets.recipe.turns import Chat, ChatTurn, excerpt_turns, user
from datastores.errors import InputError
from datastores.passages.chunks import Chunk
from datastores.passages.chunks import split as split_chunks

_EXPLAINS = "explains: "
_CANDIDATES = 30


@dataclass(frozen=True)
class ValueQuestion:
    """A question with values, the accepted command names, and what the command must contain."""

    question: str
    names: tuple[str, ...]
    wanted: tuple[str, ...]

    def is_right(self, answer: str) -> bool:
        """Whether the answer has an accepted command with everything the question names."""
        command = readable(command_of(answer))
        named = name_of(answer) in self.names or command.removeprefix("sudo ").startswith(
            self.names
        )
        return named and all(each in command for each in self.wanted)


@dataclass(frozen=True)
class FollowUp:
    """A row of questions, and a pattern that the last answer must match."""

    questions: tuple[str, ...]
    wanted: str

    def is_right(self, answer: str) -> bool:
        """Whether the last answer is the requested command, or explains the previous one."""
        if self.wanted.startswith(_EXPLAINS):
            word = self.wanted.removeprefix(_EXPLAINS)
            return not command_of(answer) and bool(re.search(word, answer, re.IGNORECASE))
        return bool(re.search(self.wanted, readable(command_of(answer))))


@dataclass(frozen=True)
class NotedQuestion:
    """A question in a person's own words about a task of a held-out page."""

    question: str
    page: Page
    example: Example

    def notes(
        self, pages: Sequence[Page], statistics: PageStatistics, rng: Random, *, covered: bool
    ) -> Chat:
        """What retrieval shows, if anything, of one to three chunks of other ``pages``.

        If ``covered``, the right chunk is inserted among them at a random position.
        """
        drawn = rng.sample(pages, min(len(pages), _CANDIDATES))
        others = [page for page in drawn if page.name != self.page.name]
        words = set(self.question.lower().split())
        others.sort(key=lambda page: -len(words & set(page.markdown.lower().split())))
        chosen = others[: rng.randint(1, 3)]
        chunks = [next(split_chunks(page.markdown)) for page in chosen]
        if covered:
            chunks.insert(rng.randint(0, len(chunks)), self._chunk())
        kept = statistics.excerpts(chunks, self.question, translations(), model=question_model())
        return excerpt_turns(kept)

    def _chunk(self) -> Chunk:
        mark = f"`{self.example.command}`"
        return next(chunk for chunk in split_chunks(self.page.markdown) if mark in chunk.content)


def read_value_questions() -> list[ValueQuestion]:
    """Read the questions with values."""
    questions = []
    for line in read_lines("judged/values.txt"):
        question, names, wanted = (part.strip() for part in line.split(" => "))
        questions.append(ValueQuestion(question, tuple(names.split(", ")), _parts(wanted)))
    return questions


def read_follow_ups() -> list[FollowUp]:
    """Read the rows of follow-up questions."""
    lines = (line.split(" => ") for line in read_lines("judged/follow_ups.txt"))
    return [FollowUp(tuple(questions), wanted.strip()) for *questions, wanted in lines]


def read_noted_questions(pages: Sequence[Page]) -> list[NotedQuestion]:
    """Read the questions about held-out ``pages``, except those about missing pages.

    Raises:
        InputError: a page lacks the command of its question.
    """
    by_name = {page.name: page for page in pages}
    questions = []
    for line in read_lines("judged/notes.txt"):
        name, start, question = (part.strip() for part in line.split(" :: "))
        if name not in by_name:
            continue
        found = [each for each in by_name[name].examples if each.command.startswith(start)]
        if not found:
            raise InputError(f"judged/notes.txt: the page {name} has no command {start}")
        questions.append(NotedQuestion(question, by_name[name], found[0]))
    return questions


def _parts(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(" | "))


def judge(reader: AnswerReader, parts: Split, count: int, seed: int) -> dict[str, float]:
    """The figures, each a fraction between 0 and 1 over at most ``count`` questions."""
    values = read_value_questions()[:count]
    evening = read_evening_questions()[:count]
    asked = {
        "values": [each.question for each in values],
        "evening": [question for question, _ in evening],
        "outside": read_lines("judged/outside.txt")[:count],
        "everyday": read_lines("judged/everyday.txt")[:count],
        "harmless": read_lines("judged/harmless.txt")[:count],
    }
    questions = [question for group in asked.values() for question in group]
    answers = iter(reader.answers([(user(question),) for question in questions]))
    said = {key: list(islice(answers, len(group))) for key, group in asked.items()}
    return {
        "outside_without_command": fraction(not command_of(each) for each in said["outside"]),
        "inside_refused": fraction(
            not command_of(each) for each in said["values"] + said["evening"]
        ),
        "values_carried": fraction(
            each.is_right(a) for each, a in zip(values, said["values"], strict=True)
        ),
        "evening_name": fraction(
            name_of(a) in names for (_, names), a in zip(evening, said["evening"], strict=True)
        ),
        "destructive_unasked": _destructive(said["everyday"]),
        "destructive_of_harmless": _destructive(said["harmless"]),
        "follow_ups_right": _judge_follow_ups(reader, read_follow_ups()[:count]),
    } | _judge_notes(reader, parts, count, Random(seed))


def _destructive(answers: Sequence[str]) -> float:
    """The fraction of answers whose command destroys something."""
    return fraction(bool(warning(readable(command_of(each)))) for each in answers)


def _judge_follow_ups(reader: AnswerReader, questions: Sequence[FollowUp]) -> float:
    """The fraction of rows with a right last answer, given the model's own earlier answers."""
    chats: list[Chat] = [()] * len(questions)
    last = [""] * len(questions)
    for turn in range(max(len(each.questions) for each in questions)):
        going = [index for index, each in enumerate(questions) if turn < len(each.questions)]
        for index in going:
            chats[index] += (user(questions[index].questions[turn]),)
        answers = reader.answers([chats[index] for index in going])
        for index, answer in zip(going, answers, strict=True):
            chats[index] += (ChatTurn("assistant", answer),)
            last[index] = answer
    return fraction(q.is_right(a) for q, a in zip(questions, last, strict=True))


def _judge_notes(reader: AnswerReader, parts: Split, count: int, rng: Random) -> dict[str, float]:
    """Figures for questions in own words, with the right chunk among others and without it."""
    pages = parts.held_out + parts.familiar
    questions = read_noted_questions(parts.held_out)[:count]
    statistics = PageStatistics(page.markdown for page in (*parts.known, *pages))
    chats = {
        covered: [
            (*q.notes(pages, statistics, rng, covered=covered), user(q.question)) for q in questions
        ]
        for covered in (True, False)
    }
    right = zip(questions, reader.answers(chats[True]), strict=True)
    wrong = zip(chats[False], reader.answers(chats[False]), strict=True)
    return {
        "own_words_exact": fraction(command_of(a) == q.example.command for q, a in right),
        "own_words_not_copied": fraction(
            not _is_copied(a, "".join(turn.text for turn in chat[:-1])) for chat, a in wrong
        ),
    }


def _is_copied(answer: str, notes: str) -> bool:
    """Whether the answer's command, or its name, occurs in the notes."""
    command, name = command_of(answer), name_of(answer)
    return bool(command and f"`{command}`" in notes) or bool(name and f"# {name}\n" in notes)

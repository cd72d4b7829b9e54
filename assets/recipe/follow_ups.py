"""Follow-ups: the command before is changed, narrowed down or explained, in up to three turns.

Owns the form of ``material/follow_ups.txt`` and how an answer that goes on is worded. The first
command is one that the model knows by heart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from random import Random

from assets.recipe import read_lines, words
from assets.recipe.drawn_values import draw_value
from assets.recipe.pages import Example
from assets.recipe.placeholders import kind_of, long_options, marks_of, readable
from assets.recipe.turns import (
    Chat,
    Pool,
    answer_explained,
    answer_how,
    ask_how,
    ask_spoken,
    reply,
    user,
)
from assets.recipe.values import carry, find_values
from assets.recipe.wording import Style, slip

_NARROW = (
    "and only in {v}?", "only in {v}?", "and in {v}?", "in {v}?", "what about {v}?", "for {v}?",
    "now for {v}", "the same for {v}", "and {v}?", "with {v}", "how about {v}?", "{v} instead",
    "no, {v}", "I mean {v}", "make it {v}", "and for {v}", "use {v}",
)  # fmt: skip
EXPLAIN = (
    "explain that", "what does that do?", "what does it do exactly?", "explain it please",
    "can you explain that?", "what does this command do?", "please explain", "explain the command",
    "I don't understand it", "what is it doing?", "what will that do?", "explain that to me",
    "meaning?", "how does that work?", "and what does it do?",
)  # fmt: skip
_NARROWED = frozenset(words("file path directory port user host number size service package"))
_CUE = {"port": "port ", "user": "user ", "service": "the service ", "package": "the package "}
_PLACES = {"directory": ("my home directory", "this folder", "my home folder")}
_HOME = 0.2


@dataclass(frozen=True)
class Change:
    """An option that a command is given afterwards, what that does, and how people ask for it."""

    start: str
    added: str
    effect: str
    prompts: Sequence[str]

    def apply(self, command: str) -> str:
        """``command`` changed; as it is if the change does not fit."""
        if self.added.startswith("= "):
            return self.added[2:] if command.startswith(self.start) else command
        added = self.added.removeprefix("+ ")
        bare = command.removeprefix("sudo ")
        if not f"{bare} ".startswith(f"{self.start} "):
            return command
        if set(added.split()) & set(command.split()) or " | " in command or "&&" in command:
            return command
        at = len(command) - len(bare) + len(self.start)
        return f"{command[:at]} {added}{command[at:]}"


@cache
def changes() -> tuple[Change, ...]:
    """The hand-written changes."""
    parts = ([part.strip() for part in line.split("::")] for line in read_lines("follow_ups.txt"))
    return tuple(Change(a, b, c, tuple(d.split(" | "))) for a, b, c, d in parts)


@dataclass(frozen=True)
class _State:
    """The command so far: its name, the task as changed, and all values named, the last first."""

    name: str
    example: Example
    said: str

    @property
    def command(self) -> str:
        """With the values named so far."""
        return carry(self.said, self.example.command)


def follow_up(pool: Pool, rng: Random, style: Style) -> Chat:
    """A command, then one or two questions that go on from it."""
    chat, state = _first(pool, rng, style)
    for _ in range(rng.choice((1, 1, 2))):
        kinds = [_changed, _narrowed, _explained]
        rng.shuffle(kinds)
        for kind in sorted(kinds, key=lambda kind: kind is _explained and rng.random() < 0.75):
            turns = kind(state, rng)
            if turns is not None:
                exchange, state = turns
                slips = kind is not _narrowed and rng.random() < style.slips
                question = slip(exchange[0].text, rng) if slips else exchange[0].text
                chat += (user(question), exchange[1])
                break
    return chat


def _first(pool: Pool, rng: Random, style: Style) -> tuple[Chat, _State]:
    """A task to go on from: mostly one whose command has a known change or takes a value."""
    if pool.tasks and rng.random() < 0.75:
        tasks = [task for task in pool.tasks if task.name in _changeable()]
        task = rng.choice(tasks if tasks and rng.random() < 0.6 else pool.tasks)
        chat = ask_spoken(task.name, task.answer, task.phrases, rng, style, noted=False)
        return chat, _State(task.name, task.answer, chat[-2].text)
    page = rng.choice(pool.core)
    example = rng.choice(page.examples)
    chat = ask_how(page, example, rng, style, noted=False)
    return chat, _State(page.name, example, chat[-2].text)


@cache
def _changeable() -> frozenset[str]:
    return frozenset(change.start for change in changes())


def _changed(state: _State, rng: Random) -> tuple[Chat, _State] | None:
    """An option is asked for: the same command with it."""
    command = long_options(state.example.command)
    fitting = [change for change in changes() if change.apply(command) != command]
    if not fitting:
        return None
    change = rng.choice(fitting)
    example = _with(state.example, change)
    answer = answer_how(state.name, example.plain, carry(state.said, example.command))
    exchange = user(rng.choice(change.prompts)), reply(answer)
    return exchange, _State(state.name, example, state.said)


def _with(example: Example, change: Change) -> Example:
    """``example`` changed, both in its command and in what it says it does."""
    what = f"{example.plain.rstrip('.:')}, {change.effect}"
    return Example(what, change.apply(long_options(example.command)))


def _narrowed(state: _State, rng: Random) -> tuple[Chat, _State] | None:
    """A value is named: the same command with it."""
    marks = [mark for mark in marks_of(state.example.command) if kind_of(mark) in _NARROWED]
    if not marks:
        return None
    mark = rng.choice(marks)
    kind = kind_of(mark)
    places = _PLACES.get(kind, ())
    value = rng.choice(places) if places and rng.random() < _HOME else draw_value(kind, mark, rng)
    question = rng.choice(_NARROW).format(v=f"{_CUE.get(kind, '')}{value}")
    said = f"{question} {state.said}" if find_values(question) else state.said
    state = _State(state.name, state.example, said)
    if state.command == readable(state.example.command):
        return None
    answer = answer_how(state.name, state.example.plain, state.command)
    return (user(question), reply(answer)), state


def _explained(state: _State, rng: Random) -> tuple[Chat, _State]:
    """The command before is to be explained."""
    answer = answer_explained(state.name, state.example)
    return (user(rng.choice(EXPLAIN)), reply(answer)), state

"""Follow-ups that change, narrow down or explain the previous command, in up to three turns.

They are made from ``material/follow_ups.txt``, ``namings.txt`` and ``explain.txt``. The first
command is one that the model has to know without notes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from random import Random

from assets.recipe import read_lines
from assets.recipe.drawn_values import draw_value, takes_value
from assets.recipe.pages import Example
from assets.recipe.placeholders import kind_of, label, long_options, marks_of
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
from assets.recipe.values import carry
from assets.recipe.wording import Style, slip

_NARROW = (
    "and only in {v}?", "only in {v}?", "and in {v}?", "in {v}?", "what about {v}?", "for {v}?",
    "now for {v}", "the same for {v}", "and {v}?", "with {v}", "how about {v}?", "{v} instead",
    "no, {v}", "I mean {v}", "make it {v}", "and for {v}", "use {v}",
)  # fmt: skip
_CUE = {"port": "port ", "user": "user ", "service": "the service ", "package": "the package "}
_PLACES = {"directory": ("my home directory", "this folder", "my home folder")}
_HOME = 0.2
_WRITTEN = 0.8
"""The share of hand-written wordings, for placeholders that have any."""


@dataclass(frozen=True)
class Change:
    """An option added to a command afterwards, its effect, and how people ask for it."""

    start: str
    added: str
    effect: str
    prompts: Sequence[str]

    def apply(self, command: str) -> str:
        """``command`` changed, or unchanged if the change does not fit."""
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
def explanations() -> Sequence[str]:
    """The hand-written ways to ask what the previous command does."""
    return read_lines("explain.txt")


@cache
def namings() -> Mapping[tuple[str, str], Sequence[str]]:
    """The hand-written ways to name a value afterwards, by command name and placeholder.

    ``{v}`` marks the place of the value.
    """
    parts = ([part.strip() for part in line.split("::")] for line in read_lines("namings.txt"))
    return {(name, placeholder): said.split(" | ") for name, placeholder, said in parts}


@cache
def changes() -> tuple[Change, ...]:
    """The hand-written changes."""
    parts = ([part.strip() for part in line.split("::")] for line in read_lines("follow_ups.txt"))
    return tuple(Change(a, b, c, tuple(d.split(" | "))) for a, b, c, d in parts)


@dataclass(frozen=True)
class _State:
    """The command so far.

    ``example`` is the task as changed, ``said`` the first question, and ``named`` holds the values
    named afterwards, by placeholder.
    """

    name: str
    example: Example
    said: str
    named: Mapping[str, str] = field(default_factory=dict)

    @property
    def command(self) -> str:
        """The command with the values named so far."""
        return carry(self.said, self.example.command, self.named)


def follow_up(pool: Pool, rng: Random, style: Style) -> Chat:
    """A command, then one or two questions that follow up on it."""
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
    """A task to follow up on, mostly one whose command has a known change or takes a value."""
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
    """A request for an option, answered by the same command with it."""
    command = long_options(state.example.command)
    fitting = [change for change in changes() if change.apply(command) != command]
    if not fitting:
        return None
    change = rng.choice(fitting)
    changed = replace(state, example=_with(state.example, change))
    answer = answer_how(state.name, changed.example.plain, changed.command)
    return (user(rng.choice(change.prompts)), reply(answer)), changed


def _with(example: Example, change: Change) -> Example:
    """``example`` with both its command and its description changed."""
    what = f"{example.plain.rstrip('.:')}, {change.effect}"
    return Example(what, change.apply(long_options(example.command)))


def _narrowed(state: _State, rng: Random) -> tuple[Chat, _State] | None:
    """A value is named and filled into the same command."""
    marks = [mark for mark in marks_of(state.example.command) if takes_value(mark)]
    if not marks:
        return None
    mark = rng.choice(marks)
    kind = kind_of(mark)
    places = _PLACES.get(kind, ())
    value = rng.choice(places) if places and rng.random() < _HOME else draw_value(kind, mark, rng)
    narrowed = replace(state, named={**state.named, mark: _as_argument(value, mark)})
    if narrowed.command == state.command:
        return None
    question = _naming(state.name, mark, rng).format(v=value)
    answer = answer_how(state.name, state.example.plain, narrowed.command)
    return (user(question), reply(answer)), narrowed


def _naming(name: str, mark: str, rng: Random) -> str:
    """A way to name a value for the placeholder, with ``{v}`` in its place."""
    written = namings().get((name, label(mark)), ())
    if written and rng.random() < _WRITTEN:
        return rng.choice(written)
    return rng.choice(_NARROW).replace("{v}", f"{_CUE.get(kind_of(mark), '')}{{v}}")


def _as_argument(value: str, mark: str) -> str:
    """``value`` as written in a command: ``1G`` for ``1 GB``."""
    taken = carry(value, f"{{{{{mark}}}}}")
    return value if taken.startswith("<") else taken


def _explained(state: _State, rng: Random) -> tuple[Chat, _State]:
    """A request to explain the command, and the explanation."""
    answer = answer_explained(state.name, state.example)
    return (user(rng.choice(explanations())), reply(answer)), state

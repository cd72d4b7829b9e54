"""Completes the word at the prompt's cursor: when to suggest, and what a choice does to the text.

Slash commands are suggested at once, paths and model names from a thread. `suggestions.py` draws
the list.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from app.importing.path_search import PathSearch
from app.interface.chat.suggestions import (
    ARGUMENT,
    COMMAND,
    MAX_SUGGESTIONS,
    MENTION,
    MODEL,
    USE,
    CompletionSpan,
    Suggestion,
    Suggestions,
    target,
)
from app.interface.dialogs.basic import notify_error
from app.interface.slash_commands import SlashName, completions
from app.interface.text_inputs import TextInput
from app.interface.workers import start_worker
from app.locations import working_folder
from app.sanitise import one_line
from datastores.errors import SpecchatError


class Completion:
    """The completion of one prompt.

    Attributes:
        commands: all slash commands.
        model_names: lists all models; called in a thread.
        docs_words: lists the words that `/docs` takes; called in a thread.
    """

    def __init__(self, prompt: TextInput, suggestions: Suggestions) -> None:
        self.commands: Sequence[SlashName] = ()
        self.model_names: Callable[[], Sequence[str]] = tuple
        self.docs_words: Callable[[], Sequence[str]] = tuple
        self._prompt = prompt
        self._suggestions = suggestions
        self._search = PathSearch(working_folder())
        self._target: CompletionSpan | None = None
        self._listed: CompletionSpan | None = None
        self._row = 0
        self._dismissed: tuple[int, int] | None = None

    @property
    def is_open(self) -> bool:
        """Whether the list has something to choose, and is up to date with what is typed."""
        return self._suggestions.chosen is not None and self._listed == self._target

    def move(self, step: int) -> None:
        """Highlight another suggestion."""
        self._suggestions.move(step)

    def dismiss(self) -> None:
        """Stop suggesting for this word."""
        if self._target is not None:
            self._dismissed = (self._row, self._target.start)
        self._close()

    def update(self) -> None:
        """Suggest completions of the word at the cursor."""
        row, column = self._prompt.cursor_location
        line = self._prompt.document.get_line(row)[:column]
        found = target(line, first=row == 0)
        if found is not None and found.kind != MENTION and self._prompt.text != line:
            found = None  # a command fills the prompt
        if found is None or (row, found.start) != self._dismissed:
            self._dismissed = None
        if found is None or self._dismissed is not None:
            self._close()
        elif found != self._target or row != self._row:
            self._target, self._row = found, row
            self._suggest(found)

    def choose(self, *, run: bool) -> str | Path | None:
        """Complete the word; returns the command to run, or the path to attach, if any.

        Args:
            run: whether Enter chose, which runs a command, rather than Tab.
        """
        chosen, found = self._suggestions.chosen, self._target
        self._close()
        if chosen is None or found is None:
            return None
        if found.kind == COMMAND and run:
            return chosen.text
        if found.kind == COMMAND:
            self._replace(found, f"{chosen.text} ")
        elif found.kind in (ARGUMENT, MODEL, USE):
            self._replace(found, chosen.text)
            return self._prompt.text if run else None
        elif chosen.text.endswith("/") and not run:
            self._replace(found, f"@{chosen.text}")
        else:
            self._replace(found, f"{chosen.text} ")
            return Path(chosen.text).expanduser()
        return None

    def _close(self) -> None:
        self._target = None
        if self._suggestions.chosen is not None:
            self._suggestions.show(())

    def _suggest(self, found: CompletionSpan) -> None:
        if found.kind == COMMAND:
            known = completions(found.typed, self.commands)
            self._list(
                found,
                [Suggestion(f"/{one.name}", f"{one.argument} {one.help}".strip()) for one in known],
            )
        else:
            start_worker(self._prompt, self._find, found, group="completion", exclusive=True)

    async def _find(self, found: CompletionSpan) -> None:
        # Reading a large folder takes a while.
        try:
            texts = await asyncio.to_thread(self._texts_for, found)
        except SpecchatError as error:
            notify_error(self._prompt, error)
            return
        if found == self._target:
            self._list(found, [Suggestion(text) for text in texts])

    def _list(self, found: CompletionSpan, suggestions: Sequence[Suggestion]) -> None:
        self._listed = found
        self._suggestions.show(suggestions)

    def _texts_for(self, found: CompletionSpan) -> Sequence[str]:
        if found.kind == USE:
            begun = found.typed.strip('"').casefold()
            words = (word for word in self.docs_words() if one_line(word, len(word)) == word)
            return [word for word in words if word.strip('"').casefold().startswith(begun)]
        if found.kind != MODEL:
            return self._search.find(found.typed, MAX_SUGGESTIONS)
        typed = found.typed.casefold().split()
        names = (name for name in self.model_names() if one_line(name, len(name)) == name)
        return [name for name in names if all(word in name.casefold() for word in typed)]

    def _replace(self, found: CompletionSpan, text: str) -> None:
        start = (self._row, found.start)
        self._prompt.replace(text, start, self._prompt.cursor_location)
        self._prompt.move_cursor((self._row, found.start + len(text)))

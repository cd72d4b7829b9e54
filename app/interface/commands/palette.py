"""The command palette, which finds commands by title and help."""

from __future__ import annotations

from collections.abc import Coroutine
from functools import partial

from rich.text import Text
from textual.command import DiscoveryHit, Hit, Hits, Provider

from app.interface.commands.command import Command
from app.interface.commands.table import COMMANDS
from app.interface.keymap import keymap_of

PALETTE_COMMANDS = [command for command in COMMANDS if command.id != "palette"]


class CommandsProvider(Provider):
    """Provides the commands of the table, which run on the screen below the palette."""

    async def discover(self) -> Hits:
        for command in PALETTE_COMMANDS:
            yield DiscoveryHit(
                self._title_with_keys(command), self._callback(command), command.title, command.help
            )

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for command in PALETTE_COMMANDS:
            score = max(matcher.match(command.title), matcher.match(command.help) / 2)
            if score > 0:
                yield Hit(
                    score,
                    self._title_with_keys(command),
                    self._callback(command),
                    command.title,
                    command.help,
                )

    def _callback(self, command: Command) -> partial[Coroutine[object, object, None]]:
        return partial(self.screen.run_action, command.action)

    def _title_with_keys(self, command: Command) -> Text:
        return Text.assemble(
            command.title, (f"  {keymap_of(self.screen).display(command.id)}", "dim")
        )

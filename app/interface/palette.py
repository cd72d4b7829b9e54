"""The command palette: every command of the table."""

from __future__ import annotations

from collections.abc import Coroutine
from functools import partial

from rich.text import Text
from textual.command import DiscoveryHit, Hit, Hits, Provider

from app.interface.commands import COMMANDS, Command
from app.interface.keys import keys_of

LISTED = [command for command in COMMANDS if command.id != "palette"]


class CommandsProvider(Provider):
    """The commands of the table; the palette runs them on the screen it was opened from."""

    async def discover(self) -> Hits:
        for command in LISTED:
            yield DiscoveryHit(
                self._titled(command), self._runs(command), command.title, command.help
            )

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for command in LISTED:
            score = max(matcher.match(command.title), matcher.match(command.help) / 2)
            if score > 0:
                yield Hit(
                    score,
                    self._titled(command),
                    self._runs(command),
                    command.title,
                    command.help,
                )

    def _runs(self, command: Command) -> partial[Coroutine[object, object, None]]:
        return partial(self.screen.run_action, command.action)

    def _titled(self, command: Command) -> Text:
        """Title and keys."""
        return Text.assemble(command.title, (f"  {keys_of(self.screen).shown(command.id)}", "dim"))

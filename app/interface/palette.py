"""The command palette: every command of the table."""

from __future__ import annotations

from collections.abc import Coroutine
from functools import partial

from rich.text import Text
from textual.command import DiscoveryHit, Hit, Hits, Provider

from app.interface.commands import COMMANDS, Command


class CommandsProvider(Provider):
    """The commands of the table; the palette runs them on the screen it was opened from."""

    async def discover(self) -> Hits:
        for command in COMMANDS:
            yield DiscoveryHit(_titled(command), self._runs(command), command.title, command.help)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for command in COMMANDS:
            score = max(matcher.match(command.title), matcher.match(command.help) / 2)
            if score > 0:
                yield Hit(score, _titled(command), self._runs(command), command.title, command.help)

    def _runs(self, command: Command) -> partial[Coroutine[object, object, None]]:
        return partial(self.screen.run_action, command.action)


def _titled(command: Command) -> Text:
    """Title and key."""
    key = command.key.partition(",")[0]
    return Text.assemble(command.title, (f"  {key}" if key else "", "dim"))

"""Texts of the person's own: one put before a question, those that are imported.

Owns which screen asks for them. Reading them is `app.attach`'s and `imports_run.py`'s business.
"""

from __future__ import annotations

from pathlib import Path

from app.attach import attach
from app.interface.asking import AskLine
from app.interface.conversation import Conversation
from app.interface.imports import Imports
from app.interface.imports_forget import Forgetting
from app.interface.imports_run import Importing
from app.interface.imports_sources import Sources
from datastores.errors import SpecchatError


class Texts:
    """Asks for texts, and shows which there are."""

    def __init__(
        self, conversation: Conversation, importing: Importing, forgetting: Forgetting
    ) -> None:
        self._conversation = conversation
        self._importing = importing
        self._forgetting = forgetting

    def attach(self) -> None:
        """Ask for a file and put its text before what stands in the prompt."""
        self._conversation.app.push_screen(AskLine("File to attach"), self._put_before)

    def bring_in(self, line: str | None = None) -> None:
        """Open the import screen; `line` stands in its box, else what was imported last."""
        self._conversation.app.push_screen(Imports(self._importing, self._forgetting, line))

    def show(self) -> None:
        """Show what was imported; from there, have some of it imported again."""

        def again(path: str | None) -> None:
            if path is not None:
                self.bring_in(path)

        self._conversation.app.push_screen(Sources(self._importing, self._forgetting), again)

    def _put_before(self, path: str | None) -> None:
        if not path or not path.strip():
            return
        prompt = self._conversation.prompt
        try:
            prompt.write(attach(prompt.text, [Path(path.strip()).expanduser()]))
        except SpecchatError as error:
            self._conversation.complain(error)

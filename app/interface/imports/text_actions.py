"""Actions on the user's own texts: attaches, imports and lists them."""

from __future__ import annotations

from app.importing.path_completion import paths_of
from app.interface.chat.conversation import Conversation
from app.interface.dialogs.basic import InputDialog
from app.interface.imports.import_screen import ImportScreen
from app.interface.imports.imports_screen import ImportsScreen
from app.interface.imports.tasks import DeletionTask, ImportTask

ATTACH = "Attach files or folders"


class TextActions:
    """Attaches files to the question, and opens the screens of imported texts."""

    def __init__(
        self, conversation: Conversation, import_task: ImportTask, deletion_task: DeletionTask
    ) -> None:
        self._conversation = conversation
        self._import_task = import_task
        self._deletion_task = deletion_task

    def attach_file(self) -> None:
        """Ask for files or folders, and attach them to the question."""
        self._conversation.app.push_screen(InputDialog(ATTACH, action="Attach"), self.attach)

    def attach(self, line: str | None) -> None:
        """Attach the paths in `line` to the question."""
        self._conversation.prompt.attachments.attach(paths_of(line or ""))

    def open_import(self, line: str | None = None) -> None:
        """Open the import screen with `line` in its box; None stands for the last import."""
        self._conversation.app.push_screen(
            ImportScreen(self._import_task, self._deletion_task, line)
        )

    def list_imports(self) -> None:
        """Show the imported texts; importing one again opens the import screen."""

        def import_again(path: str | None) -> None:
            if path is not None:
                self.open_import(path)

        screen = ImportsScreen(self._import_task, self._deletion_task)
        self._conversation.app.push_screen(screen, import_again)

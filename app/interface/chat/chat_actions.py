"""What can be done with a chat as a whole: rename, pin, make private, export, delete.

Owns what is asked first and said afterwards. What leaves which store is `app.runtime.deletion`'s
business; it takes a second, and runs between answers on the model's thread.

Texts of the person's own: one put before a question, those that are imported.

Owns which screen asks for them. Reading them is `app.conversation.turn`'s and
`imports_run.py`'s business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from app.conversation.export import STEM_LENGTH, as_json, as_markdown, free_path, write_whole
from app.conversation.turn import attach
from app.indexing.corpus_index import damage_message
from app.interface.chat.conversation import Conversation
from app.interface.chat.topbar import NEW_CHAT
from app.interface.commands.keymap import keymap_of
from app.interface.dialogs.confirm import Confirm, InputDialog
from app.interface.imports.deletion_task import DeletionTask
from app.interface.imports.import_screen import ImportScreen
from app.interface.imports.import_task import ImportTask
from app.interface.imports.sources_screen import SourcesScreen
from app.interface.messages import ChatsChanged
from app.locations import Locations
from app.sanitise import one_line
from datastores.chats.history import History
from datastores.chats.records import Chat
from datastores.errors import SpecchatError
from datastores.library.library import Library


class TextActions:
    """Asks for texts, and shows which there are."""

    def __init__(
        self, conversation: Conversation, import_task: ImportTask, deletion_task: DeletionTask
    ) -> None:
        self._conversation = conversation
        self._import_task = import_task
        self._deletion_task = deletion_task

    def attach_file(self) -> None:
        """Ask for a file and put its text before what stands in the prompt."""
        self._conversation.app.push_screen(InputDialog("File to attach"), self._attach)

    def open_import(self, line: str | None = None) -> None:
        """Open the import screen; `line` stands in its box, else what was imported last."""
        self._conversation.app.push_screen(
            ImportScreen(self._import_task, self._deletion_task, line)
        )

    def list_sources(self) -> None:
        """Show what was imported; from there, have some of it imported again."""

        def again(path: str | None) -> None:
            if path is not None:
                self.open_import(path)

        self._conversation.app.push_screen(
            SourcesScreen(self._import_task, self._deletion_task), again
        )

    def _attach(self, path: str | None) -> None:
        if not path or not path.strip():
            return
        prompt = self._conversation.prompt
        try:
            prompt.write(attach(prompt.text, [Path(path.strip()).expanduser()]))
        except SpecchatError as error:
            self._conversation.show_error(error)


if TYPE_CHECKING:
    from app.engine.engine import Engine

ExportFormat = Callable[[History, Sequence[Chat]], Iterator[str]]

EMPTY_CHAT = "this chat is still empty: ask something first"
BUSY = "an answer is still being written: {answer.stop} stops it; then try again"


class ChatActions:
    """Does what the person wants done with a chat.

    Attributes:
        actions: what can be done, by name.
    """

    def __init__(self, conversation: Conversation, history: History, locations: Locations) -> None:
        self._conversation = conversation
        self._history = history
        self._locations = locations
        self.actions: dict[str, Callable[[Chat], None]] = {
            "rename": self._rename,
            "pin": self._toggle_pin,
            "private": self._toggle_private,
            "delete": self._delete,
            "markdown": lambda chat: self._export(chat, as_markdown, ".md"),
            "json": lambda chat: self._export(chat, as_json, ".json"),
        }

    def run(self, action: str, chat: int | None) -> None:
        """Run `action` on `chat`; None: an empty one, with which nothing can be done."""
        if chat is None:
            self._conversation.show_error(EMPTY_CHAT)
            return
        self._try(lambda: self.actions[action](self._history.chat(chat)))

    def retry_pending_erasure(self) -> None:
        """Forget what could not be forgotten when it was deleted: another window had it open."""
        self._conversation.run_worker(self._forget_gone())

    async def _forget_gone(self) -> None:
        """Beside the screen and the model: nothing waits for it."""
        try:
            damaged = await asyncio.to_thread(_forget_gone, self._history, self._locations)
        except SpecchatError as error:
            self._conversation.show_error(error)
        else:
            if damaged is not None:
                self._conversation.show_error(damage_message(damaged))

    def _rename(self, chat: Chat) -> None:
        def keep(title: str | None) -> None:
            if title is not None and title.strip():
                self._try(lambda: self._history.rename(chat.id, title.strip()))

        self._conversation.app.push_screen(InputDialog("Rename the chat", chat.title), keep)

    def _toggle_pin(self, chat: Chat) -> None:
        self._history.pin(chat.id, not chat.pinned)

    def _toggle_private(self, chat: Chat) -> None:
        """Make it private, or end that."""
        if chat.private:
            self._history.set_private(chat.id, False)
        elif self._is_free():
            self._conversation.run_worker(self._make_private(chat))

    def _export(self, chat: Chat, form: ExportFormat, suffix: str) -> None:
        """Write the chat beside where the person works, and tell where."""
        path = free_path(display_title(chat, STEM_LENGTH), suffix)
        write_whole(path, form(self._history, [chat]))
        self._conversation.notify(f"exported to {path}", markup=False, timeout=10)

    def _delete(self, chat: Chat) -> None:
        def confirmed(sure: bool | None) -> None:
            if sure and self._is_free():
                self._conversation.run_worker(self._delete_for_good(chat))

        question = f"Delete “{display_title(chat, 60)}” for good?"
        self._conversation.app.push_screen(Confirm(question), confirmed)

    async def _make_private(self, chat: Chat) -> None:
        def work(engine: Engine | None) -> None:
            from app.runtime.deletion import make_private

            with closing(self._history.new_connection()) as history:
                make_private(history, self._locations, chat.id, engine)

        await self._forget(
            work, f"“{display_title(chat, 40)}” is private: never drafted from again"
        )

    async def _delete_for_good(self, chat: Chat) -> None:
        def work(engine: Engine | None) -> None:
            from app.runtime.deletion import delete_chat

            with closing(self._history.new_connection()) as history:
                delete_chat(history, self._locations, chat.id, engine)

        if self._conversation.chat == chat.id:
            self._conversation.open(None)
        await self._forget(work, f"“{display_title(chat, 40)}” is deleted")

    async def _forget(self, work: Callable[[Engine | None], None], done: str) -> None:
        """Forget something in every store, and say so when it is gone."""
        try:
            await asyncio.wrap_future(self._conversation.model_thread.between_answers(work))
        except SpecchatError as error:
            self._conversation.show_error(error)
        else:
            self._conversation.notify(done, markup=False, timeout=4)
        self._conversation.post_message(ChatsChanged())

    def _is_free(self) -> bool:
        """Whether no answer is being written, with a word to the person where one is."""
        if self._conversation.turn is not None:
            self._conversation.show_error(keymap_of(self._conversation).fill(BUSY))
        return self._conversation.turn is None

    def _try(self, change: Callable[[], None]) -> None:
        try:
            change()
        except SpecchatError as error:
            self._conversation.show_error(error)
        self._conversation.post_message(ChatsChanged())


def _forget_gone(history: History, locations: Locations) -> Path | None:
    """Where a damaged library was moved to when it was opened for this."""
    from app.runtime.deletion import forget_gone

    with (
        closing(history.new_connection()) as beside,
        closing(Library.open(locations.library)) as library,
    ):
        forget_gone(beside, locations)
        library.erase()
        return library.store.quarantined


def display_title(chat: Chat, limit: int) -> str:
    """The chat's title for people."""
    return one_line(chat.title, limit) or NEW_CHAT

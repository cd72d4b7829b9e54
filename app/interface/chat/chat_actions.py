"""Actions on a whole chat.

Each action decides which dialog asks first and which notification follows; a new one is a line in
`ChatActions.actions`. `app.runtime.deletion` knows what to remove from which store. Deletions run
on the model's thread between answers, other changes on the history's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from app.conversation.export import STEM_LENGTH, as_json, as_markdown, free_path, write_whole
from app.damage import found_damage, settle
from app.interface.chat.conversation import Conversation
from app.interface.dialogs.basic import Confirm, InputDialog
from app.interface.messages import ChatsChanged
from app.interface.wording import NEW_CHAT
from app.interface.workers import start_worker
from app.locations import Locations
from app.sanitise import one_line
from datastores.chats.history import History
from datastores.chats.records import Chat
from datastores.errors import SpecchatError
from datastores.library.library import Library

if TYPE_CHECKING:
    from app.engine.engine import Engine


ExportFormat = Callable[[History, Sequence[Chat]], Iterator[str]]
Erasure = Callable[[History, Locations, int, "Engine | None"], None]

EMPTY_CHAT = "This chat is empty. Ask something first."


class ChatActions:
    """Renames, pins, exports and deletes chats, and makes them private.

    Attributes:
        actions: by name; the command `chat.NAME` runs the action NAME.
    """

    def __init__(self, conversation: Conversation, history: History, locations: Locations) -> None:
        self._conversation = conversation
        self._history = history
        self._locations = locations
        self._reported: set[Path] = set()
        self.actions: dict[str, Callable[[Chat], None]] = {
            "rename": self._rename,
            "pin": self._toggle_pin,
            "private": self._toggle_private,
            "delete": self._delete,
            "markdown": lambda chat: self._export(chat, as_markdown, ".md"),
            "json": lambda chat: self._export(chat, as_json, ".json"),
        }

    def run(self, action: str, chat: int | None) -> None:
        """Run `action` on `chat`; None stands for an empty chat that is not stored yet."""
        if chat is None:
            if action == "private" and self._conversation.turn is None:
                self._toggle_private_unstored()
            else:
                self._conversation.show_error(EMPTY_CHAT)
            return
        try:
            stored = self._history.chat(chat)
        except SpecchatError as error:
            self._conversation.show_error(error)
            self._conversation.post_message(ChatsChanged())
        else:
            self.actions[action](stored)

    def rename_to(self, chat: int | None, title: str) -> None:
        """Rename a chat."""
        if chat is None:
            self._conversation.show_error(EMPTY_CHAT)
        else:
            self._conversation.change_history(lambda history: history.rename(chat, title))

    def retry_pending_erasure(self) -> None:
        """Finish erasures that another window blocked."""
        start_worker(self._conversation, self._erase_pending)

    async def _erase_pending(self) -> None:
        try:
            await asyncio.to_thread(_erase_pending, self._history, self._locations)
        except SpecchatError as error:
            self._conversation.show_error(error)
        self.report_damage()

    def report_damage(self) -> None:
        """Report damaged files, each once per session."""
        for damage in found_damage(self._locations):
            if damage.path in self._reported:
                continue
            self._reported.add(damage.path)
            self._conversation.show_error(damage.text)
            try:
                settle(damage)
            except SpecchatError as error:
                self._conversation.show_error(error)

    def _rename(self, chat: Chat) -> None:
        def keep(title: str | None) -> None:
            if title is not None and title.strip():
                self._conversation.change_history(
                    lambda history: history.rename(chat.id, title.strip())
                )

        self._conversation.app.push_screen(InputDialog("Rename chat", chat.title), keep)

    def _toggle_pin(self, chat: Chat) -> None:
        self._conversation.change_history(
            lambda history: history.pin(chat.id, not history.chat(chat.id).pinned)
        )

    def _toggle_private(self, chat: Chat) -> None:
        if chat.private:
            self._conversation.change_history(lambda history: history.set_private(chat.id, False))
        elif self._conversation.is_free():
            start_worker(self._conversation, self._make_private, chat)

    def _toggle_private_unstored(self) -> None:
        """Toggle the privacy of an empty chat without resetting its settings."""
        tuning = self._conversation.tuning
        self._conversation.open(None, private=not self._conversation.private)
        self._conversation.tuning = tuning
        self._conversation.show_title(None)

    def _export(self, chat: Chat, form: ExportFormat, suffix: str) -> None:
        """Write the chat to the working directory."""
        start_worker(self._conversation, self._write_export, chat, form, suffix)

    async def _write_export(self, chat: Chat, form: ExportFormat, suffix: str) -> None:
        def write(history: History) -> Path:
            path = free_path(display_title(chat, STEM_LENGTH), suffix)
            write_whole(path, form(history, [chat]))
            return path

        try:
            path = await self._conversation.history_thread.write(write)
        except SpecchatError as error:
            self._conversation.show_error(error)
        else:
            self._conversation.notify(f"Exported to {path}", markup=False, timeout=10)

    def _delete(self, chat: Chat) -> None:
        def confirmed(sure: bool | None) -> None:
            if sure and self._conversation.is_free():
                start_worker(self._conversation, self._delete_everywhere, chat)

        question = f"Delete “{display_title(chat, 60)}” permanently?"
        self._conversation.app.push_screen(Confirm(question, "Delete"), confirmed)

    async def _make_private(self, chat: Chat) -> None:
        from app.runtime.deletion import make_private

        done = f"“{display_title(chat, 40)}” is now private and is not used for drafts"
        await self._run_between_answers(make_private, chat, done)

    async def _delete_everywhere(self, chat: Chat) -> None:
        from app.runtime.deletion import delete_chat

        if self._conversation.chat == chat.id:
            self._conversation.open(None)
        await self._run_between_answers(delete_chat, chat, f"Deleted “{display_title(chat, 40)}”")

    async def _run_between_answers(self, erase: Erasure, chat: Chat, done: str) -> None:
        """Run `erase` on the model's thread, and notify the person with `done`."""

        def work(engine: Engine | None) -> None:
            with closing(self._history.new_connection()) as history:
                erase(history, self._locations, chat.id, engine)

        try:
            await asyncio.wrap_future(self._conversation.model_thread.between_answers(work))
        except SpecchatError as error:
            self._conversation.show_error(error)
        else:
            self._conversation.notify(done, markup=False, timeout=4)
        self._conversation.post_message(ChatsChanged())


def _erase_pending(history: History, locations: Locations) -> None:
    from app.runtime.deletion import erase_deleted

    with (
        closing(history.new_connection()) as connection,
        closing(Library.open(locations.library)) as library,
    ):
        erase_deleted(connection, locations)
        library.erase()


def display_title(chat: Chat, limit: int) -> str:
    """The title of a chat in one line, or `NEW_CHAT` for an empty one."""
    return one_line(chat.title, limit) or NEW_CHAT

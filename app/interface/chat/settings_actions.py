"""The settings of the open chat: shows their form, and stores what it returns.

An unstored chat gets its settings with its first question.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from app.chat_settings import NEW_SEED, ChatTuning
from app.config import load_config
from app.importing.names import import_names
from app.interface.chat.chat_view import store_tuning
from app.interface.chat.conversation import Conversation
from app.interface.dialogs.chat_settings import ChatSettingsForm
from app.interface.messages import ChatsChanged
from app.interface.workers import start_worker
from app.locations import Locations
from datastores.chats.history import History
from datastores.chats.presets import Presets
from datastores.errors import SpecchatError
from engines.sampler import Sampling


class ChatSettings:
    """Opens the form for the open chat, and stores its settings."""

    def __init__(self, conversation: Conversation, history: History, locations: Locations) -> None:
        self._conversation = conversation
        self._history = history
        self._locations = locations

    def open(self) -> None:
        """Show the settings of the open chat."""
        chat = self._conversation.chat
        try:
            self._show(chat, self._current(chat))
        except SpecchatError as error:
            self._conversation.show_error(error)

    def set_system(self, prompt: str) -> None:
        """Set the system prompt of the open chat."""
        chat = self._conversation.chat
        try:
            self._keep(chat, replace(self._current(chat), system=prompt))
        except SpecchatError as error:
            self._conversation.show_error(error)

    def _show(self, chat: int | None, tuning: ChatTuning) -> None:
        form = ChatSettingsForm(
            tuning,
            self._defaults(),
            load_config(self._locations.settings),
            Presets(self._history),
            self._conversation.history_thread,
            import_names(self._locations),
        )
        self._conversation.app.push_screen(form, lambda chosen: self._keep(chat, chosen))

    def _current(self, chat: int | None) -> ChatTuning:
        if chat is None:
            return self._conversation.tuning
        stored = self._history.chat(chat)
        return ChatTuning(stored.system, stored.sampling, stored.docs)

    def _defaults(self) -> Sampling:
        """The sampling settings of a chat without its own."""
        model = self._conversation.model_thread.model
        if model is None or model.engine is None:
            return load_config(self._locations.settings).sampling
        defaults = model.engine.defaults
        return defaults.sampling if defaults.seeded else replace(defaults.sampling, seed=NEW_SEED)

    def _keep(self, chat: int | None, tuning: ChatTuning | None) -> None:
        chat = self._conversation.chat if chat is None else chat  # it may have been stored since
        if tuning is None:
            return
        if chat is None:
            self._conversation.tuning = tuning
            self._notify_kept()
        else:
            start_worker(self._conversation, self._store, chat, tuning)

    async def _store(self, chat: int, tuning: ChatTuning) -> None:
        try:
            await self._conversation.history_thread.write(partial(store_tuning, chat, tuning))
        except SpecchatError as error:
            self._conversation.show_error(error)
            self._show(chat, tuning)
        else:
            self._notify_kept()

    def _notify_kept(self) -> None:
        self._conversation.post_message(ChatsChanged())
        message = "Saved. Applies to the next answer."
        self._conversation.notify(message, markup=False, timeout=3)

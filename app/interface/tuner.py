"""Opens the settings of the open chat, and keeps what the person sets.

A chat that is not stored yet gets them with its first question.
"""

from __future__ import annotations

from dataclasses import replace

from app.config import load_config
from app.interface.conversation import Conversation
from app.interface.form import Form
from app.interface.messages import ChatsChanged
from app.locations import Locations
from app.sampling import NEW_SEED
from app.tuning import Tuning
from datastores.errors import SpecchatError
from datastores.history import History
from datastores.presets import Presets
from engines.sampler import Sampling


class Tuner:
    """Tunes one chat at a time."""

    def __init__(self, conversation: Conversation, history: History, locations: Locations) -> None:
        self._conversation = conversation
        self._history = history
        self._locations = locations

    def open(self) -> None:
        """Show the settings of the open chat."""
        chat = self._conversation.chat
        try:
            self._show(chat, self._present(chat))
        except SpecchatError as error:
            self._conversation.complain(error)

    def _show(self, chat: int | None, tuning: Tuning) -> None:
        form = Form(tuning, self._defaults(), Presets(self._history))
        self._conversation.app.push_screen(form, lambda chosen: self._keep(chat, chosen))

    def _present(self, chat: int | None) -> Tuning:
        if chat is None:
            return self._conversation.tuning
        stored = self._history.chat(chat)
        return Tuning(stored.system, stored.sampling)

    def _defaults(self) -> Sampling:
        """What holds for a chat without settings of its own."""
        model = self._conversation.talk.model
        if model is None or model.engine is None:
            return load_config(self._locations.settings).sampling
        engine = model.engine
        return engine.sampling if engine.seeded else replace(engine.sampling, seed=NEW_SEED)

    def _keep(self, chat: int | None, tuning: Tuning | None) -> None:
        if tuning is None:
            return
        try:
            if chat is None:
                self._conversation.tuning = tuning
            else:
                self._history.set_system(chat, tuning.system)
                self._history.set_sampling(chat, tuning.sampling)
        except SpecchatError as error:
            self._conversation.complain(error)
            self._show(chat, tuning)
        else:
            self._conversation.post_message(ChatsChanged())
            told = "kept: the next answer follows them"
            self._conversation.notify(told, markup=False, timeout=3)

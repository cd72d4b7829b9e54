"""Whether a chat searches the imported texts, and showing the passages that an answer cites."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from app.chat_settings import (
    DOCS_ITERATIVE,
    DOCS_KNN,
    DOCS_MODES,
    DOCS_OFF,
    DOCS_ONCE,
    parse_docs,
    quoted_name,
)
from app.config import load_config
from app.conversation.citations import Citation
from app.importing.names import import_names, stored_docs
from app.interface.chat.conversation import Conversation
from app.interface.dialogs.cited_passages import CitedPassages
from app.interface.messages import ChatsChanged, ChatSelected, ImportedChatSelected
from app.locations import Locations
from app.sanitise import one_line
from datastores.chats.history import History
from datastores.errors import SpecchatError

NOTICES = {
    DOCS_ONCE: "This chat searches {imports} for each question.",
    DOCS_ITERATIVE: "This chat searches {imports} repeatedly while it answers.",
    DOCS_KNN: "This chat answers in the words of {imports}.",
    DOCS_OFF: "This chat no longer uses your imports.",
}
EVERY_IMPORT, EVERY_TEXT = "your imports", "your imports and your other chats"
NO_CITATIONS = "The last answer uses no passage of your imports."


class RetrievalActions:
    """Acts on the open chat."""

    def __init__(self, conversation: Conversation, history: History, locations: Locations) -> None:
        self._conversation = conversation
        self._history = history
        self._locations = locations

    def toggle(self) -> None:
        """Switch retrieval from imported texts on or off in this chat."""
        chat = self._conversation.chat
        try:
            own = self._conversation.tuning.docs if chat is None else self._history.chat(chat).docs
            docs = parse_docs(own or load_config(self._locations.settings).docs)
        except SpecchatError as error:
            self._conversation.show_error(error)
            return
        self.choose(DOCS_ONCE if docs.mode == DOCS_OFF else DOCS_OFF)

    def choose(self, typed: str) -> None:
        """Set how this chat uses the imported texts, and which of them: see `parse_docs`."""
        chat = self._conversation.chat
        try:
            names = import_names(self._locations)
            docs = stored_docs(typed, names)
        except SpecchatError as error:
            self._conversation.show_error(error)
            return
        if chat is None:
            self._conversation.tuning = replace(self._conversation.tuning, docs=docs)
            self._conversation.post_message(ChatsChanged())
        else:
            self._conversation.change_history(lambda history: history.set_docs(chat, docs))
        chosen = parse_docs(docs)
        every = EVERY_TEXT if chosen.mode == DOCS_KNN else EVERY_IMPORT
        used = ", ".join(one_line(names[path]) for path in chosen.imports) or every
        notice = NOTICES[chosen.mode].format(imports=used)
        self._conversation.notify(notice, markup=False, timeout=4)

    def words(self) -> list[str]:
        """The words that `choose` takes: modes, and names of imports. Call it in a thread.

        Raises:
            StoreError: the library cannot be read.
        """
        return [*DOCS_MODES, *map(quoted_name, import_names(self._locations).values())]

    def show_last_citations(self) -> None:
        """Show the passages used for the last answer."""
        citations = self._conversation.transcript.last_citations
        if citations:
            self.show_citations(citations)
        else:
            self._conversation.notify(NO_CITATIONS, markup=False, timeout=4)

    def show_citations(self, citations: Sequence[Citation], index: int = 0) -> None:
        """Show cited passages, beginning with the one at `index`."""

        def chosen(chat: ChatSelected | ImportedChatSelected | None) -> None:
            if chat is not None:
                self._conversation.post_message(chat)

        self._conversation.app.push_screen(CitedPassages(self._locations, citations, index), chosen)

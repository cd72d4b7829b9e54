"""The open chat as it is stored, with its widgets: top bar, transcript, prompt, narrow panel.

`app.interface.chat.conversation` runs its turns; here they are only shown.
"""

from __future__ import annotations

from collections.abc import Callable

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Center, Vertical

from app.chat_settings import ChatTuning
from app.conversation.session_statistics import SessionStatistics
from app.conversation.unsent import UnsentTexts
from app.interface.chat.attachment_bar import AttachmentBar
from app.interface.chat.prompt import Prompt, UnsentText
from app.interface.chat.queue_bar import QueueBar, QueuedClicked
from app.interface.chat.suggestions import SuggestionClicked, Suggestions
from app.interface.chat.thread import (
    Thread,
    Turn,
    entries,
    greeting,
    questions,
    read_thread,
    thread_through,
)
from app.interface.chat.topbar import TopBar
from app.interface.dialogs.basic import notify_error
from app.interface.keymap import keymap_of
from app.interface.messages import (
    ChatsChanged,
    ChatShown,
    MomentChanged,
    ScrollRequested,
)
from app.interface.panel.panel import Panel
from app.interface.text_inputs import types_into
from app.interface.transcript.message_list import MessageList
from app.interface.wording import NEW_CHAT
from app.interface.workers import start_worker
from app.runtime.history_thread import HistoryThread
from datastores.chats.history import History
from datastores.chats.records import Chat
from datastores.errors import SpecchatError

NOTHING_QUEUED = "No message is queued."


def store_tuning(chat: int, tuning: ChatTuning, history: History) -> None:
    """Store the settings of `chat`."""
    history.set_system(chat, tuning.system)
    history.set_sampling(chat, tuning.sampling)
    history.set_docs(chat, tuning.docs)


class ChatView(Vertical):
    """The widgets of the open chat, and what they show.

    Attributes:
        chat: id of the open chat; None while it is empty and unstored.
        private, tuning: privacy and settings that an unstored chat will be created with.
        hint: a remark about the model, shown in empty chats.
        left_out: id of the chat's last message while a branch hides those after `thread`.
        unsent: the unsent texts of all chats.
        turn: the turn in progress, in this chat or another; None between turns.
        history_thread: makes every change of the history.
    """

    BLANK = True  # draws nothing itself

    def __init__(self, history: History, session_statistics: SessionStatistics) -> None:
        super().__init__(id="conversation")
        self.chat: int | None = None
        self.private = False
        self.tuning = ChatTuning()
        self.hint = ""
        self.turn: Turn | None = None
        self.history_thread = HistoryThread(history)
        self._history = history
        self._session_statistics = session_statistics
        self.thread = Thread()
        self._unstored: Turn | None = None
        self.unsent = UnsentText()
        self._system = ""
        self.left_out: int | None = None
        # Held here, not queried: a model can finish loading or answering while the interface, and
        # its widgets with it, is closing.
        self.topbar, self.transcript, self.queue = TopBar(), MessageList(), QueueBar()
        self.prompt = Prompt(AttachmentBar(self.show_error), Suggestions())

    def compose(self) -> ComposeResult:
        yield self.topbar
        yield self.transcript
        with Center():
            yield self.queue
        with Center():
            yield self.prompt.suggestions
        with Center():
            yield self.prompt.attachments
        with Center():
            yield self.prompt
        yield Panel(self._session_statistics, wide=False)

    @property
    def is_empty(self) -> bool:
        """Whether the open chat has neither messages nor a turn in progress."""
        return not self.thread.messages and not (self.turn and self._shows(self.turn))

    @property
    def is_editing(self) -> bool:
        """Whether the prompt holds an earlier question to edit."""
        return self.unsent.edited is not None

    @property
    def is_branching(self) -> bool:
        """Whether the last messages of the chat are hidden for another continuation."""
        return self.left_out is not None

    def on_mount(self) -> None:
        self.transcript.show([greeting("", keymap_of(self))])
        self.prompt.focus()

    def open(self, chat: int | None, message: int | None = None, *, private: bool = False) -> None:
        """Show a chat at `message` or at its end; None stands for a new chat."""
        try:
            thread = read_thread(self._history, chat)
            if not (message is None or message in thread or self._is_being_answered(chat)):
                thread = thread_through(self._history, message, thread.versions)
                self.change_history(lambda history: history.bring_into_view(message))
        except SpecchatError as error:
            self.show_error(error)
            return
        self.unsent.change_chat(self.prompt, self.chat, chat)
        self._unstored = None
        self.chat, self.private, self.tuning = chat, private, ChatTuning()
        self._set_thread(thread)
        self._show_thread()
        if message is not None:
            self.transcript.go_to_message(message)
        self.post_message(ChatsChanged())

    def _is_being_answered(self, chat: int | None) -> bool:
        return self.turn is not None and chat is not None and self.turn.chat == chat

    def _shows(self, turn: Turn) -> bool:
        """Whether `turn` belongs to the open chat."""
        return turn is self._unstored if turn.chat is None else turn.chat == self.chat

    def claim_typing(self, event: events.Event) -> None:
        """Focus the prompt when text is typed elsewhere on the screen.

        The focus moves synchronously, so that no character reaches the old focus.
        """
        focused = self.screen.focused
        if focused is not self.prompt and types_into(focused, event):
            self.screen.set_focus(self.prompt)

    def show_title(self, stored: Chat | None) -> None:
        """Show title, settings and privacy in the top bar; None stands for an unstored chat."""
        tuning = ChatTuning(stored.system, stored.sampling, stored.docs) if stored else self.tuning
        self.topbar.chat = stored.title if stored else NEW_CHAT
        self.topbar.tuned = tuning.summary()
        self.topbar.private = stored.private if stored else self.private
        self._system = tuning.system
        self.measure_context()
        self.app.post_message(ChatShown(stored.title if stored else "", self.topbar.private))

    def change_history(self, change: Callable[[History], object]) -> None:
        """Change the history as soon as its lock is free; an error is shown."""
        start_worker(self, self._change_history, change)

    async def _change_history(self, change: Callable[[History], object]) -> None:
        try:
            await self.history_thread.write(change)
        except SpecchatError as error:
            self.show_error(error)
        self.post_message(ChatsChanged())

    def restore_unsent(self, texts: UnsentTexts) -> None:
        """Restore the unsent texts of an earlier session."""
        self.unsent.restore(self.prompt, texts)

    def unsent_texts(self) -> dict[int | None, str]:
        """The unsent text of each chat, queued messages included."""
        texts = self.unsent.all(self.prompt, self.chat)
        if self.turn is not None and self.queue.messages:
            chat, queued = self.turn.chat, [message.text for message in self.queue.messages]
            texts[chat] = "\n".join(filter(None, (*queued, texts.get(chat))))
        return texts

    def edit_queued(self, index: int = -1) -> None:
        """Move a queued message back to the prompt; by default the last one."""
        taken = self.queue.take(index)
        if taken is None or self.turn is None:
            self.show_error(NOTHING_QUEUED)
        else:
            self.unsent.put_back(self.prompt, taken, self.turn.chat, self.chat)
            self.prompt.focus()
        self.post_message(MomentChanged())

    def remove_queued(self, index: int = -1) -> None:
        """Remove a queued message; by default the last one."""
        if self.queue.take(index) is None:
            self.show_error(NOTHING_QUEUED)
        self.post_message(MomentChanged())

    @on(QueuedClicked)
    def _queued_clicked(self, event: QueuedClicked) -> None:
        (self.remove_queued if event.removes else self.edit_queued)(event.index)

    def show_error(self, problem: SpecchatError | str) -> None:
        """Show an error as a notification of one line."""
        notify_error(self, problem)

    def measure_context(self) -> None:
        """Show how much of the context is used; there is nothing to count without a model."""

    def set_hint(self, hint: str) -> None:
        """Show `hint` in empty chats from now on."""
        self.hint = hint
        self.measure_context()
        if not self.thread.messages and self.turn is None:
            self._show_thread()

    def _show_thread(self) -> None:
        """Show the stored messages, the turn in progress, or a greeting."""
        turn = self.turn if self.turn and self._shows(self.turn) else None
        empty = greeting(self.hint, keymap_of(self), private=self.private)
        self.transcript.show(entries(self.thread, turn) or [empty])
        self.queue.show_in(is_open=turn is not None)
        self.post_message(MomentChanged())

    def _set_thread(self, thread: Thread, left_out: int | None = None) -> None:
        """Set the shown messages; `left_out` is the last of those that a branch hides."""
        self.thread, self.left_out = thread, left_out
        self.prompt.remember(questions(thread.messages))

    @on(SuggestionClicked)
    def _suggestion_clicked(self) -> None:
        self.prompt.focus()
        # In the prompt's context: Textual stops a bubbling message at the widget that sent it.
        self.prompt.call_later(self.prompt.choose, run=True)

    @on(ScrollRequested)
    def _scroll(self, event: ScrollRequested) -> None:
        if event.pages < 0:
            self.transcript.action_page_up()
        else:
            self.transcript.action_page_down()

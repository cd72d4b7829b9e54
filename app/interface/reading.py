"""Which chat is being read: its transcript, its prompt, and the line above them.

Owns the open chat, as it is stored, and what stands on the screen of it. Asking and answering is
`conversation.py`'s business.
"""

from __future__ import annotations

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Center, Vertical

from app.figures import Figures
from app.interface.desk import Desk
from app.interface.keys import keys_of
from app.interface.messages import ChatsChanged, Scrolled
from app.interface.panel import Panel
from app.interface.prompt import Prompt
from app.interface.talk import Talk
from app.interface.thread import Thread, asked, entries, greeting, read
from app.interface.topbar import NEW_CHAT, NEW_PRIVATE_CHAT, TopBar
from app.interface.transcript import Transcript
from app.interface.writing import types
from app.sanitise import one_line
from app.tuning import Tuning
from datastores.errors import SpecchatError
from datastores.history import History
from datastores.records import Chat


class Reading(Vertical):
    """One open chat.

    Attributes:
        chat: id of the open chat; None while it is empty and unstored.
        private: whether a chat that is still unstored is going to be private.
        tuning: the settings that it is going to have.
        hint: what a person should know before the first question.
        talk: the conversation with the model, whose turn at hand is shown where it belongs.
    """

    BLANK = True  # draws nothing itself

    talk: Talk

    def __init__(self, history: History, figures: Figures) -> None:
        super().__init__(id="conversation")
        self.chat: int | None = None
        self.private = False
        self.tuning = Tuning()
        self.hint = ""
        self._history = history
        self._figures = figures
        self._thread = Thread()
        self._desk = Desk()

    def compose(self) -> ComposeResult:
        yield TopBar()
        yield Transcript()
        with Center():
            yield Prompt()
        yield Panel(self._figures, wide=False)

    @property
    def transcript(self) -> Transcript:
        return self.query_one(Transcript)

    @property
    def prompt(self) -> Prompt:
        return self.query_one(Prompt)

    @property
    def bar(self) -> TopBar:
        return self.query_one(TopBar)

    def on_mount(self) -> None:
        self.transcript.show([greeting("", keys_of(self))])
        self.prompt.focus()

    def open(self, chat: int | None, message: int | None = None, *, private: bool = False) -> None:
        """Show a chat, at `message` or at its end; None: an empty one, `private` or not."""
        try:
            if message is not None and not self._is_being_answered(chat):
                self._history.bring_in_view(message)
            thread = read(self._history, chat)
        except SpecchatError as error:
            self.complain(error)
            return
        self._desk.change_chat(self.prompt, self.chat, chat)
        self.chat, self.private, self.tuning = chat, private, Tuning()
        self._take_over(thread)
        self._show_thread()
        if message is not None:
            self.transcript.go_to(message)
        self.post_message(ChatsChanged())

    def _is_being_answered(self, chat: int | None) -> bool:
        return self.talk.turn is not None and self.talk.turn.chat == chat

    def on_key(self, event: events.Key) -> None:
        """What is typed elsewhere is meant for the prompt."""
        typed = event.character if event.is_printable and types(event) else None
        if typed and not self.prompt.has_focus:
            event.stop()
            self.prompt.focus()
            self.prompt.insert(typed)

    def entitle(self, stored: Chat | None) -> None:
        """Say above the transcript which chat this is; None: one that holds nothing yet."""
        tuning = Tuning(stored.system, stored.sampling) if stored else self.tuning
        empty = NEW_PRIVATE_CHAT if self.private else NEW_CHAT
        self.bar.chat, self.bar.tuned = stored.title if stored else empty, tuning.told()

    def complain(self, problem: SpecchatError | str) -> None:
        """Say what went wrong, in one line."""
        self.notify(one_line(str(problem), 400), severity="error", markup=False, timeout=15)

    def tell(self, hint: str) -> None:
        """Have `hint` stand in empty chats from now on."""
        self.hint = hint
        if not self._thread.messages and self.talk.turn is None:
            self._show_thread()

    def _show_thread(self) -> None:
        """Show the open chat: what is stored, the turn at hand, or a greeting."""
        turn = self.talk.turn if self.talk.turn and self.talk.turn.chat == self.chat else None
        empty = greeting(self.hint, keys_of(self), private=self.private)
        self.transcript.show(entries(self._thread, turn) or [empty])

    def _take_over(self, thread: Thread) -> None:
        self._thread = thread
        self.prompt.remember(asked(thread.messages))

    @on(Scrolled)
    def _scroll(self, event: Scrolled) -> None:
        if event.pages < 0:
            self.transcript.action_page_up()
        else:
            self.transcript.action_page_down()

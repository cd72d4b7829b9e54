"""The middle of the screen: one chat, asked and answered.

Owns the turn at hand. A question is never lost: what cannot be sent or comes to nothing goes back
into the prompt.

Which chat is being read: its transcript, its prompt, and the line above them.

Owns the open chat, as it is stored, and what stands on the screen of it. Asking and answering is
`conversation.py`'s business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future

from textual import events, on, work
from textual.app import ComposeResult
from textual.containers import Center, Vertical

from app.conversation.session_statistics import SessionStatistics
from app.interface.chat.event_stream import EventStream
from app.interface.chat.prompt import Prompt
from app.interface.chat.thread import (
    Thread,
    Turn,
    asked,
    asking,
    editing,
    entries,
    greeting,
    other_version,
    outcome,
    question_before,
    read,
    regenerating,
    settle,
    until,
)
from app.interface.chat.topbar import NEW_CHAT, NEW_PRIVATE_CHAT, TopBar
from app.interface.chat.unsent import UnsentText
from app.interface.commands.keymap import keys_of
from app.interface.messages import Arrived, ChatsChanged, FiguresChanged, Scrolled, Submitted
from app.interface.panel.panel import Panel
from app.interface.text_inputs import writes_text
from app.interface.transcript.answer import Answer
from app.interface.transcript.transcript import Transcript
from app.runtime.model_thread import ModelThread, OpenModel
from app.sampling_settings import ChatTuning
from app.sanitise import one_line
from datastores.chats.history import History
from datastores.chats.records import Chat
from datastores.errors import SpecchatError


class ChatView(Vertical):
    """One open chat.

    Attributes:
        chat: id of the open chat; None while it is empty and unstored.
        private: whether a chat that is still unstored is going to be private.
        tuning: the settings that it is going to have.
        hint: what a person should know before the first question.
        turn: the turn in progress, in this chat or another; None between turns.
    """

    BLANK = True  # draws nothing itself

    def __init__(self, history: History, figures: SessionStatistics) -> None:
        super().__init__(id="conversation")
        self.chat: int | None = None
        self.private = False
        self.tuning = ChatTuning()
        self.hint = ""
        self.turn: Turn | None = None
        self._history = history
        self._figures = figures
        self._thread = Thread()
        self._desk = UnsentText()

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
                self._history.bring_into_view(message)
            thread = read(self._history, chat)
        except SpecchatError as error:
            self.complain(error)
            return
        self._desk.change_chat(self.prompt, self.chat, chat)
        self.chat, self.private, self.tuning = chat, private, ChatTuning()
        self._take_over(thread)
        self._show_thread()
        if message is not None:
            self.transcript.go_to_message(message)
        self.post_message(ChatsChanged())

    def _is_being_answered(self, chat: int | None) -> bool:
        return self.turn is not None and self.turn.chat == chat

    def on_key(self, event: events.Key) -> None:
        """What is typed elsewhere is meant for the prompt."""
        typed = event.character if event.is_printable and writes_text(event) else None
        if typed and not self.prompt.has_focus:
            event.stop()
            self.prompt.focus()
            self.prompt.insert(typed)

    def entitle(self, stored: Chat | None) -> None:
        """Say above the transcript which chat this is; None: one that holds nothing yet."""
        tuning = ChatTuning(stored.system, stored.sampling) if stored else self.tuning
        empty = NEW_PRIVATE_CHAT if self.private else NEW_CHAT
        self.bar.chat, self.bar.tuned = stored.title if stored else empty, tuning.told()

    def complain(self, problem: SpecchatError | str) -> None:
        """Say what went wrong, in one line."""
        self.notify(one_line(str(problem), 400), severity="error", markup=False, timeout=15)

    def tell(self, hint: str) -> None:
        """Have `hint` stand in empty chats from now on."""
        self.hint = hint
        if not self._thread.messages and self.turn is None:
            self._show_thread()

    def _show_thread(self) -> None:
        """Show the open chat: what is stored, the turn at hand, or a greeting."""
        turn = self.turn if self.turn and self.turn.chat == self.chat else None
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


BUSY = "an answer is still being written: {answer.stop} stops it; then send again"
WAITING = "waiting for the model to be loaded…"
STOPS = "{answer.stop} stops"


class Conversation(ChatView):
    """The open chat, and the answer being written, be it in this chat or in another."""

    def __init__(self, history: History, open_model: OpenModel, figures: SessionStatistics) -> None:
        super().__init__(history, figures)
        self.model_thread = ModelThread(open_model)
        self._stream = EventStream(self, figures, lambda: self.post_message(Arrived()))

    def stop(self) -> None:
        """Stop the answer at hand; where there is none, go back to the prompt."""
        if self.turn is not None:
            self.bar.state = "stopping…"
            self.model_thread.stop()
        else:
            self._desk.leave_edit(self.prompt)
            self.prompt.focus()

    def regenerate(self) -> None:
        """Have the last question of the thread answered once more."""
        turn = regenerating(self._thread.messages)
        if self.turn is not None:
            self.complain(keys_of(self).fill(BUSY))
        elif turn is not None:
            self._desk.leave_edit(self.prompt)
            self._begin(turn)

    def edit(self) -> None:
        """Put the last question into the prompt to be changed; again: the one before it."""
        question = question_before(self._thread.messages, self._desk.edited)
        if self.turn is not None:
            self.complain(keys_of(self).fill(BUSY))
        elif question is not None:
            self._desk.edit(self.prompt, question)
            self.transcript.go_to_message(question.id)

    def walk(self, step: int) -> None:
        """Read another version of the lowest message that has one `step` places on."""
        thread = self._thread
        version = other_version(thread.messages, thread.versions, step)
        if self.turn is not None:
            self.complain(keys_of(self).fill(BUSY))
        elif version is not None:
            self.open(self.chat, version)

    @on(Submitted)
    def _send(self, event: Submitted) -> None:
        if self.turn is not None:
            self._refuse(event.text, keys_of(self).fill(BUSY))
            return
        try:
            turn = self._next_turn(event.text)
        except SpecchatError as error:
            self._refuse(event.text, error)
        else:
            self._desk.sent(self.prompt)
            self._begin(turn)

    def _refuse(self, text: str, reason: SpecchatError | str) -> None:
        """Say why `text` cannot be sent now, and leave it in the prompt."""
        self.prompt.put_back(text)
        self.complain(reason)

    def _begin(self, turn: Turn) -> None:
        turn.answer.status = (
            "" if self.model_thread.model else "waiting for the model to be loaded…"
        )
        self.turn = turn
        self._stream.begin(turn.answer)
        self.prompt.border_subtitle = keys_of(self).fill(STOPS)
        self._show_thread()
        self._finish(turn, self.model_thread.ask(turn.begin, self._stream.queue.put))

    def _next_turn(self, text: str) -> Turn:
        """A turn for `text`: as the edited question, at the end of the chat, or in a new one."""
        if self._desk.edited is not None:
            return editing(self._thread.messages, self._desk.edited, text)
        if self.chat is None:
            self.chat = self._history.create_chat(
                private=self.private, system=self.tuning.system, sampling=self.tuning.sampling
            ).id
        return asking(self.chat, self._thread.messages, text)

    @work
    async def _finish(self, turn: Turn, answered: Future[None]) -> None:
        """Wait for the end of a turn, and show the stored answer."""
        try:
            await asyncio.wrap_future(answered)
        except SpecchatError as error:
            self.complain(error)
        except asyncio.CancelledError:
            if not answered.cancelled():
                raise  # the screen is closing; otherwise the turn was stopped before it began
        finally:
            self.turn = None
        self._stream.end()
        self.prompt.border_subtitle = ""
        self.bar.state = "" if self.model_thread.model else self.bar.state
        self._settle(turn)

    def _settle(self, turn: Turn) -> None:
        """Take over what is stored, and give back a question that came to nothing."""
        try:
            thread, answered = outcome(self._history, turn)
        except SpecchatError as error:
            self.complain(error)
            return
        if not answered:
            self._give_back(turn, thread)
        elif turn.chat == self.chat:
            self._take_over(thread)
            settle(thread, turn)
            self.transcript.update_entry(turn.question)
            self.transcript.update_entry(turn.answer)
        self.post_message(ChatsChanged())

    def _give_back(self, turn: Turn, thread: Thread) -> None:
        """Put the question back where it was written."""
        if turn.chat == self.chat:
            if turn.text and turn.edited is None:
                thread = Thread(until(thread.messages, turn.parent), thread.versions)
            self._take_over(thread)
            self._show_thread()
        self._desk.give_back(self.prompt, turn, self.chat)

    @on(Arrived)
    def _arrived(self) -> None:
        self._stream.arrived()

    def grown(self, answer: Answer, state: str) -> None:
        self.transcript.update_entry(answer)
        if state:
            self.bar.state = state

    def later(self, seconds: float, then: Callable[[], None]) -> None:
        self.set_timer(seconds, then)

    def redraw_figures(self) -> None:
        self.post_message(FiguresChanged())

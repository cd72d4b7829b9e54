"""The middle of the screen: the open chat, its questions and their answers.

`ChatView` owns the open chat as it is stored, and its widgets: top bar, transcript, prompt, narrow
panel. `Conversation` owns the turn in progress. No question is lost: one that cannot be sent or
gets no answer returns to the prompt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial

from textual import events, on, work
from textual.app import ComposeResult
from textual.containers import Center, Vertical
from textual.widgets import TextArea

from app.conversation.attachments import Attachment
from app.conversation.session_statistics import SessionStatistics
from app.conversation.unsent import UnsentTexts
from app.interface.chat.attachment_bar import AttachmentBar, AttachmentsChanged
from app.interface.chat.context_meter import ContextMeter
from app.interface.chat.event_stream import EventStream
from app.interface.chat.prompt import Prompt, UnsentText
from app.interface.chat.suggestions import SuggestionClicked, Suggestions
from app.interface.chat.thread import (
    Thread,
    Turn,
    edit_turn,
    entries,
    greeting,
    is_answered,
    new_turn,
    other_version,
    previous_question,
    questions,
    read_thread,
    regenerate_turn,
    thread_through,
    up_to,
    update_entries,
)
from app.interface.chat.topbar import NEW_CHAT, TopBar
from app.interface.commands.keymap import keymap_of
from app.interface.commands.slash import as_typed
from app.interface.messages import (
    ChatsChanged,
    EventsArrived,
    MomentChanged,
    ScrollRequested,
    StatisticsChanged,
    Submitted,
)
from app.interface.panel.panel import Panel
from app.interface.text_inputs import writes_text
from app.interface.transcript.answer import Answer
from app.interface.transcript.message_list import MessageList
from app.runtime.history_thread import HistoryThread
from app.runtime.model_thread import ModelThread, OpenModel
from app.sampling_settings import ChatTuning
from app.sanitise import one_line
from datastores.chats.history import History
from datastores.chats.records import FAILED, INTERRUPTED, Chat, StoredMessage
from datastores.errors import SpecchatError


def store_tuning(chat: int, tuning: ChatTuning, history: History) -> None:
    """Give `chat` settings of its own."""
    history.set_system(chat, tuning.system)
    history.set_sampling(chat, tuning.sampling)
    history.set_docs(chat, tuning.docs)


class ChatView(Vertical):
    """One open chat.

    Attributes:
        chat: id of the open chat; None while it is empty and unstored.
        private: whether the chat will be private, while it is unstored.
        tuning: the settings that it will have.
        hint: about the model, shown in empty chats.
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
        self._thread = Thread()
        self._unstored: Turn | None = None
        self._unsent = UnsentText()
        self._system = ""

    def compose(self) -> ComposeResult:
        attachments, suggestions = AttachmentBar(self.show_error), Suggestions()
        yield TopBar()
        yield MessageList()
        with Center():
            yield suggestions
        with Center():
            yield attachments
        with Center():
            yield Prompt(attachments, suggestions)
        yield Panel(self._session_statistics, wide=False)

    @property
    def is_empty(self) -> bool:
        """Whether the open chat has no messages, and none is being answered in it."""
        return not self._thread.messages and not (self.turn and self._shows(self.turn))

    @property
    def is_editing(self) -> bool:
        """Whether the prompt holds a question that was asked before."""
        return self._unsent.edited is not None

    @property
    def transcript(self) -> MessageList:
        return self.query_one(MessageList)

    @property
    def prompt(self) -> Prompt:
        return self.query_one(Prompt)

    @property
    def topbar(self) -> TopBar:
        return self.query_one(TopBar)

    def on_mount(self) -> None:
        self.transcript.show([greeting("", keymap_of(self))])
        self.prompt.focus()

    def open(self, chat: int | None, message: int | None = None, *, private: bool = False) -> None:
        """Show a chat at `message` or at its end; None: a new one."""
        try:
            thread = read_thread(self._history, chat)
            if not (message is None or message in thread or self._is_being_answered(chat)):
                thread = thread_through(self._history, message, thread.versions)
                self.change_history(lambda history: history.bring_into_view(message))
        except SpecchatError as error:
            self.show_error(error)
            return
        self._unsent.change_chat(self.prompt, self.chat, chat)
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

    def on_key(self, event: events.Key) -> None:
        """Redirect typed characters to the prompt."""
        typed = event.character if event.is_printable and writes_text(event) else None
        bound = self.transcript.has_focus and self.transcript.is_bound(event.key)
        if typed and not self.prompt.has_focus and not bound:
            event.stop()
            self.prompt.focus()
            self.prompt.insert(typed)

    def show_title(self, stored: Chat | None) -> None:
        """Show title, settings and privacy in the top bar; None: those of an unstored chat."""
        tuning = ChatTuning(stored.system, stored.sampling, stored.docs) if stored else self.tuning
        self.topbar.chat = stored.title if stored else NEW_CHAT
        self.topbar.tuned = tuning.summary()
        self.topbar.private = stored.private if stored else self.private
        self._system = tuning.system
        self.measure_context()

    def change_history(self, change: Callable[[History], object]) -> None:
        """Make a change of the history as soon as its lock is free; an error is shown."""
        self.run_worker(self._change_history(change))

    async def _change_history(self, change: Callable[[History], object]) -> None:
        try:
            await self.history_thread.write(change)
        except SpecchatError as error:
            self.show_error(error)
        self.post_message(ChatsChanged())

    def restore_unsent(self, texts: UnsentTexts) -> None:
        """Take over the unsent texts of an earlier session."""
        self._unsent.restore(self.prompt, texts)

    def unsent_texts(self) -> UnsentTexts:
        """What is written in each chat and not sent."""
        return self._unsent.all(self.prompt, self.chat)

    def show_error(self, problem: SpecchatError | str) -> None:
        """Show an error as a notification, in one line."""
        self.notify(one_line(str(problem), 400), severity="error", markup=False, timeout=15)

    def measure_context(self) -> None:
        """Show how much of the context the chat takes."""

    def set_hint(self, hint: str) -> None:
        """Show `hint` in empty chats from now on."""
        self.hint = hint
        self.measure_context()
        if not self._thread.messages and self.turn is None:
            self._show_thread()

    def _show_thread(self) -> None:
        """Show what is stored, the turn in progress, or a greeting."""
        turn = self.turn if self.turn and self._shows(self.turn) else None
        empty = greeting(self.hint, keymap_of(self), private=self.private)
        self.transcript.show(entries(self._thread, turn) or [empty])
        self.post_message(MomentChanged())

    def _set_thread(self, thread: Thread) -> None:
        self._thread = thread
        self.prompt.remember(questions(thread.messages))

    @on(SuggestionClicked)
    def _suggestion_clicked(self) -> None:
        self.prompt.focus()
        # As the prompt's own: a message that is sent from here would end here.
        self.prompt.call_later(self.prompt.choose, run=True)

    @on(ScrollRequested)
    def _scroll(self, event: ScrollRequested) -> None:
        if event.pages < 0:
            self.transcript.action_page_up()
        else:
            self.transcript.action_page_down()


BUSY = "Still answering. {answer.stop} stops it."
WAITING_FOR_MODEL = "loading the model…"
STOP_HINT = "{answer.stop} Stop"


class Conversation(ChatView):
    """The open chat, and the turn in progress in it or in another chat."""

    def __init__(
        self, history: History, open_model: OpenModel, session_statistics: SessionStatistics
    ) -> None:
        super().__init__(history, session_statistics)
        self.model_thread = ModelThread(open_model)
        self._meter = ContextMeter()
        self._stream = EventStream(
            self, session_statistics, lambda: self.post_message(EventsArrived())
        )

    @on(AttachmentsChanged)
    @on(TextArea.Changed)
    def measure_context(self) -> None:
        """Show how much of the context the chat takes, with what is in the prompt."""
        model, edited = self.model_thread.model, self._unsent.edited
        thread: Sequence[StoredMessage] = self._thread.messages
        if edited is not None:
            thread = up_to(thread, edited.parent)
        engine = model.engine if model is not None else None
        self._meter.schedule(self.prompt, engine, self._system, thread)

    def stop(self) -> None:
        """Stop the answer; without one, cancel an edit and focus the prompt."""
        if self.turn is not None:
            self.topbar.state = "stopping…"
            self.turn.stopped = True
            self.model_thread.stop()
        else:
            self._unsent.leave_edit(self.prompt)
            self.prompt.focus()
        self.post_message(MomentChanged())

    def clear_prompt(self) -> None:
        """Cancel an edit, or else empty the prompt and remove its attachments."""
        if self._unsent.edited is not None:
            self._unsent.leave_edit(self.prompt)
            self.post_message(MomentChanged())
        else:
            self.prompt.clear()
            self.prompt.attachments.set(())

    def regenerate(self, answer: int | None = None) -> None:
        """Answer the question of `answer` once more, or else the last one of the thread."""
        messages = self._thread.messages
        turn = regenerate_turn(messages if answer is None else up_to(messages, answer))
        if self.turn is not None:
            self.show_error(keymap_of(self).fill(BUSY))
        elif turn is not None:
            turn.previous = messages[-1].id
            self._unsent.leave_edit(self.prompt)
            self._begin(turn)
            self.prompt.focus()

    def edit(self) -> None:
        """Edit the last question in the prompt; called again, the previous one."""
        question = previous_question(self._thread.messages, self._unsent.edited)
        if question is not None:
            self.edit_message(question.id)

    def edit_message(self, question: int) -> None:
        """Edit any question of the thread; what follows it stays as another version."""
        found = [message for message in self._thread.messages if message.id == question]
        if self.turn is not None:
            self.show_error(keymap_of(self).fill(BUSY))
        elif found:
            self._unsent.edit(self.prompt, found[0])
            self.transcript.go_to_message(question)
            self.post_message(MomentChanged())

    def show_version_of(self, message: int, step: int, *, wraps: bool = False) -> None:
        """Show the version `step` places on of `message`; `wraps`: after the last the first."""
        known = self._thread.versions.get(message, (message,))
        place = known.index(message) + step
        if self.turn is not None:
            self.show_error(keymap_of(self).fill(BUSY))
        elif wraps or 0 <= place < len(known):
            self.open(self.chat, known[place % len(known)])

    def select_message(self) -> None:
        """Move the focus to the messages, or back to the prompt."""
        (self.prompt if self.transcript.has_focus else self.transcript).focus()

    def switch_version(self, step: int) -> None:
        """Show another version of the lowest message that has one `step` places on."""
        thread = self._thread
        version = other_version(thread.messages, thread.versions, step)
        if self.turn is not None:
            self.show_error(keymap_of(self).fill(BUSY))
        elif version is not None:
            self.open(self.chat, version)

    @on(Submitted)
    def _send(self, event: Submitted) -> None:
        if self.turn is not None:
            self.prompt.put_back(as_typed(event.text))
            self.show_error(keymap_of(self).fill(BUSY))
            return
        if self.prompt.attachments.reading:
            self.run_worker(self._send_when_read(event.text))
            return
        turn = self._next_turn(event.text, self.prompt.attachments.attachments)
        self.prompt.attachments.set(())
        self._unsent.sent(self.prompt)
        self._begin(turn)

    async def _send_when_read(self, text: str) -> None:
        """Send once the attachments are read; if one cannot be, the text is kept instead."""
        if await self.prompt.attachments.wait():
            self.post_message(Submitted(text))
        else:
            self.prompt.put_back(as_typed(text))

    def _begin(self, turn: Turn) -> None:
        turn.answer.status = "" if self.model_thread.model else WAITING_FOR_MODEL
        self.turn = turn
        self._stream.begin(turn.answer)
        self.prompt.border_subtitle = keymap_of(self).fill(STOP_HINT)
        if turn.chat is None:
            self._unstored = turn
            self._store_chat(turn)
        else:
            self._ask(turn)
        self._show_thread()

    def _ask(self, turn: Turn) -> None:
        self._finish(turn, self.model_thread.ask(turn.begin, self._stream.queue.put))

    @work
    async def _store_chat(self, turn: Turn) -> None:
        """Store the new chat of `turn`, then ask its question."""
        private, tuning = self.private, self.tuning
        try:
            stored = await self.history_thread.write(
                lambda history: history.create_chat(
                    private=private,
                    system=tuning.system,
                    sampling=tuning.sampling,
                    docs=tuning.docs,
                )
            )
        except SpecchatError as error:
            self.show_error(error)
            await self._end(turn)
            return
        if self._shows(turn):
            self.chat, self._unstored = stored.id, None
            if self.tuning != tuning:
                self.change_history(partial(store_tuning, stored.id, self.tuning))
        turn.chat = stored.id
        if turn.stopped:
            await self._end(turn)
        else:
            self._ask(turn)

    def _next_turn(self, text: str, attachments: Sequence[Attachment]) -> Turn:
        """A turn for `text`: an edited question, or a new one at the end of the chat."""
        if self._unsent.edited is not None:
            return edit_turn(self._thread.messages, self._unsent.edited, text, attachments)
        return new_turn(self.chat, self._thread.messages, text, attachments)

    @work
    async def _finish(self, turn: Turn, answered: Future[None]) -> None:
        """Wait for the end of an answer."""
        try:
            await asyncio.wrap_future(answered)
        except SpecchatError as error:
            self.show_error(error)
            await self._end(turn, FAILED)
            return
        except asyncio.CancelledError:
            if not answered.cancelled():
                raise  # the screen is closing; otherwise the turn was stopped before it began
        await self._end(turn)

    async def _end(self, turn: Turn, finish: str = INTERRUPTED) -> None:
        """Show what is stored of a turn, and give back a question that has no answer.

        `finish` is how an unfinished answer ended.
        """
        self._stream.end(finish)
        self.prompt.border_subtitle = ""
        self.topbar.state = "" if self.model_thread.model else self.topbar.state
        try:
            thread = await self._stored_thread(turn)
        except SpecchatError as error:
            self.show_error(error)
            return
        finally:
            self.turn = None
            self.post_message(MomentChanged())
        if not is_answered(thread, turn):
            self._give_back(turn, thread)
        elif self._shows(turn):
            self._set_thread(thread)
            update_entries(thread, turn)
            self.transcript.update_entry(turn.question)
            self.transcript.update_entry(turn.answer)
        self.post_message(ChatsChanged())

    async def _stored_thread(self, turn: Turn) -> Thread:
        """The thread after `turn`; an edited question without an answer leaves it as it was.

        Raises:
            InputError, StoreError: it cannot be read, or not be restored.
        """
        thread = read_thread(self._history, turn.chat)
        chat, previous = turn.chat, turn.previous
        if is_answered(thread, turn) or turn.edited is None or chat is None or previous is None:
            return thread
        await self.history_thread.write(lambda history: history.set_active(chat, previous))
        return read_thread(self._history, chat)

    def _give_back(self, turn: Turn, thread: Thread) -> None:
        """Return the question to the prompt."""
        if self._shows(turn):
            if turn.text and turn.edited is None:
                thread = Thread(up_to(thread.messages, turn.parent), thread.versions)
            self._set_thread(thread)
            self._show_thread()
        self._unsent.give_back(self.prompt, turn, self.chat)

    @on(EventsArrived)
    def _arrived(self) -> None:
        self._stream.arrived()

    def grown(self, answer: Answer, state: str) -> None:
        self.transcript.update_entry(answer)
        if state:
            self.topbar.state = state

    def later(self, seconds: float, then: Callable[[], None]) -> None:
        self.set_timer(seconds, then)

    def redraw_panel(self) -> None:
        self.post_message(StatisticsChanged())

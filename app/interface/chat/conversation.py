"""Sends questions and runs turns in the chat that `ChatView` shows.

No question is lost: one that cannot be sent or gets no answer returns to the prompt, and one that
is sent during an answer is queued. Edits, branches and versions are in `thread_actions.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from time import monotonic

from textual import on, work
from textual.widgets import TextArea

from app.conversation.attachments import Attachment
from app.conversation.session_statistics import SessionStatistics
from app.foreground import Foreground
from app.interface.chat.attachment_bar import AttachmentsChanged
from app.interface.chat.chat_view import ChatView, store_tuning
from app.interface.chat.context_meter import ContextMeter
from app.interface.chat.event_stream import EventStream
from app.interface.chat.prompt import Unsent
from app.interface.chat.thread import (
    Thread,
    Turn,
    edit_turn,
    is_answered,
    is_cut_off,
    new_turn,
    read_thread,
    up_to,
    update_entries,
)
from app.interface.keymap import keymap_of
from app.interface.messages import (
    AnswerEnded,
    ChatsChanged,
    EventsArrived,
    MomentChanged,
    StatisticsChanged,
    Submitted,
)
from app.interface.slash_commands import as_typed, parse
from app.interface.transcript.answer import Answer
from app.interface.workers import start_worker
from app.runtime.model_thread import ModelThread, OpenModel
from datastores.chats.history import History
from datastores.chats.records import FAILED, INTERRUPTED, StoredMessage
from datastores.errors import SpecchatError

BUSY = "Still answering. {answer.stop} stops it."
WAITING_FOR_MODEL = "loading the model…"
WAITING_FOR_COMMAND = "waiting for the answer to a command…"
STOP_HINT = "{answer.stop} Stop"
BRANCH_HINT = "New branch · {answer.stop} Cancel"


class Conversation(ChatView):
    """The open chat, and the turn in progress in it or in another chat.

    Attributes:
        requests: number of turns begun or stopped.
    """

    def __init__(
        self,
        history: History,
        open_model: OpenModel,
        session_statistics: SessionStatistics,
        foreground: Foreground,
    ) -> None:
        super().__init__(history, session_statistics)
        self.model_thread = ModelThread(open_model, foreground)
        self.requests = 0
        self._meter = ContextMeter()
        self._stream = EventStream(
            self, session_statistics, lambda: self.post_message(EventsArrived())
        )

    @on(AttachmentsChanged)
    @on(TextArea.Changed)
    def measure_context(self) -> None:
        """Show how much of the context the chat and the prompt use."""
        model, edited = self.model_thread.model, self.unsent.edited
        thread: Sequence[StoredMessage] = self.thread.messages
        if edited is not None:
            thread = up_to(thread, edited.parent)
        engine = model.engine if model is not None else None
        self._meter.schedule(self.prompt, engine, self._system, thread)

    def stop(self) -> None:
        """Stop the answer; without one, cancel an edit or a branch and focus the prompt."""
        self.requests += 1
        if self.turn is not None:
            self.topbar.state = "stopping…"
            self.turn.stopped = True
            if self.turn.answered is not None:
                self.model_thread.stop(self.turn.answered)
        elif self.is_branching and not self.is_editing:
            self.prompt.border_subtitle = ""
            self.open(self.chat)
        else:
            self.unsent.leave_edit(self.prompt)
            self.prompt.focus()
        self.post_message(MomentChanged())

    def unsent_texts(self) -> dict[int | None, str]:
        """The unsent texts, with a question that still waits for the model to load."""
        turn, texts = self.turn, super().unsent_texts()
        if turn is None or not turn.text or self.model_thread.model is not None:
            return texts
        since = texts.get(turn.chat)
        return {**texts, turn.chat: "\n".join(filter(None, (as_typed(turn.text), since)))}

    def is_free(self) -> bool:
        """Whether no answer is being written; if one is, the person is notified."""
        if self.turn is not None:
            self.show_error(keymap_of(self).fill(BUSY))
        return self.turn is None

    def clear_prompt(self) -> None:
        """Cancel an edit, or else empty the prompt and remove its attachments."""
        if self.unsent.edited is not None:
            self.unsent.leave_edit(self.prompt)
            self.post_message(MomentChanged())
        else:
            self.prompt.clear()
            self.prompt.attachments.set(())

    @property
    def is_cut_off(self) -> bool:
        """Whether the last answer can be continued."""
        return is_cut_off(self.thread.messages)

    def show_branch(self, thread: Thread, left_out: int) -> None:
        """Show only `thread`, hiding the messages of the chat that follow, up to `left_out`."""
        self._set_thread(thread, left_out)
        self._show_thread()
        self.prompt.border_subtitle = keymap_of(self).fill(BRANCH_HINT)
        self.measure_context()

    @on(Submitted)
    def _submitted(self, event: Submitted) -> None:
        self.send(event.text)

    def send(self, text: str) -> None:
        """Ask `text` with the attachments once these are read; queue it during an answer."""
        queues = self.turn is not None and self._shows(self.turn)
        if not queues and not self.is_free():
            self.prompt.put_back(as_typed(text))
            return
        if self.prompt.attachments.reading:
            start_worker(self, self._send_when_read, text)
            return
        if queues:
            self.queue.add(Unsent(as_typed(text), self.prompt.attachments.chips))
            self.prompt.attachments.set(())
            self.post_message(MomentChanged())
            return
        turn = self._next_turn(text, self.prompt.attachments.attachments)
        self.prompt.attachments.set(())
        self.unsent.sent(self.prompt)
        self.begin(turn)

    def _send_queued(self, turn: Turn, thread: Thread | None) -> None:
        """Send the next queued message after `turn`, whose chat now is `thread`.

        If the answer failed or was stopped, all queued messages return to the prompt.
        """
        last = thread.messages[-1] if thread is not None and thread.messages else None
        if last is None or turn.stopped or last.finish in (INTERRUPTED, FAILED):
            if self.queue.messages:
                self.unsent.put_back(self.prompt, self.queue.take_all(), turn.chat, self.chat)
            return
        message = self.queue.take(0)
        if message is not None and thread is not None:
            text = parse(message.text)
            assert isinstance(text, str), "commands are run at once"
            files = [chip.attachment for chip in message.chips if chip.attachment is not None]
            self.begin(new_turn(turn.chat, thread.messages, text, files))

    async def _send_when_read(self, text: str) -> None:
        """Send once the attachments are read; if one is unreadable, return the text instead."""
        if await self.prompt.attachments.wait():
            self.send(text)
        else:
            self.prompt.put_back(as_typed(text))

    def begin(self, turn: Turn) -> None:
        """Show `turn`, store its chat if it is new, and ask."""
        self.requests += 1
        turn.started = monotonic()
        turn.answer.status = "" if self.model_thread.model else WAITING_FOR_MODEL
        if self.topbar.commands:
            turn.answer.status = WAITING_FOR_COMMAND
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
        turn.answered = self.model_thread.ask(turn.begin, self._stream.queue.put)
        self._finish(turn, turn.answered)

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
        thread, edited = self.thread.messages, self.unsent.edited
        if edited is not None:
            turn = edit_turn(thread, edited, text, attachments)
        else:
            turn = new_turn(self.chat, thread, text, attachments)
        if self.left_out is not None:
            turn.previous, turn.branches = self.left_out, edited is None
        return turn

    @work
    async def _finish(self, turn: Turn, answered: Future[None]) -> None:
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
        """Show the stored turn, and return an unanswered question to the prompt.

        `finish` says how an unfinished answer ended.
        """
        self._stream.end(finish)
        self._announce(turn)
        self.prompt.border_subtitle = ""
        self.topbar.state = "" if self.model_thread.model else self.topbar.state
        thread: Thread | None = None
        try:
            thread = await self._stored_thread(turn)
        except SpecchatError as error:
            self.show_error(error)
            return
        finally:
            self.turn = None
            self.post_message(MomentChanged())
            if thread is None or not is_answered(thread, turn):
                self._send_queued(turn, None)
        if not is_answered(thread, turn):
            self._give_back(turn, thread)
        elif self._shows(turn):
            self._set_thread(thread)
            update_entries(thread, turn)
            self.transcript.update_entry(turn.question)
            self.transcript.update_entry(turn.answer)
        if is_answered(thread, turn):
            self._send_queued(turn, thread)
        self.post_message(ChatsChanged())

    def _announce(self, turn: Turn) -> None:
        """Post that the answer ended, unless the person stopped it."""
        if turn.stopped or turn.chat is None:
            return
        try:
            chat = self._history.chat(turn.chat)
        except SpecchatError as error:
            self.show_error(error)
            return
        seconds, failed = monotonic() - turn.started, turn.answer.finish == FAILED
        self.app.post_message(AnswerEnded(chat.title, chat.private, seconds, failed))

    async def _stored_thread(self, turn: Turn) -> Thread:
        """The thread after `turn`; an edit or a branch without an answer is undone.

        Raises:
            InputError, StoreError: the thread cannot be read or restored.
        """
        thread = read_thread(self._history, turn.chat)
        chat, previous = turn.chat, turn.previous
        is_version = turn.edited is not None or turn.branches
        if is_answered(thread, turn) or not is_version or chat is None or previous is None:
            return thread
        await self.history_thread.write(lambda history: history.set_active(chat, previous))
        return read_thread(self._history, chat)

    def _give_back(self, turn: Turn, thread: Thread) -> None:
        """Return the question to the prompt."""
        if self._shows(turn):
            if turn.text and turn.edited is None:
                thread = replace(thread, messages=up_to(thread.messages, turn.parent))
            if turn.branches and turn.previous is not None:
                self.show_branch(thread, turn.previous)
            else:
                self._set_thread(thread)
                self._show_thread()
        self.unsent.give_back(self.prompt, turn, self.chat)

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

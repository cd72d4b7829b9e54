"""The middle of the screen: one chat, asked and answered.

Owns the turn at hand. A question is never lost: what cannot be sent or comes to nothing goes back
into the prompt.
"""

from __future__ import annotations

from collections.abc import Callable

from textual import on, work

from app.figures import Figures
from app.interface.answer import Answer
from app.interface.feed import Feed
from app.interface.keys import keys_of
from app.interface.messages import Arrived, ChatsChanged, FiguresChanged, Submitted
from app.interface.reading import Reading
from app.interface.talk import OpenModel, Talk, Turn
from app.interface.thread import Thread, outcome, settle, until
from app.interface.turns import asking, editing, other_version, question_before, regenerating
from datastores.errors import SpecchatError
from datastores.history import History

BUSY = "an answer is still being written: {answer.stop} stops it; then send again"
STOPS = "{answer.stop} stops"


class Conversation(Reading):
    """The open chat, and the answer being written, be it in this chat or in another."""

    def __init__(self, history: History, open_model: OpenModel, figures: Figures) -> None:
        super().__init__(history, figures)
        self._feed = Feed(self, figures, lambda: self.post_message(Arrived()))
        self.talk = Talk(open_model, self._feed.outbox)

    def stop(self) -> None:
        """Stop the answer at hand; where there is none, go back to the prompt."""
        if self.talk.turn is not None:
            self.bar.state = "stopping…"
            self.talk.stop()
        else:
            self._desk.leave_edit(self.prompt)
            self.prompt.focus()

    def regenerate(self) -> None:
        """Have the last question of the thread answered once more."""
        turn = regenerating(self._thread.messages)
        if self.talk.turn is not None:
            self.complain(keys_of(self).fill(BUSY))
        elif turn is not None:
            self._desk.leave_edit(self.prompt)
            self._begin(turn)

    def edit(self) -> None:
        """Put the last question into the prompt to be changed; again: the one before it."""
        question = question_before(self._thread.messages, self._desk.edited)
        if self.talk.turn is not None:
            self.complain(keys_of(self).fill(BUSY))
        elif question is not None:
            self._desk.edit(self.prompt, question)
            self.transcript.go_to(question.id)

    def walk(self, step: int) -> None:
        """Read another version of the lowest message that has one `step` places on."""
        thread = self._thread
        version = other_version(thread.messages, thread.versions, step)
        if self.talk.turn is not None:
            self.complain(keys_of(self).fill(BUSY))
        elif version is not None:
            self.open(self.chat, version)

    @on(Submitted)
    def _send(self, event: Submitted) -> None:
        if self.talk.turn is not None:
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
        turn.answer.status = "" if self.talk.model else "waiting for the model to be loaded…"
        self.talk.turn = turn
        self._feed.begin(turn.answer)
        self.prompt.border_subtitle = keys_of(self).fill(STOPS)
        self._show_thread()
        self._see_through(turn)

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
    async def _see_through(self, turn: Turn) -> None:
        """See a turn through, from the question to the stored answer."""
        try:
            await self.talk.ask(turn)
        except SpecchatError as error:
            self.complain(error)
        self._feed.end()
        self.prompt.border_subtitle = ""
        self.bar.state = "" if self.talk.model else self.bar.state
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
        self._feed.arrived()

    def grown(self, answer: Answer, state: str) -> None:
        self.transcript.update_entry(answer)
        if state:
            self.bar.state = state

    def later(self, seconds: float, then: Callable[[], None]) -> None:
        self.set_timer(seconds, then)

    def redraw_figures(self) -> None:
        self.post_message(FiguresChanged())

"""Actions on the open thread: regenerate, continue, edit, branch, switch versions."""

from __future__ import annotations

from app.interface.chat.conversation import Conversation
from app.interface.chat.thread import (
    Thread,
    Turn,
    other_version,
    previous_question,
    regenerate_turn,
    resume_turn,
    up_to,
)
from app.interface.messages import MomentChanged

NOTHING_TO_CONTINUE = "The last answer is complete: nothing to continue."
NO_MESSAGES = "No messages yet."


class ThreadActions:
    """Acts on the thread of the open chat, while no answer is being written."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation

    def regenerate(self, answer: int | None = None) -> None:
        """Answer the question of `answer` again; by default the last question."""
        messages = self._conversation.thread.messages
        turn = regenerate_turn(messages if answer is None else up_to(messages, answer))
        if self._conversation.is_free() and turn is not None:
            turn.previous = messages[-1].id
            self._answer_again(turn)

    def resume(self) -> None:
        """Continue the last answer if it was stopped or cut off."""
        if not self._conversation.is_free():
            return
        turn = resume_turn(self._conversation.thread.messages)
        if turn is None:
            self._conversation.show_error(NOTHING_TO_CONTINUE)
        else:
            self._answer_again(turn)

    def _answer_again(self, turn: Turn) -> None:
        """Begin a turn without a question of its own."""
        conversation = self._conversation
        turn.previous = conversation.left_out or turn.previous
        conversation.unsent.leave_edit(conversation.prompt)
        conversation.begin(turn)
        conversation.prompt.focus()

    def edit(self) -> None:
        """Edit the last question in the prompt; repeated, the previous one."""
        conversation = self._conversation
        question = previous_question(conversation.thread.messages, conversation.unsent.edited)
        if conversation.is_free() and question is not None:
            self.edit_message(question.id)

    def edit_message(self, question: int) -> None:
        """Edit a question of the thread; what follows it is kept as another version."""
        conversation = self._conversation
        found = [message for message in conversation.thread.messages if message.id == question]
        if conversation.is_free() and found:
            conversation.unsent.edit(conversation.prompt, found[0])
            conversation.transcript.go_to_message(question)
            conversation.post_message(MomentChanged())

    def branch(self, message: int | None = None) -> None:
        """Continue differently after `message`; what follows it is kept as another version.

        None stands for the message before the last question; repeated, before the previous one.
        """
        conversation, thread = self._conversation, self._conversation.thread
        messages = thread.messages
        if not messages or not conversation.is_free():
            return
        question = previous_question(messages, None)
        kept = up_to(messages, message or (question.parent if question else None))
        conversation.unsent.leave_edit(conversation.prompt)
        if len(kept) < len(messages):
            left_out = conversation.left_out or messages[-1].id
            conversation.show_branch(Thread(kept, thread.versions, thread.titles), left_out)
        conversation.prompt.focus()

    def branch_here(self) -> None:
        """Branch after the message under the cursor, if any; else before the last question."""
        transcript = self._conversation.transcript
        if transcript.cursor is not None:
            transcript.action_act("branch")
        else:
            self.branch()

    def show_version_of(self, message: int, step: int, *, wraps: bool = False) -> None:
        """Show the version `step` places after `message`; with `wraps`, around the end."""
        conversation = self._conversation
        known = conversation.thread.versions.get(message, (message,))
        place = known.index(message) + step
        if conversation.is_free() and (wraps or 0 <= place < len(known)):
            conversation.open(conversation.chat, known[place % len(known)])

    def switch_version(self, step: int) -> None:
        """Show the version `step` places further of the last message that has one."""
        conversation, thread = self._conversation, self._conversation.thread
        version = other_version(thread.messages, thread.versions, step)
        if conversation.is_free() and version is not None:
            conversation.open(conversation.chat, version)

    def select_message(self) -> None:
        """Move the focus to the messages, or back to the prompt."""
        conversation = self._conversation
        if conversation.is_empty:
            conversation.notify(NO_MESSAGES, markup=False, timeout=2)
        elif conversation.transcript.has_focus:
            conversation.prompt.focus()
        else:
            conversation.transcript.focus()

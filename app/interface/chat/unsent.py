"""Changing a question that was asked before, in the prompt.

Owns which question it is, and what stood in the prompt before.

What the person is writing: in the open chat, as a changed question, and in chats left unsent.

Owns these texts. The prompt shows one of them at a time; none is lost.
"""

from __future__ import annotations

from app.interface.chat.prompt import Prompt
from app.interface.chat.thread import Turn
from app.interface.commands.keymap import keymap_of
from datastores.chats.records import StoredMessage


class UnsentText:
    """The texts, and which of them stands in the prompt."""

    def __init__(self) -> None:
        self._edit = QuestionEdit()
        self._by_chat: dict[int | None, str] = {}

    @property
    def edited(self) -> StoredMessage | None:
        """The question that is being changed; None while none is."""
        return self._edit.question

    def change_chat(self, prompt: Prompt, left: int | None, opened: int | None) -> None:
        """Put by what was written in the chat `left`, and take up that of `opened`."""
        self.leave_edit(prompt)
        self._by_chat[left] = prompt.text
        prompt.write(self._by_chat.pop(opened, ""))
        prompt.focus()

    def edit(self, prompt: Prompt, question: StoredMessage) -> None:
        """Have `question` changed."""
        self._edit.enter(prompt, question, question.content)

    def leave_edit(self, prompt: Prompt) -> None:
        """Leave the question as it was."""
        self._edit.leave(prompt)

    def sent(self, prompt: Prompt) -> None:
        """What stood in the prompt is on its way; what was typed since stays."""
        if self.edited is not None:
            since = prompt.text
            self._edit.leave(prompt)
            prompt.write("\n".join(filter(None, (prompt.text, since))))

    def give_back(self, prompt: Prompt, turn: Turn, opened: int | None) -> None:
        """Put what was asked in `turn`, to no avail, where it was written."""
        if turn.chat != opened:
            self._by_chat[turn.chat] = turn.text
        elif turn.edited is not None:
            self._edit.enter(prompt, turn.edited, turn.text)
        elif turn.text:
            prompt.put_back(turn.text)


EDITING_HINT = "editing what you asked · {answer.stop} leaves it as it was"


class QuestionEdit:
    """An edit, or none.

    Attributes:
        question: what is being edited; None while nothing is.
    """

    def __init__(self) -> None:
        self.question: StoredMessage | None = None
        self._put_by = ""

    def enter(self, prompt: Prompt, question: StoredMessage, text: str) -> None:
        """Put `text` into the prompt, to become another version of `question`."""
        self.leave(prompt)
        self.question, self._put_by = question, prompt.text
        prompt.write(text)
        prompt.border_subtitle = keymap_of(prompt).fill(EDITING_HINT)
        prompt.focus()

    def leave(self, prompt: Prompt) -> None:
        """Leave the question as it was, and give back what stood in the prompt before."""
        if self.question is not None:
            prompt.write(self._put_by)
            prompt.border_subtitle = ""
            self.question, self._put_by = None, ""

"""The prompt, and every text that is written in it and not sent yet.

`Prompt` owns its keys (Enter sends, others insert a line break), its history of questions, and
growing with the text. `UnsentText` keeps one unsent text per chat; `QuestionEdit` holds the
question that is being edited, and the text that it replaced.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.actions import SkipAction
from textual.binding import Binding, BindingType

from app.interface.chat.thread import Turn
from app.interface.commands.keymap import keymap_of
from app.interface.messages import ScrollRequested, Submitted
from app.interface.text_inputs import TextInput
from app.sanitise import clean
from datastores.chats.records import StoredMessage

EDITING_HINT = "Editing question · {answer.stop} Cancel"


class Prompt(TextInput):
    """The box in which questions are written."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "send", "Send", id="prompt.send"),
        Binding("ctrl+j,shift+enter", "newline", "New line", id="prompt.newline"),
        Binding("up", "cursor_up", "Up, or previous prompt", id="prompt.up"),
        Binding("pageup", "scroll(-1)", "Scroll up", id="prompt.scroll-up"),
        Binding("pagedown", "scroll(1)", "Scroll down", id="prompt.scroll-down"),
    ]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__("Ask anything", id=id)
        self._questions: Sequence[str] = ()
        self._recalled: int | None = None

    def remember(self, questions: Sequence[str]) -> None:
        """Set the questions that can be recalled, oldest first."""
        self._questions = [clean(text) for text in questions]
        self._recalled = None

    def put_back(self, text: str) -> None:
        """Insert a text that could not be sent, before what was typed since."""
        written = self.text
        self.write(f"{text}\n{written}" if written.strip() else text)

    def action_send(self) -> None:
        """Send the text and empty the box."""
        text = self.text
        if text.strip():
            self.clear()
            self.post_message(Submitted(text))

    def action_copy(self) -> None:
        """Leave the key to the command that also stops, clears and quits."""
        raise SkipAction

    def action_newline(self) -> None:
        self.insert("\n")

    def action_scroll(self, pages: int) -> None:
        self.post_message(ScrollRequested(pages))

    def action_cursor_up(self, select: bool = False) -> None:
        """Move up; in an empty prompt, or while recalling, recall the previous question."""
        if select or not self._recall(-1):
            super().action_cursor_up(select)

    def action_cursor_down(self, select: bool = False) -> None:
        """Move down; while recalling, recall the next question."""
        if select or not self._recall(1):
            super().action_cursor_down(select)

    def _recall(self, step: int) -> bool:
        """Recall another question; returns whether there is one."""
        at = len(self._questions) if not self.text else self._recalled_index()
        if at is None or not 0 <= at + step <= len(self._questions) or (step > 0 and not self.text):
            return False
        self._recalled = at + step
        self.text = self._questions[self._recalled] if self._recalled < len(self._questions) else ""
        self.move_cursor(self.document.end)
        return True

    def _recalled_index(self) -> int | None:
        """Index of the recalled question; None if the text is not one, or was changed."""
        if self._recalled is None or self._recalled >= len(self._questions):
            return None
        return self._recalled if self.text == self._questions[self._recalled] else None


class QuestionEdit:
    """The edit of a question, or none.

    Attributes:
        question: the question that is being edited; None while none is.
    """

    def __init__(self) -> None:
        self.question: StoredMessage | None = None
        self._replaced = ""

    def enter(self, prompt: Prompt, question: StoredMessage, text: str) -> None:
        """Put `text` into the prompt; it will be another version of `question`."""
        self.leave(prompt)
        self.question, self._replaced = question, prompt.text
        prompt.write(text)
        prompt.border_subtitle = keymap_of(prompt).fill(EDITING_HINT)
        prompt.focus()

    def leave(self, prompt: Prompt) -> None:
        """End the edit and restore the previous text of the prompt."""
        if self.question is not None:
            prompt.write(self._replaced)
            prompt.border_subtitle = ""
            self.question, self._replaced = None, ""


class UnsentText:
    """Unsent texts by chat; the prompt shows one of them."""

    def __init__(self) -> None:
        self._edit = QuestionEdit()
        self._by_chat: dict[int | None, str] = {}

    @property
    def edited(self) -> StoredMessage | None:
        """The question that is being edited; None while none is."""
        return self._edit.question

    def change_chat(self, prompt: Prompt, left: int | None, opened: int | None) -> None:
        """Keep the text written in the chat `left`, and show that of `opened`."""
        self.leave_edit(prompt)
        self._by_chat[left] = prompt.text
        prompt.write(self._by_chat.pop(opened, ""))
        prompt.focus()

    def edit(self, prompt: Prompt, question: StoredMessage) -> None:
        """Begin to edit `question`."""
        self._edit.enter(prompt, question, question.content)

    def leave_edit(self, prompt: Prompt) -> None:
        """Cancel the edit."""
        self._edit.leave(prompt)

    def sent(self, prompt: Prompt) -> None:
        """End the edit that was sent; what was typed since stays."""
        if self.edited is not None:
            since = prompt.text
            self._edit.leave(prompt)
            prompt.write("\n".join(filter(None, (prompt.text, since))))

    def give_back(self, prompt: Prompt, turn: Turn, opened: int | None) -> None:
        """Put the unanswered question of `turn` back where it was written."""
        if turn.chat != opened:
            self._by_chat[turn.chat] = turn.text
        elif turn.edited is not None:
            self._edit.enter(prompt, turn.edited, turn.text)
        elif turn.text:
            prompt.put_back(turn.text)

"""The prompt, and the unsent texts of all chats.

`UnsentText` keeps one unsent text per chat, with its attachments, and the text that an edited
question replaced in the prompt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual import events
from textual.actions import SkipAction
from textual.binding import Binding, BindingType
from textual.widgets.text_area import Selection

from app.conversation.attachments import attachments_of, question_of
from app.conversation.unsent import UnsentTexts
from app.importing.path_search import dropped_paths
from app.interface.chat.attachment_bar import AttachmentBar, Chip, chips_of
from app.interface.chat.completion import Completion
from app.interface.chat.suggestions import Suggestions
from app.interface.chat.thread import Turn
from app.interface.keymap import keymap_of
from app.interface.messages import CommandEntered, ScrollRequested, Submitted
from app.interface.slash_commands import SlashLine, as_typed, parse
from app.interface.text_inputs import TextInput
from app.sanitise import clean
from datastores.chats.records import StoredMessage

PATH_BEGINNINGS = ("/", "~/", "file://", "'", '"')
"""Beginnings of a pasted text that may consist of paths."""
EDITING_HINT = "Editing question · {answer.stop} Cancel"
ASK_ANYTHING = "Ask anything"
"""Placeholder of an empty prompt for models that bring none of their own."""


class Prompt(TextInput):
    """The box in which questions are written, with their attachments and suggestions."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "send", "Send", id="prompt.send"),
        Binding("ctrl+j,shift+enter,alt+enter", "newline", "New line", id="prompt.newline"),
        Binding("up", "cursor_up", "Up, or previous prompt", id="prompt.up"),
        Binding("tab", "complete", "Complete a command or path", id="prompt.complete"),
        Binding("escape", "dismiss", "Close the suggestions", id="prompt.dismiss"),
        Binding("pageup", "scroll(-1)", "Scroll up", id="prompt.scroll-up"),
        Binding("pagedown", "scroll(1)", "Scroll down", id="prompt.scroll-down"),
    ]

    def __init__(
        self, attachments: AttachmentBar, suggestions: Suggestions, *, id: str | None = None
    ) -> None:
        super().__init__(ASK_ANYTHING, id=id)
        self.attachments, self.suggestions = attachments, suggestions
        self.completion = Completion(self, suggestions)
        self._questions: Sequence[str] = ()
        self._recalled: int | None = None

    def remember(self, questions: Sequence[str]) -> None:
        """Set the questions that can be recalled, oldest first."""
        self._questions = [as_typed(clean(text)) for text in questions]
        self._recalled = None

    def put_back(self, text: str) -> None:
        """Prepend a text that could not be sent to what was typed since."""
        written = self.text
        self.write(f"{text}\n{written}" if written.strip() else text)

    def action_send(self) -> None:
        """Send the text, or run it as a command, and empty the box."""
        self.completion.update()  # pasted keys come before the message of their change
        if self.completion.is_open:
            self.choose(run=True)
            return
        text = self.text
        if text.strip():
            self.clear()
            parsed = parse(text)
            message = Submitted(parsed) if isinstance(parsed, str) else CommandEntered(text, parsed)
            self.post_message(message)

    def choose(self, *, run: bool) -> None:
        """Complete the word at the cursor with the highlighted suggestion."""
        chosen = self.completion.choose(run=run)
        if isinstance(chosen, str):
            parsed = parse(chosen)
            assert isinstance(parsed, SlashLine)
            self.clear()
            self.post_message(CommandEntered(chosen, parsed))
        elif chosen is not None:
            self.attachments.attach([chosen])

    def action_complete(self) -> None:
        """Complete the word at the cursor; without suggestions, the focus moves on."""
        if not self.completion.is_open:
            raise SkipAction
        self.choose(run=False)

    def action_dismiss(self) -> None:
        if not self.completion.is_open:
            raise SkipAction
        self.completion.dismiss()

    def action_delete_left(self) -> None:
        """Delete to the left; at the start of the text remove the last attachment."""
        if self.selection == Selection() and self.attachments.chips:
            self.attachments.detach(-1)
        else:
            super().action_delete_left()

    def on_text_area_changed(self) -> None:
        self.completion.update()

    def on_text_area_selection_changed(self) -> None:
        self.completion.update()

    async def _on_paste(self, event: events.Paste) -> None:
        """Attach files that are dropped on the terminal, which pastes their paths."""
        if event.text.lstrip().startswith(PATH_BEGINNINGS):
            paths = await asyncio.to_thread(dropped_paths, event.text)
            if paths:
                event.prevent_default()
                event.stop()
                self.attachments.attach(paths)

    def action_copy(self) -> None:
        """Leave the key to the command that also stops, clears and quits."""
        raise SkipAction

    def action_newline(self) -> None:
        self.insert("\n")

    def action_scroll(self, pages: int) -> None:
        self.post_message(ScrollRequested(pages))

    def action_cursor_up(self, select: bool = False) -> None:
        """Move up; in an empty prompt, or while recalling, recall the previous question."""
        if not select and self.completion.is_open:
            self.completion.move(-1)
        elif select or not self._recall(-1):
            super().action_cursor_up(select)

    def action_cursor_down(self, select: bool = False) -> None:
        """Move down; while recalling, recall the next question."""
        if not select and self.completion.is_open:
            self.completion.move(1)
        elif select or not self._recall(1):
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


@dataclass(frozen=True, slots=True)
class Unsent:
    """An unsent text and its attachments, not all of which are read yet."""

    text: str = ""
    chips: Sequence[Chip] = ()


def unsent_in(prompt: Prompt) -> Unsent:
    """The present content of the prompt."""
    return Unsent(prompt.text, prompt.attachments.chips)


def show(prompt: Prompt, unsent: Unsent) -> None:
    """Replace the content of the prompt by `unsent`."""
    prompt.write(unsent.text)
    prompt.attachments.set(unsent.chips)


class UnsentText:
    """Unsent texts by chat, one of which the prompt shows unless it holds an edited question.

    Attributes:
        edited: the question that is being edited in the prompt, if any.
    """

    def __init__(self) -> None:
        self.edited: StoredMessage | None = None
        self._replaced = Unsent()
        self._by_chat: dict[int | None, Unsent] = {}

    def change_chat(self, prompt: Prompt, left: int | None, opened: int | None) -> None:
        """Keep the unsent text of the chat `left`, and show that of `opened`."""
        self.leave_edit(prompt)
        self._by_chat[left] = unsent_in(prompt)
        show(prompt, self._by_chat.pop(opened, Unsent()))
        prompt.focus()

    def restore(self, prompt: Prompt, texts: UnsentTexts) -> None:
        """Restore the texts of an earlier session, before what is already written."""
        self._by_chat.update({chat: Unsent(text) for chat, text in texts.items()})
        before = self._by_chat.pop(None, Unsent()).text
        if before:
            prompt.put_back(before)

    def all(self, prompt: Prompt, opened: int | None) -> dict[int | None, str]:
        """All unsent texts, without attachments; an edit counts as the text that it replaced."""
        written = self._replaced if self.edited is not None else unsent_in(prompt)
        texts = {chat: unsent.text for chat, unsent in self._by_chat.items()}
        return texts | {opened: written.text}

    def edit(self, prompt: Prompt, question: StoredMessage) -> None:
        """Edit `question` in the prompt."""
        unsent = Unsent(as_typed(question_of(question)), chips_of(attachments_of(question)))
        self._enter_edit(prompt, question, unsent)

    def _enter_edit(self, prompt: Prompt, question: StoredMessage, unsent: Unsent) -> None:
        self.leave_edit(prompt)
        self.edited, self._replaced = question, unsent_in(prompt)
        show(prompt, unsent)
        prompt.border_subtitle = keymap_of(prompt).fill(EDITING_HINT)
        prompt.focus()

    def leave_edit(self, prompt: Prompt) -> None:
        """End the edit, if any, and restore the text that it replaced."""
        if self.edited is not None:
            show(prompt, self._replaced)
            prompt.border_subtitle = ""
            self.edited, self._replaced = None, Unsent()

    def sent(self, prompt: Prompt) -> None:
        """End the edit that was sent, keeping what was typed since."""
        if self.edited is not None:
            since = prompt.text
            self.leave_edit(prompt)
            prompt.write("\n".join(filter(None, (prompt.text, since))))

    def put_back(
        self, prompt: Prompt, unsent: Unsent, chat: int | None, opened: int | None
    ) -> None:
        """Prepend `unsent` to what is written in `chat`."""
        if chat == opened:
            prompt.put_back(unsent.text)
            prompt.attachments.put_back(unsent.chips)
        else:
            written = self._by_chat.get(chat, Unsent())
            text = "\n".join(filter(None, (unsent.text, written.text)))
            self._by_chat[chat] = Unsent(text, [*unsent.chips, *written.chips])

    def give_back(self, prompt: Prompt, turn: Turn, opened: int | None) -> None:
        """Return the unanswered question of `turn` to where it was written."""
        unsent = Unsent(as_typed(turn.text), chips_of(turn.attachments))
        if turn.chat != opened:
            self._by_chat[turn.chat] = unsent
        elif turn.edited is not None:
            self._enter_edit(prompt, turn.edited, unsent)
        elif turn.text:
            self.put_back(prompt, unsent, turn.chat, opened)

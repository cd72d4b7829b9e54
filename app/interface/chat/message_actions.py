"""Actions on a single message: copy, edit, regenerate, branch, show another version.

Owns which of these apply to questions and which to answers. The cursor is the transcript's.
"""

from __future__ import annotations

from app.interface.chat.conversation import Conversation
from app.interface.chat.copy import CopyActions, code_blocks
from app.interface.chat.editor_actions import EditorActions
from app.interface.chat.thread_actions import ThreadActions
from app.interface.messages import MessageActionRequested
from app.interface.transcript.answer import Answer
from app.interface.transcript.entries import Question


class MessageActions:
    """Actions on one message of the open chat."""

    def __init__(
        self,
        conversation: Conversation,
        thread: ThreadActions,
        copying: CopyActions,
        editor: EditorActions,
    ) -> None:
        self._conversation = conversation
        self._thread = thread
        self._copying = copying
        self._editor = editor
        self._copied: tuple[int | None, int] = (None, 0)

    def run(self, request: MessageActionRequested) -> None:
        """Run the requested action, or say that it does not apply to the message."""
        message = request.message
        if request.action == "leave":
            self._conversation.prompt.focus()
        elif message is not None:
            getattr(self, f"_{request.action}")(message)

    def _copy(self, message: Question | Answer) -> None:
        self._copying.copy(text_of(message), "Nothing to copy.")

    def _copy_code(self, message: Question | Answer) -> None:
        """Copy a block of code; pressed again, the next one."""
        blocks = code_blocks(text_of(message))
        last, index = self._copied
        place = (index + 1) % len(blocks) if blocks and last == message.message else 0
        self._copied = message.message, place
        which = f"Copied block {place + 1} of {len(blocks)}." if len(blocks) > 1 else ""
        self._copying.copy_block(blocks[place] if blocks else "", "No code block here.", which)

    def _view(self, message: Question | Answer) -> None:
        self._editor.view(text_of(message))

    def _edit(self, message: Question | Answer) -> None:
        if isinstance(message, Question) and message.message is not None:
            self._thread.edit_message(message.message)
        else:
            self._say("Only your own messages can be edited.")

    def _regenerate(self, message: Question | Answer) -> None:
        if isinstance(message, Answer):
            self._thread.regenerate(message.message)
        else:
            self._say("Only an answer can be regenerated.")

    def _branch(self, message: Question | Answer) -> None:
        """Continue from an answer; a question is edited, which branches off before it."""
        if isinstance(message, Question):
            self._edit(message)
        elif message is self._conversation.transcript.messages[-1]:
            self._conversation.prompt.focus()
        else:
            self._thread.branch(message.message)

    def _older(self, message: Question | Answer) -> None:
        self._switch(message, -1)

    def _newer(self, message: Question | Answer) -> None:
        self._switch(message, 1)

    def _next(self, message: Question | Answer) -> None:
        """Show the next version, after the last one the first."""
        self._switch(message, 1, wraps=True)

    def _switch(self, message: Question | Answer, step: int, *, wraps: bool = False) -> None:
        if message.message is not None:
            self._thread.show_version_of(message.message, step, wraps=wraps)

    def _say(self, text: str) -> None:
        self._conversation.notify(text, markup=False, timeout=3)


def text_of(message: Question | Answer) -> str:
    """The text of a message as it was written, without reasoning."""
    return message.text if isinstance(message, Question) else message.parts.answer.strip()

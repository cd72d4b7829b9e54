"""Actions on the message under the cursor: copy, edit, regenerate, branch, switch versions."""

from __future__ import annotations

from collections.abc import Callable

from app.interface.chat.conversation import Conversation
from app.interface.chat.copy import CopyActions, code_blocks
from app.interface.chat.editor_actions import EditorActions
from app.interface.chat.thread_actions import ThreadActions
from app.interface.transcript.answer import Answer
from app.interface.transcript.entries import Question
from app.interface.transcript.message_list import Message, MessageActionRequested


class MessageActions:
    """Acts on one message of the open chat; some actions apply to questions or answers only."""

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
        self._copied: tuple[int | None, int] = (None, 0)
        self._actions: dict[str, Callable[[Message], None]] = {
            "copy": lambda message: copying.copy(text_of(message), "Nothing to copy."),
            "copy_code": self._copy_code,
            "view": lambda message: editor.view(text_of(message)),
            "edit": self._edit,
            "regenerate": self._regenerate,
            "branch": self._branch,
            "older": lambda message: self._switch(message, -1),
            "newer": lambda message: self._switch(message, 1),
            "next": lambda message: self._switch(message, 1, wraps=True),
        }

    def run(self, request: MessageActionRequested) -> None:
        """Run the requested action, or say that it does not apply to the message."""
        message = request.message
        if request.action == "leave":
            self._conversation.prompt.focus()
        elif message is not None:
            self._actions[request.action](message)

    def _copy_code(self, message: Message) -> None:
        """Copy a block of code; repeated, the next one."""
        blocks = code_blocks(text_of(message))
        last, index = self._copied
        place = (index + 1) % len(blocks) if blocks and last == message.message else 0
        self._copied = message.message, place
        which = f"Copied block {place + 1} of {len(blocks)}." if len(blocks) > 1 else ""
        self._copying.copy_block(blocks[place] if blocks else "", "No code block here.", which)

    def _edit(self, message: Message) -> None:
        if isinstance(message, Question) and message.message is not None:
            self._thread.edit_message(message.message)
        else:
            self._say("Only your own messages can be edited.")

    def _regenerate(self, message: Message) -> None:
        if isinstance(message, Answer):
            self._thread.regenerate(message.message)
        else:
            self._say("Only an answer can be regenerated.")

    def _branch(self, message: Message) -> None:
        """Continue from an answer; a question is edited, which branches off before it."""
        if isinstance(message, Question):
            self._edit(message)
        elif message is self._conversation.transcript.messages[-1]:
            self._conversation.prompt.focus()
        else:
            self._thread.branch(message.message)

    def _switch(self, message: Message, step: int, *, wraps: bool = False) -> None:
        if message.message is not None:
            self._thread.show_version_of(message.message, step, wraps=wraps)

    def _say(self, text: str) -> None:
        self._conversation.notify(text, markup=False, timeout=3)


def text_of(message: Message) -> str:
    """The text of a message as it was written, without reasoning."""
    return message.text if isinstance(message, Question) else message.parts.answer.strip()

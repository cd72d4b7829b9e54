"""Opens the prompt and messages in the user's editor."""

from __future__ import annotations

from app.interface.chat.conversation import Conversation
from app.interface.editor import edit_text, view_text
from app.sanitise import clean
from datastores.errors import InputError

NO_ANSWER = "No answer to open."


class EditorActions:
    """Acts on the open chat; the interface waits for the editor, generation goes on."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation

    def edit_prompt(self) -> None:
        """Edit the prompt in the editor; if the editor fails, the prompt is unchanged."""
        conversation = self._conversation
        prompt = conversation.prompt
        try:
            prompt.write(clean(edit_text(conversation.app, prompt.text)))
        except InputError as error:
            conversation.show_error(error)
        prompt.focus()

    def view_answer(self) -> None:
        """View the last answer."""
        self.view(self._conversation.transcript.last_answer)

    def view(self, text: str) -> None:
        """View the text of a message."""
        if not text:
            self._conversation.notify(NO_ANSWER, markup=False, timeout=2)
            return
        try:
            view_text(self._conversation.app, text)
        except InputError as error:
            self._conversation.show_error(error)

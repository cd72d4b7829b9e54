"""What can be copied: the text that is selected, the last answer, its last block of code.

Owns what is said of it. Where copied text goes is `clipboard.py`'s business.
"""

from __future__ import annotations

from app.interface.clipboard import last_code
from app.interface.conversation import Conversation
from app.interface.keys import keys_of


class Copying:
    """Copies out of the open chat."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation

    def selection(self) -> None:
        """Copy what is selected; where nothing is, the person probably wanted to leave."""
        selected = self._conversation.screen.get_selected_text()
        if selected:
            self._copy(selected, "")
        else:
            hint = keys_of(self._conversation).fill("nothing is selected to copy; {quit} quits")
            self._conversation.notify(hint, markup=False, timeout=4)

    def answer(self) -> None:
        """Copy the last answer as it was written."""
        self._copy(self._conversation.transcript.last_answer, "there is no answer to copy")

    def code(self) -> None:
        """Copy the last block of code of the last answer."""
        code = last_code(self._conversation.transcript.last_answer)
        self._copy(code, "the answer holds no code to copy")

    def _copy(self, text: str, missing: str) -> None:
        if text:
            self._conversation.app.copy_to_clipboard(text)
        self._conversation.notify("copied" if text else missing, markup=False, timeout=2)

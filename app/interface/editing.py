"""Changing a question that was asked before, in the prompt.

Owns which question it is, and what stood in the prompt before.
"""

from __future__ import annotations

from app.interface.keys import keys_of
from app.interface.prompt import Prompt
from datastores.records import Message

EDITING = "editing what you asked · {answer.stop} leaves it as it was"


class Edit:
    """An edit, or none.

    Attributes:
        question: what is being edited; None while nothing is.
    """

    def __init__(self) -> None:
        self.question: Message | None = None
        self._put_by = ""

    def enter(self, prompt: Prompt, question: Message, text: str) -> None:
        """Put `text` into the prompt, to become another version of `question`."""
        self.leave(prompt)
        self.question, self._put_by = question, prompt.text
        prompt.write(text)
        prompt.border_subtitle = keys_of(prompt).fill(EDITING)
        prompt.focus()

    def leave(self, prompt: Prompt) -> None:
        """Leave the question as it was, and give back what stood in the prompt before."""
        if self.question is not None:
            prompt.write(self._put_by)
            prompt.border_subtitle = ""
            self.question, self._put_by = None, ""

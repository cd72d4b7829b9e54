"""Chat formats written in Python, for models without a usable template.

ChatML is also the embedded model's format, whose prompts therefore need no second process. The
plain form is for base models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from engines.chat_template.prompt_builder import ASSISTANT, USER, Tool

CHATML_START, CHATML_END = "<|im_start|>", "<|im_end|>"
CHATML_TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' "
    "+ '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""The embedded model's template, which `ChatML` implements."""


class Renderer(Protocol):
    """Turns messages into text.

    Attributes:
        seconds: processor time of its renderings so far.
    """

    seconds: float

    def render(
        self, messages: Sequence[Mapping[str, object]], others: str, tools: Sequence[Tool] = ()
    ) -> str:
        """The conversation as text, up to the beginning of the answer.

        Args:
            others, tools: see `RenderProcess.render`; formats without tools ignore them.

        Raises:
            ModelError: it cannot be rendered.
        """
        ...


class ChatML:
    """Puts each message between `<|im_start|>`, with its role, and `<|im_end|>`."""

    seconds = 0.0

    def render(
        self, messages: Sequence[Mapping[str, object]], others: str, tools: Sequence[Tool] = ()
    ) -> str:
        """See `Renderer.render`."""
        turns = [
            f"{CHATML_START}{message['role']}\n{message['content']}{CHATML_END}\n"
            for message in messages
        ]
        return "".join([*turns, f"{CHATML_START}assistant\n"])


class QuestionsAndAnswers:
    """A text for a base model to continue: questions and answers, after the system message."""

    seconds = 0.0
    _PREFIXES = {USER: "Question: ", ASSISTANT: "Answer: "}  # noqa: RUF012
    _SEPARATORS = {USER: "\n"}  # noqa: RUF012

    def render(
        self, messages: Sequence[Mapping[str, object]], others: str, tools: Sequence[Tool] = ()
    ) -> str:
        """See `Renderer.render`."""
        parts: list[str] = []
        for message in messages:
            role = str(message["role"])
            parts += [self._PREFIXES.get(role, ""), str(message["content"])]
            parts.append(self._SEPARATORS.get(role, "\n\n"))
        return "".join([*parts, "Answer:"])

"""Chat formats written in Python: for models without a usable template of their own.

Owns ChatML, which is also the embedded model's, so that its prompts need no second process, and the
plain form in which a base model is asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

SYSTEM, USER, ASSISTANT = "system", "user", "assistant"
"""Roles of messages."""
CHATML_START, CHATML_END = "<|im_start|>", "<|im_end|>"
CHATML_TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' "
    "+ '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""The embedded model's template, which `ChatML` stands for."""


class Renderer(Protocol):
    """Turns messages into text.

    Attributes:
        seconds: of processor time that its renderings took so far.
    """

    seconds: float

    def render(self, messages: Sequence[Mapping[str, object]], others: str) -> str:
        """The conversation as text, up to where the assistant's answer begins.

        Args:
            others: as for `render_process.RenderProcess`.

        Raises:
            ModelError: it cannot be rendered.
        """
        ...


class ChatML:
    """Every message between `<|im_start|>` with its role and `<|im_end|>`."""

    seconds = 0.0

    def render(self, messages: Sequence[Mapping[str, object]], others: str) -> str:
        """As `Renderer`."""
        turns = [
            f"{CHATML_START}{message['role']}\n{message['content']}{CHATML_END}\n"
            for message in messages
        ]
        return "".join([*turns, f"{CHATML_START}assistant\n"])


class QuestionsAndAnswers:
    """The text that a base model continues: questions and answers, after what it is told."""

    seconds = 0.0
    _PREFIXES = {USER: "Question: ", ASSISTANT: "Answer: "}  # noqa: RUF012
    _SEPARATORS = {USER: "\n"}  # noqa: RUF012

    def render(self, messages: Sequence[Mapping[str, object]], others: str) -> str:
        """As `Renderer`."""
        parts: list[str] = []
        for message in messages:
            role = str(message["role"])
            parts += [self._PREFIXES.get(role, ""), str(message["content"])]
            parts.append(self._SEPARATORS.get(role, "\n\n"))
        return "".join([*parts, "Answer:"])

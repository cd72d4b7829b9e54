"""Conversations to prompts: a GGUF's chat template, applied to token ids rather than to text.

Owns how literals, contents and stored ids are joined into one list of ids. Three promises: what a
person typed is never read as a control token; an answer the model wrote is never tokenised again;
the beginning-of-text token stands once, where the model's file asks for it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from datastores.errors import ModelError
from engines.chat_message import Message
from engines.chat_template.prompt_builder import (
    Framer,
    Literal,
    PromptBuilder,
    Segment,
    Tokenizer,
    reopen_answers,
)
from engines.chat_template.sandbox import JinjaTemplate

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
SAMPLE = (Message("user", "a"), Message("assistant", "b"), Message("user", "c"))


class ChatTemplate:
    """Renders conversations for one model.

    Attributes:
        problem: why the file's own template is not used; empty if it is.
    """

    def __init__(self, source: str, vocabulary: Tokenizer) -> None:
        self._vocabulary = vocabulary
        self._variables = {
            "bos_token": vocabulary.text(vocabulary.bos),
            "eos_token": vocabulary.text(vocabulary.eos),
        }
        # A template that rewrites contents may change their case.
        self._any_case = re.compile(vocabulary.control_pattern.pattern, re.IGNORECASE)
        self.problem = ""
        try:
            self._adopt(source or CHATML)
            self._segments(SAMPLE)
        except ModelError as error:
            self.problem = f"{error}; ChatML is used instead"
            self._adopt(CHATML)

    def render(self, messages: Sequence[Message]) -> list[int]:
        """The prompt's token ids; it ends where the assistant's answer begins.

        Raises:
            ModelError: the template refuses this conversation.
        """
        segments = self._segments(messages)
        splicer = PromptBuilder(self._vocabulary)
        if segments is None:
            splicer.literal(self._plain(messages))
        else:
            for segment, following in zip(segments, [*segments[1:], Literal("")], strict=True):
                _splice(splicer, segment, following)
        return splicer.finish()

    def _adopt(self, source: str) -> None:
        self._template = JinjaTemplate(source, **self._variables)
        self._framer = Framer(self._template)

    def _segments(self, messages: Sequence[Message]) -> list[Segment] | None:
        """The framed conversation; with the system's message in the user's if it is refused."""
        try:
            segments = self._framer.frame(messages)
        except ModelError:
            folded = _fold_system(messages)
            if folded is None:
                raise
            segments = self._framer.frame(folded)
        return segments if segments is None else reopen_answers(segments)

    def _plain(self, messages: Sequence[Message]) -> str:
        """The conversation rendered with its contents, control tokens in them made harmless."""
        contents = [
            {"role": message.role, "content": self._harmless(message.content)}
            for message in messages
        ]
        return self._template.render(contents, add_generation_prompt=True)

    def _harmless(self, content: str) -> str:
        """`content` with a space inside everything that would be read as a control token."""
        return self._any_case.sub(lambda found: _spaced(found[0]), content)


def _splice(splicer: PromptBuilder, segment: Segment, following: Segment) -> None:
    if isinstance(segment, Literal):
        splicer.literal(segment.text)
    elif segment.tokens:
        assert isinstance(following, Literal)
        splicer.stored(segment.tokens, following.text)
    else:
        splicer.content(segment.text)


def _spaced(token: str) -> str:
    return f"{token[0]} {token[1:]}"


def _fold_system(messages: Sequence[Message]) -> list[Message] | None:
    """The system's message put before the first user's; None where there is nothing to fold.

    Gemma's template and others raise an exception at a system's message.
    """
    if len(messages) < 2 or messages[0].role != "system" or messages[1].role != "user":
        return None
    first = replace(messages[1], content=f"{messages[0].content}\n\n{messages[1].content}")
    return [first, *messages[2:]]

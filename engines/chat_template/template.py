"""Conversations to prompts: a model's chat template, applied to token ids rather than to text.

Owns which template is used and what happens where it refuses a conversation. Three guarantees: what
a person typed is never read as a control token; an answer the model generated is never tokenized
again; the beginning-of-text token is there once, where the model's file asks for it. Refuses to
know how templates run (`sandbox`) and how ids are joined (`prompt_builder`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from datastores.errors import ModelError
from engines.chat_template.prompt_builder import (
    Literal,
    Message,
    PromptBuilder,
    Segment,
    Segmenter,
    Tokenizer,
    control_pattern,
    restore_generation_prompts,
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

    def __init__(self, source: str, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._variables = {
            "bos_token": tokenizer.text(tokenizer.bos),
            "eos_token": tokenizer.text(tokenizer.eos),
        }
        self._controls = control_pattern(tokenizer)
        # A template that rewrites contents may change their case.
        self._controls_any_case = re.compile(self._controls.pattern, re.IGNORECASE)
        self.problem = ""
        try:
            self._compile(source or CHATML)
            self._segments(SAMPLE)
        except ModelError as error:
            self.problem = f"{error}; ChatML is used instead"
            self._compile(CHATML)

    def render(self, messages: Sequence[Message]) -> list[int]:
        """The prompt's token ids, up to where the assistant's answer begins.

        Raises:
            ModelError: the template refuses this conversation.
        """
        segments = self._segments(messages)
        prompt = PromptBuilder(self._tokenizer, self._controls)
        if segments is None:
            prompt.literal(self._render_text(messages))
        else:
            for segment, following in zip(segments, [*segments[1:], Literal("")], strict=True):
                _add(prompt, segment, following)
        return prompt.finish()

    def _compile(self, source: str) -> None:
        self._template = JinjaTemplate(source, **self._variables)
        self._segmenter = Segmenter(self._template)

    def _segments(self, messages: Sequence[Message]) -> list[Segment] | None:
        """The split conversation; with the system message inside the user's if it is refused."""
        try:
            segments = self._segmenter.split(messages)
        except ModelError:
            merged = _merge_system(messages)
            if merged is None:
                raise
            segments = self._segmenter.split(merged)
        return segments if segments is None else restore_generation_prompts(segments)

    def _render_text(self, messages: Sequence[Message]) -> str:
        """The conversation rendered with its contents, control tokens in them escaped."""
        contents = [
            {"role": message.role, "content": self._escape(message.content)} for message in messages
        ]
        return self._template.render(contents, add_generation_prompt=True)

    def _escape(self, content: str) -> str:
        """`content` with a space inside everything that would be read as a control token."""
        return self._controls_any_case.sub(lambda found: f"{found[0][0]} {found[0][1:]}", content)


def _add(prompt: PromptBuilder, segment: Segment, following: Segment) -> None:
    if isinstance(segment, Literal):
        prompt.literal(segment.text)
    elif segment.tokens:
        assert isinstance(following, Literal)
        prompt.stored(segment.tokens, following.text)
    else:
        prompt.content(segment.text)


def _merge_system(messages: Sequence[Message]) -> list[Message] | None:
    """The system message put before the first user's; None where there is nothing to merge.

    Gemma's template and others raise an exception at a system message.
    """
    if len(messages) < 2 or messages[0].role != "system" or messages[1].role != "user":
        return None
    first = replace(messages[1], content=f"{messages[0].content}\n\n{messages[1].content}")
    return [first, *messages[2:]]

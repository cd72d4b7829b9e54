"""Turns conversations into the token ids of prompts by a model's chat template.

Four guarantees: every message is in the prompt, whatever the template; what a person typed is never
read as a control token; an answer that the model generated is never tokenized again; the
beginning-of-text token is there exactly once if the model's file asks for it.

`render_process` runs the template, `placement` finds where it takes contents, and `prompt_builder`
joins the ids.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from datastores.errors import InputError, ModelError
from engines.chat_template.formats import (
    CHATML_END,
    CHATML_START,
    CHATML_TEMPLATE,
    ChatML,
    QuestionsAndAnswers,
    Renderer,
)
from engines.chat_template.placement import PLAIN_CHAT, Placement, Placer
from engines.chat_template.prompt_builder import (
    Literal,
    Message,
    PromptBuilder,
    Segment,
    Tokenizer,
    Tool,
    control_pattern,
    restore_generation_prompts,
)
from engines.chat_template.render_process import RenderProcess
from engines.chat_template.tool_calls import CallForm, call_form

BASE_MODEL = (
    "A base model: its file has no chat template. It continues texts rather than answering, and is"
    " asked in a plain form (Question: … Answer: …)."
)
NO_TEMPLATE = (
    "This model's file has no chat template: ChatML is used, since the model ends its texts with"
    f" {CHATML_END}."
)
CHATML_INSTEAD = "; ChatML is used instead."
PLAIN_INSTEAD = "; the model is asked in a plain form instead (Question: … Answer: …)."
NO_TOOLS = "this model's chat template has no place for tools: choose a model trained to call them"
MARKER = re.compile(r"<[^<>\n]{1,40}>|\[[^\[\]\n]{1,40}\]")
"""The mark with which most formats end a message: `<|im_end|>`, `[/INST]`."""


class ChatTemplate:
    """Renders conversations for one model."""

    def __init__(self, source: str, tokenizer: Tokenizer) -> None:
        """`source` is the template in the model's file; empty if it has none."""
        self._source = source
        self._tokenizer = tokenizer
        self._controls = control_pattern(tokenizer)
        # A template that rewrites contents may change their case.
        self._controls_any_case = re.compile(self._controls.pattern, re.IGNORECASE)
        self._renderer = self._own_format()

    def start(self) -> None:
        """Start the process in the background, so that the first prompt need not wait."""
        if isinstance(self._renderer, RenderProcess):
            self._renderer.start()

    def render(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> list[int]:
        """Token ids of the prompt, up to the beginning of the answer.

        Args:
            tools: those that the model may call.

        Raises:
            InputError: the template has no place for tools.
            ModelError: in every arrangement, the template refuses this conversation or leaves a
                part of it out.
        """
        if not self.takes_tools:
            if tools:
                raise InputError(NO_TOOLS)
            messages = [message.as_text for message in messages]
        # Tools and calls go through the template, which may put their texts anywhere.
        messages = [
            replace(
                one,
                calls=tuple(
                    replace(
                        call, name=self._escape(call.name), arguments=self._escaped(call.arguments)
                    )
                    for call in one.calls
                ),
            )
            if one.calls
            else one
            for one in messages
        ]
        tools = self._escaped(list(tools))
        placed = self._placer.place(messages, tools)
        prompt = PromptBuilder(self._tokenizer, self._controls)
        if placed.segments is None:
            prompt.literal(self._render_text(placed.placement, messages, tools))
        else:
            segments = restore_generation_prompts(placed.segments)
            for segment, following in zip(segments, [*segments[1:], Literal("")], strict=True):
                _add(prompt, segment, following)
        return prompt.finish()

    def render_text(self, text: str) -> list[int]:
        """Token ids of a whole prompt, in which control tokens are recognised."""
        prompt = PromptBuilder(self._tokenizer, self._controls)
        prompt.literal(text)
        return prompt.finish()

    @property
    def takes_tools(self) -> bool:
        """Whether the template has a place for tools."""
        return "tools" in self._source and isinstance(self._renderer, RenderProcess)

    @property
    def call_form(self) -> CallForm:
        """How the model writes calls of tools."""
        return call_form(self._source)

    @property
    def problem(self) -> str:
        """Why the model is not prompted in its own format, as a sentence; empty if it is."""
        return self._placer_and_problem[1]

    @cached_property
    def stop(self) -> tuple[str, ...]:
        """Texts at which an answer ends, if the format has no token for that.

        They begin what the format puts between an answer and the next question, which a model
        without such a token goes on to write.
        """
        segments = self._placer.place(PLAIN_CHAT).segments
        between = segments[4] if segments is not None else None
        if not isinstance(between, Literal) or self._controls.match(between.text.lstrip()):
            return ()
        marker = MARKER.match(between.text.lstrip())
        if marker:
            return (marker[0],)
        word = between.text.strip().partition("\n")[0]
        line_begins = "\n" in between.text[: between.text.find(word)]
        return ("\n" * line_begins + word,) if word else ()

    @property
    def _placer(self) -> Placer:
        return self._placer_and_problem[0]

    @cached_property
    def _placer_and_problem(self) -> tuple[Placer, str]:
        try:
            return Placer(self._renderer), self._missing()
        except ModelError as error:
            if {CHATML_START, CHATML_END} <= self._tokenizer.control_tokens.keys():
                self._renderer, instead = ChatML(), CHATML_INSTEAD
            else:
                self._renderer, instead = QuestionsAndAnswers(), PLAIN_INSTEAD
            problem = f"{error}{instead}"
            return Placer(self._renderer), problem[0].upper() + problem[1:]

    def _own_format(self) -> Renderer:
        if self._source == CHATML_TEMPLATE:
            return ChatML()
        if not self._source:
            return ChatML() if self._ends_with_chatml() else QuestionsAndAnswers()
        tokenizer = self._tokenizer
        constants = {"bos_token": tokenizer.bos, "eos_token": tokenizer.eos}
        texts = {name: tokenizer.text(token) for name, token in constants.items()}
        return RenderProcess(self._source, texts)

    def _missing(self) -> str:
        """The problem of a file without a template; empty if it has one."""
        if self._source:
            return ""
        return NO_TEMPLATE if self._ends_with_chatml() else BASE_MODEL

    def _ends_with_chatml(self) -> bool:
        """Whether the model was trained on ChatML; base models may know its tokens but end a text
        with another."""
        return self._tokenizer.text(self._tokenizer.eos) == CHATML_END

    def _render_text(
        self, placement: Placement, messages: Sequence[Message], tools: Sequence[Tool]
    ) -> str:
        """The conversation rendered with its contents, in which control tokens are escaped."""
        messages = [placement.structure.form(message) for message in messages]
        contents = [self._escape(message.content) for message in messages]
        arranged = placement.arrange(messages, contents)
        return self._renderer.render(arranged, placement.dialect.others, tools)

    def _escaped(self, value: Any) -> Any:
        """`value`, made of JSON's types, with `_escape` applied to every text in it."""
        if isinstance(value, str):
            return self._escape(value)
        if isinstance(value, Mapping):
            return {self._escape(name): self._escaped(one) for name, one in value.items()}
        return [self._escaped(one) for one in value] if isinstance(value, list) else value

    def _escape(self, content: str) -> str:
        """`content` with a space inside each text of a control token."""
        return self._controls_any_case.sub(lambda found: f"{found[0][0]} {found[0][1:]}", content)


def _add(prompt: PromptBuilder, segment: Segment, following: Segment) -> None:
    if isinstance(segment, Literal):
        prompt.literal(segment.text)
    elif segment.tokens:
        assert isinstance(following, Literal)
        prompt.stored(segment.tokens, following.text)
    else:
        prompt.content(segment.text)

"""Answers in OpenAI's forms: whole, or as the chunks of a stream.

A whole answer is put together from the chunks that a stream would have sent, so both say the same.
Text is sent as the model wrote it. JSON is written in ASCII, so that a terminal that shows it
executes nothing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Any

from app.conversation.events import Event, Finished, Wrote
from app.conversation.statistics import Statistics
from app.serve.logprobs import TokenLogprob, TokenLogprobs
from engines.chat_template.reasoning import AnswerStream
from engines.chat_template.tool_calls import CallStream, Takes, WrittenCall

FINISH_REASONS = {"stop": "stop"}
"""OpenAI's reasons; an answer that ended in any other way was cut off."""
CUT_OFF, CALLED = "length", "tool_calls"


@dataclass(frozen=True, slots=True)
class Delta:
    """What a step added to an answer.

    Attributes:
        calls: calls with their ids.
    """

    content: str = ""
    reasoning: str = ""
    calls: tuple[tuple[str, WrittenCall], ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.content or self.reasoning or self.calls or self.logprobs)


@dataclass(slots=True)
class AnswerParts:
    """Splits an answer into text, reasoning and calls of tools, as it comes.

    Attributes:
        plain: whether all of it is text, as in a completion.
        takes: which calls of tools count; None if there are no tools.
        single_call: whether the first call ends the answer.
        logprobs: makes those of the tokens, if they are asked for.
        end: the last event, once it has come.
        text: all of the text so far, as the model wrote it.
        called: number of calls so far.
    """

    plain: bool = False
    takes: Takes | None = None
    single_call: bool = False
    logprobs: TokenLogprobs | None = None
    end: Finished | None = None
    text: str = ""
    called: int = 0
    _reasoned: int = 0
    _reasoning: AnswerStream = field(default_factory=AnswerStream)
    _calls: CallStream | None = None

    def take(self, event: Event) -> Delta:
        """What `event` adds."""
        if isinstance(event, Wrote):
            fragment = "".join(piece.text for piece in event.pieces)
            self.text += fragment
            logprobs = self.logprobs.take(event.step, fragment) if self.logprobs else ()
            return self._delta(fragment, tuple(logprobs), last=False)
        if isinstance(event, Finished):
            self.end = event
            return self._delta("", (), last=True)
        return Delta()

    @property
    def statistics(self) -> Statistics:
        """The figures of the finished answer."""
        assert self.end is not None
        return self.end.statistics

    @property
    def finish_reason(self) -> str:
        """Why the finished answer ended."""
        assert self.end is not None
        return CALLED if self.called else FINISH_REASONS.get(self.end.finish, CUT_OFF)

    def _delta(self, fragment: str, logprobs: tuple[TokenLogprob, ...], *, last: bool) -> Delta:
        if self.plain:
            return Delta(fragment, logprobs=logprobs)
        content = self._reasoning.append(fragment, last=last)
        thought = self._reasoning.split.reasoning
        reasoning, self._reasoned = thought[self._reasoned :], max(self._reasoned, len(thought))
        calls: list[WrittenCall] = []
        if self.takes is not None:
            self._calls = self._calls or CallStream(self.takes, self.single_call)
            content = self._calls.append(content, last=last)
            calls = self._calls.calls[self.called :]
            self.called += len(calls)
        named = tuple((f"call_{token_hex(12)}", call) for call in calls)
        return Delta(content, reasoning, named, logprobs)


@dataclass(slots=True)
class ResponseForm:
    """The objects of one response.

    Attributes:
        model: the model's name.
        chat: whether it answers a chat, else it continues a text.
        parts: the answer so far.
        include_usage: whether a stream ends with its usage.
    """

    model: str
    chat: bool
    parts: AnswerParts
    include_usage: bool = False
    created: int = field(default_factory=lambda: int(time.time()))
    id: str = field(default_factory=lambda: token_hex(12))
    _sent_calls: int = 0
    _deltas: list[Delta] = field(default_factory=list)

    def take(self, event: Event) -> None:
        """Add `event` to the whole answer."""
        delta = self.parts.take(event)
        if delta:
            self._deltas.append(delta)

    def whole(self) -> dict[str, Any]:
        """The finished answer."""
        deltas = self._deltas
        content = "".join(delta.content for delta in deltas)
        logprobs = [one for delta in deltas for one in delta.logprobs]
        ending = {"index": 0, "finish_reason": self.parts.finish_reason}
        if self.chat:
            calls = [call for delta in deltas for call in delta.calls]
            reasoning = "".join(delta.reasoning for delta in deltas)
            message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
            if reasoning:
                message["reasoning_content"] = reasoning
            if calls:
                message["content"] = content or None
                message["tool_calls"] = [_call(*call) for call in calls]
            choice = {**ending, "message": message, "logprobs": self._logprobs(logprobs)}
        else:
            choice = {**ending, "text": content, "logprobs": self._logprobs(logprobs)}
        return {**self._head(), "choices": [choice], **self._figures()}

    def chunks(self, event: Event) -> Iterator[dict[str, Any]]:
        """The chunks that `event` adds to a stream."""
        first = not self._deltas
        delta = self.parts.take(event)
        if delta or (first and self.chat):
            self._deltas.append(delta)
            yield {**self._head(chunk=True), "choices": [self._choice(delta, first)]}
        if isinstance(event, Finished):
            yield from self._last_chunks()

    def _last_chunks(self) -> Iterator[dict[str, Any]]:
        ending = {"index": 0, "finish_reason": self.parts.finish_reason, "logprobs": None}
        choice = {**ending, "delta": dict[str, str]()} if self.chat else {**ending, "text": ""}
        head, figures = self._head(chunk=True), self._figures()
        yield {**head, "choices": [choice], "timings": figures["timings"]}
        if self.include_usage:
            yield {**head, "choices": [], **figures}

    def _choice(self, delta: Delta, first: bool) -> dict[str, Any]:
        logprobs = self._logprobs(list(delta.logprobs)) if delta.logprobs else None
        choice = {"index": 0, "finish_reason": None, "logprobs": logprobs}
        if not self.chat:
            return {**choice, "text": delta.content}
        fields: dict[str, Any] = {"role": "assistant", "content": ""} if first else {}
        if delta.content:
            fields["content"] = delta.content
        if delta.reasoning:
            fields["reasoning_content"] = delta.reasoning
        if delta.calls:
            numbered = enumerate(delta.calls, self._sent_calls)
            fields["tool_calls"] = [{"index": index, **_call(*call)} for index, call in numbered]
            self._sent_calls += len(delta.calls)
        return {**choice, "delta": fields}

    def _logprobs(self, found: list[TokenLogprob]) -> dict[str, Any] | None:
        if self.parts.logprobs is None:
            return None
        if self.chat:
            return {"content": [one.for_chat() for one in found], "refusal": None}
        return {
            "tokens": [one.text for one in found],
            "token_logprobs": [one.logprob for one in found],
            "top_logprobs": [{other.text: other.logprob for other in one.top} for one in found],
            "text_offset": [one.offset for one in found],
        }

    def _head(self, *, chunk: bool = False) -> dict[str, Any]:
        kind = "chat.completion" + ".chunk" * chunk if self.chat else "text_completion"
        prefix = "chatcmpl" if self.chat else "cmpl"
        head = {"id": f"{prefix}-{self.id}", "object": kind}
        return {**head, "created": self.created, "model": self.model}

    def _figures(self) -> dict[str, Any]:
        statistics = self.parts.statistics
        return {"usage": usage(statistics), "timings": timings(statistics)}


def usage(statistics: Statistics) -> dict[str, Any]:
    """The tokens of an answer, in OpenAI's form."""
    prompt, written = statistics.prompt_tokens, statistics.tokens
    return {
        "prompt_tokens": prompt,
        "completion_tokens": written,
        "total_tokens": prompt + written,
        "prompt_tokens_details": {"cached_tokens": statistics.cached_tokens},
    }


def timings(statistics: Statistics) -> dict[str, float]:
    """The speed of an answer, in llama-server's form: tokens and milliseconds of reading and
    writing, drafted tokens that were verified, and those accepted."""
    read = statistics.prompt_tokens - statistics.cached_tokens
    read_ms = 1000 * statistics.first_token_seconds
    written, written_ms = statistics.tokens, 1000 * statistics.decode_seconds
    return {
        "cache_n": statistics.cached_tokens,
        "prompt_n": read,
        "prompt_ms": read_ms,
        "prompt_per_token_ms": read_ms / max(1, read),
        "prompt_per_second": 1000 * read / read_ms if read_ms else 0.0,
        "predicted_n": written,
        "predicted_ms": written_ms,
        "predicted_per_token_ms": written_ms / max(1, statistics.step_tokens),
        "predicted_per_second": statistics.tokens_per_second,
        "draft_n": statistics.drafted,
        "draft_n_accepted": statistics.accepted,
    }


def as_json(value: object) -> bytes:
    """`value` as JSON in ASCII."""
    return json.dumps(value, separators=(",", ":")).encode("ascii")


def server_sent(value: object) -> bytes:
    """`value` as an event of a stream."""
    return b"data: " + as_json(value) + b"\n\n"


DONE = b"data: [DONE]\n\n"
"""The end of a stream."""


def _call(number: str, call: WrittenCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": json.dumps(call.arguments, ensure_ascii=False)}
    return {"id": number, "type": "function", "function": function}

"""Calls of tools in a model's text, in the forms that open models write.

    <tool_call>{"name": …, "arguments": {…}}</tool_call>     Qwen, Hermes and most others
    {"name": …, "parameters": {…}}                           Llama 3, after <|python_tag|> or bare
    ```json {"name": …, "arguments": {…}} ```                Qwen 2.5 Coder
    {{"name": …, "arguments": {…}}}                          likewise, as its template shows calls
    [TOOL_CALLS] [{"name": …, "arguments": {…}}, …]          Mistral
    [TOOL_CALLS]name[ARGS]{…}                                Mistral, later models

A text is a call only if it is complete, valid and of one of the tools; else it is left in the
answer as the model wrote it. The text is hostile: nothing is evaluated, and each character is
parsed a limited number of times.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engines.chat_template.prompt_builder import Tool

OPEN, CLOSE = "<tool_call>", "</tool_call>"
MISTRAL, ARGUMENTS, CALL_ID = "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"
PYTHON_TAG = "<|python_tag|>"
BARE, DOUBLED, FENCE = "{", "{{", "```"
OPENINGS = (OPEN, MISTRAL, PYTHON_TAG)
MARKS = (OPEN, CLOSE, MISTRAL, ARGUMENTS, CALL_ID, PYTHON_TAG)
"""The marks, which are control tokens of some models."""


@dataclass(frozen=True, slots=True)
class CallForm:
    """How a model writes calls: the texts before the first name, between a name and its arguments,
    between two calls, and after the last.

    Attributes:
        mark: what a chat template of this form has in it.
    """

    mark: str
    before: str
    middle: str
    between: str
    after: str


CALL_FORMS = (
    CallForm(
        OPEN,
        f'{OPEN}\n{{"name": "',
        '", "arguments": ',
        f'}}\n{CLOSE}\n{OPEN}\n{{"name": "',
        f"}}\n{CLOSE}",
    ),
    CallForm(ARGUMENTS, MISTRAL, ARGUMENTS, MISTRAL, ""),
    CallForm(MISTRAL, f'{MISTRAL} [{{"name": "', '", "arguments": ', '}, {"name": "', "}]"),
    CallForm("", '{"name": "', '", "parameters": ', '}; {"name": "', "}"),
)
"""The forms in which models are made to call a tool; Llama 3's for those of no other."""


def call_form(template: str) -> CallForm:
    """The form of the calls of a model with the chat template `template`."""
    return next(form for form in CALL_FORMS if form.mark in template)


MAX_CLOSINGS = 64
"""A call's text may hold its own closing mark; it is parsed again at so many."""

_NAMED = re.compile(r"(\w[\w.-]*)\s*(?:\[CALL_ID\][^\[\]]*)?\[ARGS\]\s*")
_FENCE = re.compile(r"```(?:json)?\s*")
_SEPARATORS = re.compile(r"[\s;,]*")
_CALL_KEYS = ("name", "type", "function", "arguments", "parameters", "id")
_DECODER = json.JSONDecoder(parse_constant=lambda name: _refuse(name))


@dataclass(frozen=True, slots=True)
class WrittenCall:
    """A call that the model wrote."""

    name: str
    arguments: Mapping[str, Any]


Takes = Callable[[WrittenCall], bool]
"""Whether what the model wrote is a call of a tool that it was offered."""
Obeys = Callable[[Mapping[str, Any]], bool]
"""Whether arguments are as a tool's schema says."""


def names_of(tools: Sequence[Tool]) -> list[str]:
    """The names of `tools`."""
    return [str(tool["function"]["name"]) for tool in tools]


def taker(tools: Sequence[Tool], strict: Mapping[str, Obeys]) -> Takes:
    """Takes calls of `tools`; of those named in `strict` only with arguments that obey."""
    names = frozenset(names_of(tools))

    def takes(call: WrittenCall) -> bool:
        obeys = strict.get(call.name)
        return call.name in names and (obeys is None or obeys(call.arguments))

    return takes


def ends_call(text: str, takes: Takes) -> bool:
    """Whether `text`, an answer so far, ends with a call that counts."""
    if not text.endswith((CLOSE,) if OPEN in text else ("}", "]", FENCE)):
        return False
    stream = CallStream(takes)
    stream.append(text, last=True)
    return bool(stream.calls)


def is_marked(text: str) -> bool:
    """Whether the calls in `text` are in a form of their own, not in a block of code."""
    return any(mark in text for mark in OPENINGS) or text.lstrip().startswith(BARE)


@dataclass(slots=True)
class CallStream:
    """Separates calls from an answer that arrives in fragments.

    Attributes:
        takes: whether a call counts.
        single: whether the first call ends the answer.
        calls: the calls found so far.
    """

    takes: Takes
    single: bool = False
    calls: list[WrittenCall] = field(default_factory=list)
    _text: str = ""  # not returned yet
    _begun: bool = False  # whether any of the answer was returned or taken as a call
    _closings: int = 0  # closing marks in the text when it was last tried

    def append(self, fragment: str, *, last: bool = False) -> str:
        """Add a fragment, and return the further text that is no call. White space before a call,
        and after the last one, belongs to it.

        Nothing is held back if it is the `last`.
        """
        self._text += fragment
        return "".join(self._take(last))

    def _take(self, last: bool) -> Iterator[str]:
        while self._text and not (self.single and self.calls):
            at, mark = self._mark()
            if not mark:
                at = len(self._text) - (0 if last else self._possible())
            before = self._text[:at]
            yield from self._release(len(before) if not mark and last else len(before.rstrip()))
            if not mark or not (last or mark == OPEN):
                return
            taken = self._take_tagged(last) if mark == OPEN else self._take_rest(mark)
            if taken is None:
                return
            if not taken:
                place = self._text.find(mark)  # none in what is no more than a fence
                yield from self._release(place + len(mark) if place >= 0 else len(self._text))

    def _release(self, length: int) -> Iterator[str]:
        """Return the first `length` characters as text, except white space around calls alone."""
        said, self._text = self._text[:length], self._text[length:]
        if said.strip() or not self.calls:
            self._begun = self._begun or bool(said.strip())
            yield said

    def _mark(self) -> tuple[int, str]:
        """The place of the first mark in the text, and the mark; an empty one for none."""
        found = [(at, mark) for mark in OPENINGS if (at := self._text.find(mark)) >= 0]
        if not self._begun and not self.calls and _may_be_bare(self._text):
            found.append((_skip_space(self._text, 0), BARE))
        return min(found, default=(0, ""))

    def _take_tagged(self, last: bool) -> bool | None:
        """Take the call that comes next; whether there is one, None while more may follow of it."""
        closings = self._text.count(CLOSE)
        if not last and (closings == self._closings or closings > MAX_CLOSINGS):
            return None
        self._closings = closings
        start = _skip_space(self._text, 0) + len(OPEN)
        call, end = _one_call(self._text, _skip_space(self._text, start))
        end = _skip_space(self._text, end)
        closed = self._text.startswith(CLOSE, end)
        if call is None and not last and closings < MAX_CLOSINGS:
            return None  # its own text may hold the closing mark
        if call is None or not self.takes(call) or not (closed or end == len(self._text)):
            self._closings = 0
            return False
        self.calls.append(call)
        self._text, self._closings = self._text[end + closed * len(CLOSE) :], 0
        return True

    def _take_rest(self, mark: str) -> bool:
        """Take all of the text as calls; whether it is calls alone."""
        text = self._text.strip()
        found = _mistral_calls(text) if mark == MISTRAL else _bare_calls(text)
        if not found or not all(map(self.takes, found)):
            return False
        self.calls += found[:1] if self.single else found
        self._text = ""
        return True

    def _possible(self) -> int:
        """The length of the end of the text that may begin a call, with the white space before."""
        text = self._text
        longest = min(len(text), max(map(len, OPENINGS)) - 1)
        ends = (n for n in range(longest, 0, -1) if any(m.startswith(text[-n:]) for m in OPENINGS))
        begun = next(ends, 0)
        return len(text) - len(text[: len(text) - begun].rstrip())


def _may_be_bare(text: str) -> bool:
    """Whether an answer that begins with `text` may be a call without marks."""
    text = text.lstrip()
    fence = _FENCE.match(text)
    inside = text[fence.end() :] if fence else text
    if not inside.startswith(BARE):
        return bool(text) and f"{FENCE}json".startswith(text.rstrip())
    key = inside.removeprefix(DOUBLED).removeprefix(BARE).lstrip()
    return not key or any(
        quoted.startswith(key) or key.startswith(quoted)
        for quoted in (f'"{name}"' for name in _CALL_KEYS)
    )


def _bare_calls(text: str) -> list[WrittenCall]:
    """All calls of a text in Llama 3's form, or in a block of code; none if anything else is in
    it."""
    text = text.removeprefix(PYTHON_TAG).strip()
    fence = _FENCE.match(text)
    if fence and text.endswith(FENCE):
        text = text[fence.end() : -len(FENCE)].strip()
    calls, at = list[WrittenCall](), 0
    while at < len(text):
        call, at = _one_call(text, at)
        if call is None:
            return []
        calls.append(call)
        found = _SEPARATORS.match(text, at)
        at = found.end() if found else at
    return calls


def _mistral_calls(text: str) -> list[WrittenCall]:
    """All calls of a text in Mistral's form; none if anything else is in it."""
    calls: list[WrittenCall] = []
    at = 0
    while text.startswith(MISTRAL, at):
        at = _skip_space(text, at + len(MISTRAL))
        named = _NAMED.match(text, at)
        value, at = _json(text, named.end() if named else at)
        if named:
            value = [{"name": named[1], "arguments": value}]
        found = [_call(one) for one in value] if isinstance(value, list) else [None]
        if None in found:
            return []
        calls += filter(None, found)
        at = _skip_space(text, at)
    return calls if at == len(text) else []


def _one_call(text: str, at: int) -> tuple[WrittenCall | None, int]:
    """The call at `at` in `text`, or None, and where it ends."""
    doubled = text.startswith(DOUBLED, at)
    value, end = _json(text, at + doubled)
    if doubled and not text.startswith("}", end):
        return None, at
    return _call(value), end + doubled


def _call(value: object) -> WrittenCall | None:
    """`value` as a call; None if it is none."""
    if isinstance(value, dict) and isinstance(value.get("function"), dict):
        value = value["function"]
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None
    arguments = value.get("arguments", value.get("parameters", {}))
    if isinstance(arguments, str):
        arguments = _json(arguments, 0)[0]
    return WrittenCall(value["name"], arguments) if isinstance(arguments, dict) else None


def _json(text: str, at: int) -> tuple[object, int]:
    """The JSON value at `at` in `text`, and where it ends; None if there is none."""
    try:
        return _DECODER.raw_decode(text, at)
    except (ValueError, RecursionError):
        return None, at


def _refuse(name: str) -> None:
    raise ValueError(name)


def _skip_space(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at

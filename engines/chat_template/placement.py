"""Finds, by trial, how to hand a conversation to a template so that every content is in the prompt.

Templates reject system messages, or all but the first; silently drop them; want contents as lists
of parts, or alternating roles. So a conversation is rendered with a sentinel for each content, in
one arrangement after another, until every sentinel is in the text once and in order. The text is
then split at the sentinels. So what a person typed never goes through the template and is told
apart from control tokens, and the stored ids of an answer can replace its text. A long conversation
is rendered in `parts`.
"""

from __future__ import annotations

import json
import re
import secrets
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from itertools import product

from datastores.errors import ModelError
from engines.chat_template.formats import Renderer
from engines.chat_template.parts import find_seams, join, parts_between
from engines.chat_template.prompt_builder import (
    ASSISTANT,
    SYSTEM,
    USER,
    Content,
    Literal,
    Message,
    Segment,
    Tool,
)
from engines.chat_template.render_process import (
    EMPTY,
    NONE,
    UNDEFINED,
    TemplateRefusalError,
)

PAD = "\x1f"
"""Surrounds a sentinel. Python counts it as whitespace, so a template that trims strips it."""
JSON_PAD, PYTHON_PAD = "\\u001f", "\\x1f"
"""The pad in a JSON string, as templates write results of tools; and in a Python string."""
SEARCH_S = 6.0
"""Time limit of a search, in the template's processor time, so that a busy machine does not cost a
model its format."""
BETWEEN = "\n\n"
"""Joins contents that become one message."""


def _sample(*roles: str) -> tuple[Message, ...]:
    return tuple(Message(role, "x") for role in roles)


PLAIN_CHAT = _sample(USER, ASSISTANT, USER)
INSTRUCTED_CHAT = _sample(SYSTEM, USER, ASSISTANT, USER)


class Structure(Enum):
    """Whose roles change; except in the first two, neighbours of one role are joined, and calls of
    tools and their results become text."""

    AS_WRITTEN = auto()
    """Nobody's; answers that called tools are as the model wrote them."""
    AS_IT_IS = auto()
    ONE_SYSTEM = auto()
    """System messages after the first message become the user's."""
    NO_SYSTEM = auto()
    """All system messages become the user's."""
    EMPTY_SYSTEM = auto()
    """The same, after an empty system message."""
    USER_FIRST = auto()
    """The same as NO_SYSTEM, and so do answers before the first question."""
    ONE_TURN = auto()
    """All messages become one of the user."""

    @property
    def keeps_calls(self) -> bool:
        """Whether calls of tools reach the template as data, or as the model wrote them."""
        return self in (Structure.AS_WRITTEN, Structure.AS_IT_IS)

    def form(self, message: Message) -> Message:
        """`message` with its calls of tools in the form of this structure."""
        if self is Structure.AS_WRITTEN:
            return message.as_written
        return message.as_called if self is Structure.AS_IT_IS else message.as_text


@dataclass(frozen=True, slots=True)
class Dialect:
    """What a template expects besides roles.

    Attributes:
        parts: the roles whose content is a list of parts instead of a text.
        others: the value of other variables; see `render_process`.
    """

    parts: tuple[str, ...] = ()
    others: str = NONE


_PARTS = ((), (SYSTEM, USER, ASSISTANT), (USER,), (USER, ASSISTANT), (SYSTEM, USER))
DIALECTS = tuple(Dialect(*pair) for pair in product(_PARTS, (NONE, UNDEFINED, EMPTY)))


@dataclass(frozen=True, slots=True)
class Placement:
    """One way to hand messages to a template."""

    structure: Structure
    dialect: Dialect

    def arrange(
        self, messages: Sequence[Message], contents: Sequence[str]
    ) -> list[dict[str, object]]:
        """The messages for the template, with `contents` in place of their own."""
        arranged: list[dict[str, object]] = []
        for role, indices in _turns([message.role for message in messages], self.structure):
            text = BETWEEN.join(contents[index] for index in indices)
            in_parts = role in self.dialect.parts
            content = [{"type": "text", "text": text}] if in_parts else text
            arranged.append({"role": role, "content": content})
            if len(indices) == 1:
                arranged[-1].update(_calls(messages[indices[0]]))
        return arranged


def _calls(message: Message) -> dict[str, object]:
    """The fields of a message that calls tools or has a tool's result; none for others."""
    if message.call_id:
        return {"tool_call_id": message.call_id}
    calls = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for call in message.calls
    ]
    return {"tool_calls": calls} if calls else {}


def _turns(roles: Sequence[str], structure: Structure) -> list[tuple[str, list[int]]]:
    """The role and the indices of the contents of each message for the template."""
    if structure.keeps_calls:
        return [(role, [index]) for index, role in enumerate(roles)]
    turns: list[tuple[str, list[int]]] = []
    if structure is Structure.EMPTY_SYSTEM:
        turns.append((SYSTEM, []))
    for index, role in enumerate(roles):
        turn = _role(role, structure, first=not index, begun=bool(turns))
        if not turns or turns[-1][0] != turn:
            turns.append((turn, []))
        turns[-1][1].append(index)
    return turns


def _role(role: str, structure: Structure, *, first: bool, begun: bool) -> str:
    """The role that a message gets; `begun` after the first turn began."""
    if role == SYSTEM and first and structure is Structure.ONE_SYSTEM:
        return SYSTEM
    if structure is Structure.ONE_TURN or (structure is Structure.USER_FIRST and not begun):
        return USER
    return ASSISTANT if role == ASSISTANT else USER


@dataclass(frozen=True, slots=True)
class Placed:
    """A conversation, and how it was handed to its template.

    Attributes:
        segments: alternating literals and contents, literals first and last; None if the template
            loses no content but quotes, repeats, reorders or rewrites some.
    """

    placement: Placement
    segments: list[Segment] | None


class Placer:
    """Finds the placement of each conversation with one renderer.

    The last that worked is tried first for conversations of the same kind. Sentinels are
    unguessable.

    Raises:
        ModelError: no chat can be rendered.
    """

    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer
        self._nonce = secrets.token_hex(8)
        pad = f"((?:{PAD}|{re.escape(JSON_PAD)})?)"
        self._sentinel = re.compile(f"{pad}s{self._nonce}x(\\d+)x{pad}")
        self._traces = re.compile(self._nonce + r"x(\d+)x", re.IGNORECASE)
        self._known: dict[tuple[bool, ...], Placement] = {}
        self._inexact: set[tuple[bool, ...]] = set()
        self._dialect = DIALECTS[0]
        self._dialect = self._learn()

    def place(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> Placed:
        """`messages` with every content in the prompt, for a model that may call `tools`.

        Raises:
            ModelError: in every arrangement, the template refuses them or leaves a content out.
        """
        return self._search(messages, self._renderer.seconds, tools)

    def _search(
        self, messages: Sequence[Message], began: float, tools: Sequence[Tool] = ()
    ) -> Placed:
        """As `place`; `began` is the renderer's `seconds` at the beginning of the search."""
        called = any(message.calls for message in messages)
        kind = (*_kind([message.role for message in messages]), bool(tools), called)
        shown: Placed | None = None
        problem: ModelError | None = None
        for placement in self._candidates(kind, called):
            if (shown or problem) and self._is_late(began):
                break
            kept = shown is not None and shown.placement.structure.keeps_calls
            if called and kept and not placement.structure.keeps_calls:
                break  # calls as text are worse than a content that is quoted
            try:
                placed = self._try(placement, messages, tools)
            except TemplateRefusalError as error:
                problem = problem or error
                continue
            if placed is None:
                problem = problem or ModelError("the model's chat template leaves out messages")
                continue
            if placed.segments is not None or kind in self._inexact:
                self._known[kind] = placement
                return placed
            shown = shown or placed
        if shown is None:
            assert problem is not None
            raise problem
        self._known[kind] = shown.placement
        self._inexact.add(kind)
        return shown

    def _learn(self) -> Dialect:
        """The first dialect in which a chat with a system message needs no rearrangement; else one
        without a system message; else the first that shows a chat at all."""
        began = self._renderer.seconds
        for chat, dialect in product((INSTRUCTED_CHAT, PLAIN_CHAT), DIALECTS):
            if self._is_late(began):
                raise ModelError(f"the model's chat template fails: it takes over {SEARCH_S:g} s")
            with suppress(TemplateRefusalError):
                placed = self._try(Placement(Structure.AS_IT_IS, dialect), chat)
                if placed is not None and placed.segments is not None:
                    return dialect
        return self._search(PLAIN_CHAT, began).placement.dialect

    def _candidates(self, kind: tuple[bool, ...], called: bool) -> Iterator[Placement]:
        """The placement known for this kind of conversation, then all, the least changes first.

        Args:
            called: whether an answer called tools.
        """
        if kind in self._known:
            yield self._known[kind]
        written, *structures, last = Structure
        if called:
            structures.insert(0, written)
        for some in (structures, [last]):
            for dialect in (self._dialect, *DIALECTS):
                yield from (Placement(structure, dialect) for structure in some)

    def _try(
        self, placement: Placement, messages: Sequence[Message], tools: Sequence[Tool] = ()
    ) -> Placed | None:
        """`messages` in this `placement`; None if a content is missing from the text.

        Raises:
            TemplateRefusalError: the template refuses them.
            ModelError: the template is unusable.
        """
        messages = [placement.structure.form(message) for message in messages]
        segments = self._join_parts(placement, messages, tools)
        if segments is not None:
            return Placed(placement, segments)
        return self._render(placement, messages, range(len(messages)), tools)

    def _join_parts(
        self, placement: Placement, messages: Sequence[Message], tools: Sequence[Tool]
    ) -> list[Segment] | None:
        """Render a long conversation in parts; None if it is short or its parts cannot be joined.

        Raises:
            TemplateRefusalError, ModelError: as `_try`.
        """
        roles = [message.role for message in messages]
        seams = find_seams(roles)
        if not seams or any(message.calls for message in messages):
            return None
        parts = parts_between(seams, roles)
        rendered: list[list[Segment]] = []
        for part in reversed(parts):  # the last holds the notes, which a template may refuse
            placed = self._render(placement, messages, part, tools)
            if placed is None or placed.segments is None:
                return None
            rendered.insert(0, placed.segments)
        return join(parts, rendered, seams)

    def _render(
        self,
        placement: Placement,
        messages: Sequence[Message],
        chosen: Sequence[int],
        tools: Sequence[Tool],
    ) -> Placed | None:
        """As `_try`, for the messages whose indices are `chosen`.

        An empty content next to calls has no sentinel, as templates write something else then.
        """
        sentinels = [
            f"{PAD}s{self._nonce}x{index}x{PAD}"
            if messages[index].content or not messages[index].calls
            else ""
            for index in chosen
        ]
        arranged = placement.arrange([messages[index] for index in chosen], sentinels)
        text = self._renderer.render(arranged, placement.dialect.others, tools)
        chosen = [index for index, sentinel in zip(chosen, sentinels, strict=True) if sentinel]
        if {int(index) for index in self._traces.findall(text)} != set(chosen):
            return None
        if not _has_names(text, tools, messages):
            return None
        return Placed(placement, self._segments(text, messages, chosen))

    def _segments(
        self, text: str, messages: Sequence[Message], chosen: Sequence[int]
    ) -> list[Segment] | None:
        found = list(self._sentinel.finditer(text))
        if [int(match[2]) for match in found] != list(chosen):
            return None
        segments: list[Segment] = []
        end = 0
        for match, index in zip(found, chosen, strict=True):
            segments += [Literal(text[end : match.start()]), _content(messages[index], match)]
            end = match.end()
        segments.append(Literal(text[end:]))
        return None if any(map(self._holds_trace, segments)) else segments

    def _holds_trace(self, segment: Segment) -> bool:
        """Whether a literal contains a part of a sentinel, rewritten or quoted."""
        return isinstance(segment, Literal) and (
            self._nonce in segment.text.lower()
            or any(pad in segment.text for pad in (JSON_PAD, PYTHON_PAD))
        )

    def _is_late(self, began: float) -> bool:
        return self._renderer.seconds - began > SEARCH_S


def _has_names(text: str, tools: Sequence[Tool], messages: Sequence[Message]) -> bool:
    """Whether a rendered text has the names of all `tools` and of the calls in `messages`."""
    wanted = Counter(str(tool["function"]["name"]) for tool in tools)
    wanted.update(call.name for message in messages for call in message.calls)
    return all(text.count(name) >= count for name, count in wanted.items())


def _content(message: Message, match: re.Match[str]) -> Content:
    if match[1] == match[3] == JSON_PAD:
        return Content(int(match[2]), json.dumps(message.content, ensure_ascii=False)[1:-1], ())
    text = message.content if match[1] else message.content.lstrip()
    return Content(int(match[2]), text if match[3] else text.rstrip(), message.tokens)


def _kind(roles: Sequence[str]) -> tuple[bool, ...]:
    """The properties of `roles` on which the placement usually depends."""
    systems = [index for index, role in enumerate(roles) if role == SYSTEM]
    others = [role for role in roles if role != SYSTEM]
    alternating = all(role == (USER, ASSISTANT)[turn % 2] for turn, role in enumerate(others))
    return 0 in systems, any(systems), alternating

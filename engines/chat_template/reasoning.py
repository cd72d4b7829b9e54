"""What a model writes before its answer: the reasoning, and how each family of models marks it.

Owns the marks, splitting a text at them, and which control tokens have to be kept in an answer's
text for that: detokenisation leaves control tokens out, and some families mark reasoning with
nothing else. Text stays as the model wrote it; whoever shows or sends it splits it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from engines.target import Vocabulary

_CONTROL = re.compile(r"<[^<>\s]+>|\[/?THINK\]")
"""The control tokens that a mark may consist of."""
_OPENING_TOKENS = 24
"""Last tokens of a prompt in which a mark is looked for."""
_NOT_SPACE = re.compile(r"\S")
_BEFORE_ANSWER = re.compile(r"(?:[^\S\n]*\n)*(?: (?!\s))?")
_FENCE = re.compile(r"^[ \t]*(?:```|~~~)", re.MULTILINE)
_QUOTES = "`'\"‘’“”"


@dataclass(frozen=True, slots=True)
class ReasoningMarks:
    """How one family of models marks its reasoning; each by any of several texts, longest first.

    Attributes:
        openings: before the reasoning; it may have several parts, one behind another.
        closings: after it.
        befores, afters: around the answer proper, where it is marked too.
        bare: whether a closing without an opening counts: the prompt opened it.
        worded: whether the marks are ordinary words, so that the reasoning has to be closed.
    """

    openings: tuple[str, ...]
    closings: tuple[str, ...]
    befores: tuple[str, ...] = ()
    afters: tuple[str, ...] = ()
    bare: bool = True
    worded: bool = False


_ASSISTANT, _FINAL = "<|start|>assistant", "<|channel|>final<|message|>"
_BEGIN = "<|begin|>assistant"
_CHANNELS = ("<|channel|>analysis<|message|>", "<|channel|>commentary<|message|>")

FAMILIES = (
    # Qwen, DeepSeek, GLM, Kimi, MiniMax, Nemotron, SmolLM and most others; Granite and Hunyuan mark
    # the answer as well.
    ReasoningMarks(
        ("<think>",), ("</think>",), ("<response>", "<answer>"), ("</response>", "</answer>")
    ),
    # Magistral and Ministral.
    ReasoningMarks(("[THINK]",), ("[/THINK]",)),
    # gpt-oss. The first channel follows what the prompt ends with.
    ReasoningMarks(
        (*(_ASSISTANT + channel for channel in _CHANNELS), *_CHANNELS),
        ("<|end|>",),
        (_ASSISTANT + _FINAL, _FINAL),
        ("<|end|>", "<|return|>"),
        bare=False,
    ),
    # gpt-oss without its control tokens, as some programs store it.
    ReasoningMarks(("analysis",), ("assistantfinal",), bare=False, worded=True),
    # Muse Glimmer names who reads a message.
    ReasoningMarks(
        (_ASSISTANT + " to=self<|message|>", "to=self<|message|>"),
        ("<|eom|>",),
        (_ASSISTANT + " to=user<|message|>", "to=user<|message|>"),
        ("<|eot|>",),
        bare=False,
    ),
    # Solar Open.
    ReasoningMarks(
        (_BEGIN + "<|think|>", "<|think|>"),
        ("<|end|>",),
        (_BEGIN + "<|content|>", "<|content|>"),
        ("<|end|>",),
        bare=False,
    ),
    # Kimi K3.
    ReasoningMarks(
        ("<|open|>think<|sep|>",),
        ("<|close|>think<|sep|>",),
        ("<|open|>response<|sep|>",),
        ("<|close|>response<|sep|>",),
    ),
    # Apertus.
    ReasoningMarks(("<|inner_prefix|>",), ("<|inner_suffix|>",)),
    # Gemma 4.
    ReasoningMarks(("<|channel>thought", "<|channel>"), ("<channel|>",)),
    # Command R7B, Command A.
    ReasoningMarks(
        ("<|START_THINKING|>",),
        ("<|END_THINKING|>",),
        ("<|START_RESPONSE|>", "<|START_TEXT|>"),
        ("<|END_RESPONSE|>", "<|END_TEXT|>"),
    ),
    # OpenThinker, Sky-T1.
    ReasoningMarks(
        ("<|begin_of_thought|>",),
        ("<|end_of_thought|>",),
        ("<|begin_of_solution|>",),
        ("<|end_of_solution|>",),
    ),
    # Granite 3.2.
    ReasoningMarks(
        ("Here is my thought process:", "Here's my thought process:"),
        ("Here is my response:", "Here's my response:"),
        bare=False,
        worded=True,
    ),
    # Apriel.
    ReasoningMarks(
        ("Here are my reasoning steps:",),
        ("[BEGIN FINAL RESPONSE]",),
        afters=("[END FINAL RESPONSE]",),
    ),
    # Marco-o1.
    ReasoningMarks(("<Thought>",), ("</Thought>",), ("<Output>",), ("</Output>",)),
    # K2 Think, with less effort.
    ReasoningMarks(("<think_fast>", "<think_faster>"), ("</think_fast>", "</think_faster>")),
    # EXAONE Deep, Reflection, Reka, Seed-OSS, Kimi-VL.
    ReasoningMarks(("<thought>",), ("</thought>",)),
    ReasoningMarks(("<thinking>",), ("</thinking>",)),
    ReasoningMarks(("<reasoning>",), ("</reasoning>",)),
    ReasoningMarks(("<seed:think>",), ("</seed:think>",)),
    ReasoningMarks(("◁think▷",), ("◁/think▷",)),
)


_ANY_MARK = re.compile(
    "|".join(
        re.escape(mark)
        for marks in FAMILIES
        for mark in (*marks.openings, *marks.closings, *marks.befores)
        if not marks.worded or mark in marks.closings
    )
)


@dataclass(frozen=True, slots=True)
class ReasoningSplit:
    """A model's text in parts.

    Attributes:
        reasoning: without marks.
        answer: the answer proper, from `start` to `end` of the text.
        thinking: whether the reasoning is still growing.
        marked: whether the text has marks.
    """

    reasoning: str
    answer: str
    thinking: bool
    start: int
    end: int
    marked: bool = True


def split_reasoning(text: str, *, growing: bool = False) -> ReasoningSplit:
    """Split a model's output into its reasoning and its answer.

    What follows a mark at the beginning is reasoning, and so is what precedes a closing mark that
    nothing opens: the prompt did, and another program stored the text. Marks in the answer proper
    are part of it, since it may be about them. While the text is `growing`, what may become a mark
    is held back at its end.
    """
    begin = _skip_space(text, 0)
    if not growing and not _ANY_MARK.search(text):
        return _unmarked(text, len(text))
    for marks in FAMILIES:
        if _is_marked(text, begin, marks):
            return _split(text, begin, marks, growing)
    bare = [(*found, marks) for marks in FAMILIES if (found := _bare_closing(text, marks))]
    if bare:
        at, closing, marks = min(bare, key=lambda one: one[0])
        return _answer(text, at + len(closing), marks, [text[:at]], growing)
    first = (mark for marks in FAMILIES for mark in (*_first_marks(marks), *_bare_closings(marks)))
    held = growing and _may_become(text, begin, tuple(first))
    return _unmarked(text, begin if held else len(text))


def without_marks(text: str) -> str:
    """A model's output as one text to read: its reasoning, a blank line, its answer."""
    split = split_reasoning(text)
    return "\n\n".join(filter(None, (split.reasoning, split.answer)))


def _unmarked(text: str, end: int) -> ReasoningSplit:
    """An answer alone, up to `end`."""
    start = min(_answer_start(text, 0), end)
    return ReasoningSplit("", text[start:end], False, start, end, marked=False)


def _split(text: str, at: int, marks: ReasoningMarks, growing: bool) -> ReasoningSplit:
    """`text`, whose first mark is at `at`."""
    parts, closed = list[str](), at
    while opening := _mark_at(text, at, marks.openings):
        if growing and _may_become(text, at, marks.openings):
            break  # of several the longest is the right one
        start = at + len(opening)
        repeated = _skip_space(text, start)
        if _mark_at(text, repeated, marks.openings):
            at = repeated  # the prompt wrote one, and the model another
            continue
        if growing and _may_become(text, repeated, marks.openings):
            return ReasoningSplit(_joined(parts), "", True, len(text), len(text))
        found = _closing(text, start, marks, growing)
        if found is None:
            end = len(text) - (_begun_at_end(text[start:], marks.closings) if growing else 0)
            parts.append(text[start:end])
            return ReasoningSplit(_joined(parts), "", growing, len(text), len(text))
        place, closing = found
        parts.append(text[start:place])
        closed = place + len(closing)
        at = _skip_space(text, closed)
    if growing and _may_become(text, at, marks.openings):
        return ReasoningSplit(_joined(parts), "", True, len(text), len(text))
    return _answer(text, closed, marks, parts, growing)


def _closing(text: str, start: int, marks: ReasoningMarks, growing: bool) -> tuple[int, str] | None:
    """Where the reasoning from `start` on is closed, and by what; None if it is not.

    A mark in quotes or in code is what the reasoning is about, unless there is no other. Where the
    model opens more reasoning inside it, what closes the last of it counts.
    """
    depth, last = 1, None
    for mark in _marks_in(marks).finditer(text, start):
        if _is_quoted(text, mark, growing) or _in_fence(text[start : mark.start()]):
            continue
        if mark[0] in marks.openings:
            depth += 1
            continue
        depth, last = depth - 1, mark
        if not depth:
            break
    if last is None and not growing:
        quoted = _marks_in(marks).finditer(text, start)
        last = next((mark for mark in quoted if mark[0] in marks.closings), None)
    return None if last is None else (last.start(), last[0])


@cache
def _marks_in(marks: ReasoningMarks) -> re.Pattern[str]:
    """Matches an opening or a closing of the family, the longest first."""
    texts = sorted((*marks.openings, *marks.closings), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, texts)))


def _is_quoted(text: str, mark: re.Match[str], growing: bool) -> bool:
    """Whether `mark` stands in quotes, or may while the text is `growing`."""
    before, after = text[max(0, mark.start() - 1) : mark.start()], text[mark.end() : mark.end() + 1]
    return bool(before) and before in _QUOTES and (after in _QUOTES if after else growing)


def _answer(
    text: str, at: int, marks: ReasoningMarks, parts: Sequence[str], growing: bool
) -> ReasoningSplit:
    """`text` with the answer proper from `at` on, and with the reasoning in `parts`."""
    mark = _skip_space(text, at)
    before = _mark_at(text, mark, marks.befores)
    start, end = _answer_start(text, mark + len(before) if before else at), len(text)
    if growing and not before and _may_become(text, mark, marks.befores):
        end = start
    elif before or not marks.befores:
        whole = text.rstrip()
        after = next((mark for mark in marks.afters if whole.endswith(mark)), "")
        if after:
            end = len(whole) - len(after)
        elif growing:
            end -= _begun_at_end(text[start:], marks.afters)
    end = max(start, end)
    return ReasoningSplit(_joined(parts), text[start:end], False, start, end)


def _is_marked(text: str, at: int, marks: ReasoningMarks) -> bool:
    """Whether `text` has a mark of the family at `at`, its beginning."""
    if marks.worded and not any(closing in text for closing in marks.closings):
        return False
    return bool(_mark_at(text, at, _first_marks(marks)))


def _first_marks(marks: ReasoningMarks) -> tuple[str, ...]:
    """What an output may begin with; `<answer>` alone is a document's."""
    alone = (mark for mark in marks.befores if "<|" in mark)
    return (*marks.openings, *alone)


def _bare_closings(marks: ReasoningMarks) -> tuple[str, ...]:
    return marks.closings if marks.bare else ()


def _bare_closing(text: str, marks: ReasoningMarks) -> tuple[int, str] | None:
    """Where the first closing of the family is that nothing opens; none that code may be about."""
    for closing in _bare_closings(marks):
        at = text.find(closing)
        while at >= 0:
            around = text[max(0, at - 1) : at] + text[at + len(closing) : at + len(closing) + 1]
            if any(opening in text[:at] for opening in marks.openings):
                break
            if not set(around) & set(_QUOTES) and not _in_fence(text[:at]):
                return at, closing
            at = text.find(closing, at + 1)
    return None


def _in_fence(text: str) -> bool:
    """Whether what follows `text` is in a block of code."""
    return len(_FENCE.findall(text)) % 2 == 1


def _mark_at(text: str, at: int, marks: Sequence[str]) -> str:
    """Which of `marks` is at `at`; empty for none."""
    return next((mark for mark in marks if text.startswith(mark, at)), "")


def _may_become(text: str, at: int, marks: Sequence[str]) -> bool:
    """Whether all of `text` from `at` on is the beginning of one of `marks`."""
    return at < len(text) and any(mark.startswith(text[at:]) for mark in marks)


def _begun_at_end(text: str, marks: Sequence[str]) -> int:
    """The length of the longest end of `text` that one of `marks` begins with."""
    return max(
        (
            length
            for mark in marks
            for length in range(1, min(len(mark), len(text) + 1))
            if text.endswith(mark[:length])
        ),
        default=0,
    )


def _answer_start(text: str, at: int) -> int:
    """Where an answer begins: behind empty lines, and behind the one space that parts it from the
    prompt; more of them indent code."""
    found = _BEFORE_ANSWER.match(text, at)
    return found.end() if found else at


def _skip_space(text: str, at: int) -> int:
    found = _NOT_SPACE.search(text, at)
    return found.start() if found else len(text)


def _joined(parts: Sequence[str]) -> str:
    return "\n\n".join(stripped for part in parts if (stripped := part.strip()))


def marked_piece(vocabulary: Vocabulary) -> Callable[[int], bytes]:
    """`vocabulary.piece`, with the text of those control tokens that mark reasoning."""
    kept: dict[int, bytes] = {}
    for marks in FAMILIES:
        texts = {token for mark in _all_marks(marks) for token in _CONTROL.findall(mark)}
        found = {text: token for text in texts if (token := _control_token(vocabulary, text)) >= 0}
        if all(text in found for text in _CONTROL.findall(marks.openings[0])):
            kept |= {token: text.encode() for text, token in found.items()}
    return lambda token: kept.get(token) or vocabulary.piece(token)


def _all_marks(marks: ReasoningMarks) -> tuple[str, ...]:
    return (*marks.openings, *marks.closings, *marks.befores, *marks.afters)


def _control_token(vocabulary: Vocabulary, text: str) -> int:
    """The id of a control token that does not end an answer; -1 for none."""
    ids = vocabulary.encode(text, special=True)
    if len(ids) != 1 or ids[0] in vocabulary.stops or vocabulary.text(ids[0]) != text:
        return -1
    return -1 if vocabulary.piece(ids[0]) else ids[0]


def prompt_opening(vocabulary: Vocabulary, prompt: Sequence[int]) -> str:
    """The opening mark that `prompt` ends with; empty for none.

    The output then begins in the reasoning. The mark is put before its text, so that the text says
    so by itself.
    """
    tail = prompt[-_OPENING_TOKENS:]
    raw = (vocabulary.piece(token) or vocabulary.text(token).encode() for token in tail)
    end = b"".join(raw).decode("utf-8", "replace").rstrip()
    openings = (mark for marks in FAMILIES if not marks.worded for mark in marks.openings)
    return next((mark for mark in openings if end.endswith(mark)), "")


def added_opening(text: str, written: str) -> str:
    """The opening mark that was put before `written`, the text of an answer's tokens, to make
    `text`; empty for none."""
    openings = (mark for marks in FAMILIES if not marks.worded for mark in marks.openings)
    return next(
        (
            mark
            for mark in openings
            if text.startswith(mark) and text.startswith(written[:8], len(mark))
        ),
        "",
    )


class AnswerStream:
    """The answer proper of a text that comes in fragments, without its reasoning.

    Attributes:
        split: the text so far.
    """

    def __init__(self) -> None:
        self.split = split_reasoning("", growing=True)
        self._text = ""
        self._taken = 0

    def append(self, fragment: str, *, last: bool = False) -> str:
        """What of the answer is there after `fragment`, the `last` one or not, and was not before.

        Text before a closing mark that nothing opened is out already: a blank line follows it.
        """
        self._text += fragment
        self.split = split_reasoning(self._text, growing=not last)
        start, end = max(self._taken, self.split.start), self.split.end
        gap = "\n\n" if 0 < self._taken < self.split.start < end else ""
        if start < end:
            self._taken = end
        return gap + self._text[start:end]

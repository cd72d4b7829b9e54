"""The reasoning that a model writes before its answer, and how model families mark it.

Text stays as the model wrote it; whoever shows or sends it splits it at the marks. Detokenisation
leaves out control tokens, with which some families mark reasoning, so those are kept in the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engines.target import Vocabulary

_CONTROL = re.compile(r"<[^<>\s]+>|\[/?THINK\]")
"""Control tokens in a mark."""
_OPENING_TOKENS = 24
"""Number of tokens at the end of a prompt in which to look for a mark."""
_NOT_SPACE = re.compile(r"\S")
_BEFORE_ANSWER = re.compile(r"(?:[^\S\n]*\n)*(?: (?!\s))?")
_FENCE = re.compile(r"^[ \t]*(?:```|~~~)", re.MULTILINE)
_QUOTES = "`'\"‘’“”"


@dataclass(frozen=True, slots=True)
class ReasoningMarks:
    """How one family of models marks its reasoning: alternative texts, longest first.

    Attributes:
        openings: before a part of the reasoning, which may have several.
        closings: after it.
        befores: before the answer proper, if it is marked too.
        afters: after the answer proper.
        bare: whether a closing without an opening counts, since the prompt may contain it.
        worded: whether the marks are ordinary words, which only count if there is a closing.
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
    # Qwen, DeepSeek, GLM, Kimi, MiniMax, Nemotron, SmolLM and most others; Granite and Hunyuan also
    # mark the answer.
    ReasoningMarks(
        ("<think>",), ("</think>",), ("<response>", "<answer>"), ("</response>", "</answer>")
    ),
    # Magistral and Ministral.
    ReasoningMarks(("[THINK]",), ("[/THINK]",)),
    # gpt-oss. The prompt ends with what precedes the first channel.
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
        reasoning: the reasoning, without marks.
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

    Reasoning follows a mark at the beginning, or precedes a closing mark without an opening (which
    was in the prompt, if another program stored the text). Marks in the answer proper are part of
    it, since it may be about them. While the text is `growing`, a possible beginning of a mark at
    its end is held back.
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
    """A model's output as readable text: reasoning, a blank line, answer."""
    split = split_reasoning(text)
    return "\n\n".join(filter(None, (split.reasoning, split.answer)))


def _unmarked(text: str, end: int) -> ReasoningSplit:
    """A text without reasoning, up to `end`."""
    start = min(_answer_start(text, 0), end)
    return ReasoningSplit("", text[start:end], False, start, end, marked=False)


def _split(text: str, at: int, marks: ReasoningMarks, growing: bool) -> ReasoningSplit:
    """Split a text whose first mark is at `at`."""
    parts, closed = list[str](), at
    while opening := _mark_at(text, at, marks.openings):
        if growing and _may_become(text, at, marks.openings):
            break  # the longest counts
        start = at + len(opening)
        repeated = _skip_space(text, start)
        if _mark_at(text, repeated, marks.openings):
            at = repeated  # one is the prompt's, the other the model's
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
    """The position and text of the mark that closes the reasoning from `start` on, or None.

    A mark in quotes or code belongs to the reasoning, unless there is no other. Of nested
    reasoning, the closing of the outermost counts, or the last one.
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
    """Matches any opening or closing of the family, the longest first."""
    texts = sorted((*marks.openings, *marks.closings), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, texts)))


def _is_quoted(text: str, mark: re.Match[str], growing: bool) -> bool:
    """Whether `mark` is in quotes, or may be while the text is `growing`."""
    before, after = text[max(0, mark.start() - 1) : mark.start()], text[mark.end() : mark.end() + 1]
    return bool(before) and before in _QUOTES and (after in _QUOTES if after else growing)


def _answer(
    text: str, at: int, marks: ReasoningMarks, parts: Sequence[str], growing: bool
) -> ReasoningSplit:
    """The split with the reasoning in `parts` and the answer from `at` on."""
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
    """Whether `text` begins, at `at`, with a mark of the family."""
    if marks.worded and not any(closing in text for closing in marks.closings):
        return False
    return bool(_mark_at(text, at, _first_marks(marks)))


def _first_marks(marks: ReasoningMarks) -> tuple[str, ...]:
    """Marks with which an output may begin; a lone `<answer>` may be part of a document."""
    alone = (mark for mark in marks.befores if "<|" in mark)
    return (*marks.openings, *alone)


def _bare_closings(marks: ReasoningMarks) -> tuple[str, ...]:
    return marks.closings if marks.bare else ()


def _bare_closing(text: str, marks: ReasoningMarks) -> tuple[int, str] | None:
    """The position and text of the first closing without an opening; not in quotes or code."""
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
    """Whether `text` ends within a block of code."""
    return len(_FENCE.findall(text)) % 2 == 1


def _mark_at(text: str, at: int, marks: Sequence[str]) -> str:
    """The one of `marks` at `at`; empty for none."""
    return next((mark for mark in marks if text.startswith(mark, at)), "")


def _may_become(text: str, at: int, marks: Sequence[str]) -> bool:
    """Whether one of `marks` begins with all of `text` from `at` on."""
    return at < len(text) and any(mark.startswith(text[at:]) for mark in marks)


def _begun_at_end(text: str, marks: Sequence[str]) -> int:
    """The length of the longest suffix of `text` with which one of `marks` begins."""
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
    """Where an answer begins: after empty lines and a single space; more spaces indent code."""
    found = _BEFORE_ANSWER.match(text, at)
    return found.end() if found else at


def _skip_space(text: str, at: int) -> int:
    found = _NOT_SPACE.search(text, at)
    return found.start() if found else len(text)


def _joined(parts: Sequence[str]) -> str:
    return "\n\n".join(stripped for part in parts if (stripped := part.strip()))


def marked_piece(vocabulary: Vocabulary, more: Sequence[str] = ()) -> Callable[[int], bytes]:
    """`vocabulary.piece`, but with the text of control tokens that mark reasoning, and of those
    whose text is in `more`."""
    kept: dict[int, bytes] = {}
    for marks in FAMILIES:
        texts = {token for mark in _all_marks(marks) for token in _CONTROL.findall(mark)}
        found = {text: token for text in texts if (token := _control_token(vocabulary, text)) >= 0}
        if all(text in found for text in _CONTROL.findall(marks.openings[0])):
            kept |= {token: text.encode() for text, token in found.items()}
    kept |= {
        token: text.encode() for text in more if (token := _control_token(vocabulary, text)) >= 0
    }
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
    """The opening mark at the end of `prompt`; empty for none.

    The output then begins within the reasoning. Callers prepend the mark to its text, which shows
    that without the prompt.
    """
    tail = prompt[-_OPENING_TOKENS:]
    raw = (vocabulary.piece(token) or vocabulary.text(token).encode() for token in tail)
    end = b"".join(raw).decode("utf-8", "replace").rstrip()
    openings = (mark for marks in FAMILIES if not marks.worded for mark in marks.openings)
    return next((mark for mark in openings if end.endswith(mark)), "")


def added_opening(text: str, written: str) -> str:
    """The opening mark that was prepended to `written`, the text of an answer's tokens, to make
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
    """Extracts the answer proper from a text that arrives in fragments.

    Attributes:
        split: the text so far, split.
    """

    def __init__(self) -> None:
        self.split = split_reasoning("", growing=True)
        self._text = ""
        self._taken = 0

    def append(self, fragment: str, *, last: bool = False) -> str:
        """Add a fragment, and return the further text of the answer.

        If a closing mark without an opening shows that text returned before was reasoning, a blank
        line separates the answer from it.
        """
        self._text += fragment
        self.split = split_reasoning(self._text, growing=not last)
        start, end = max(self._taken, self.split.start), self.split.end
        gap = "\n\n" if 0 < self._taken < self.split.start < end else ""
        if start < end:
            self._taken = end
        return gap + self._text[start:end]

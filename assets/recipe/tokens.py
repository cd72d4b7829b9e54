"""The tokenizer, and chats as token ids with loss weights and alignment.

The alignment of answers with their notes and questions guides attention in training. It works on
text alone, so any chat whose notes contain the requested task is aligned, however it was made.

The tokenizer is trained with stricter boundaries than it is used with: no merge crosses a backtick,
a brace pair or a digit, so a command has the same tokens between backticks in a page as on its own
line in an answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from assets.recipe.turns import Chat, ChatTurn
from assets.recipe.values import find_values

SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
END_OF_TEXT, IM_START, IM_END = range(3)
CHAT_TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' "
    "+ '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
WEIGHT_SCALE = 20
"""Loss weights are stored in a byte, as integer multiples of 1/20."""

REPEATED_WEIGHT = 0.1
"""Weight, outside answers, of a token that has followed the same token earlier in the chat.

The text of notes is unpredictable, but its repetitions can be copied, which trains copying.
"""

COPIED_WEIGHT = 2.5
"""Minimum weight of a copied token in an answer: a value is one token in thirty of its answer, and
the command is wrong without it."""

QUESTION_WEIGHT = 0.15
"""Weight of a question's tokens: predicting them teaches the words that people use."""

_LONGEST_QUESTION = 300
"""In characters; a longer user message contains a page."""

NO_SOURCE = -1
"""In place of an index: this token is not copied."""

_ANSWER = re.compile(
    r"<\|im_start\|>assistant\n"
    r"Use(?P<led> `(?P<name>[^`]*)`\. (?P<what>.*):\n\n```sh\n(?P<command>.*)\n```)"
)

_QUESTION = re.compile(r"<\|im_start\|>user\n(.*?)<\|im_end\|>", re.DOTALL)
_ANSWERED = "<|im_start|>assistant"
_LETTERS_AFTER = re.compile(r"(?<=\d)[A-Za-z]+$")

_TASK = re.compile(r"^- (?P<what>.*)(?P<colon>:)\n\n`(?P<command>.*`)", re.MULTILINE)

Indices = NDArray[np.int16]

_COMMAND = re.compile(r"(?<=```sh\n)(.*?)(?=\n```)", re.DOTALL)


def train_tokenizer(texts: Iterable[str], vocabulary: int) -> Tokenizer:
    """Train a byte-level BPE of ``vocabulary`` ids, special tokens first, on ``texts``."""
    tokenizer = Tokenizer(models.BPE())
    plain = pre_tokenizers.ByteLevel(add_prefix_space=False)
    boundaries = pre_tokenizers.Split(Regex(r"`+|\{\{|\}\}|\d"), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([boundaries, plain])
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[AddedToken(text, special=True) for text in SPECIALS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.pre_tokenizer = plain
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def load_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer written by the ``prepare`` step."""
    return Tokenizer.from_file(str(path))


def render_prompt(chat: Chat) -> str:
    """``chat`` in ChatML, ready for the assistant's next turn."""
    turns = "".join(f"<|im_start|>{turn.role}\n{turn.text}<|im_end|>\n" for turn in chat)
    return turns + "<|im_start|>assistant\n"


class _Span(NamedTuple):
    """Text with one loss weight; ``read`` marks text that the model only reads."""

    text: str
    weight: float = 0.0
    read: bool = False


class Encoded(NamedTuple):
    """A chat as the trainer reads it; four arrays (n,).

    ``weights`` holds the loss weight of predicting each token, in units of 1/20; ``copied`` and
    ``chosen`` are as in `align`.
    """

    ids: NDArray[np.uint16]
    weights: NDArray[np.uint8]
    copied: Indices
    chosen: Indices


def encode_chats(tokenizer: Tokenizer, chats: Iterable[Chat]) -> list[Encoded]:
    """Encode chats as ids, loss weights and alignment.

    The end-of-turn token has the weight of its turn; the frame around a turn has weight 0.
    Questions have `QUESTION_WEIGHT`, repetitions in notes and pasted pages `REPEATED_WEIGHT`.
    """
    return [_encode(tokenizer, [p for turn in chat for p in _spans(turn)]) for chat in chats]


def _encode(tokenizer: Tokenizer, spans: Sequence[_Span]) -> Encoded:
    encoded = tokenizer.encode_batch([span.text for span in spans])
    counts = [len(each.ids) for each in encoded]
    ids = np.concatenate([np.asarray(each.ids, np.uint16) for each in encoded])
    shares = np.asarray([round(span.weight * WEIGHT_SCALE) for span in spans], np.uint8)
    lessons = np.repeat([span.read for span in spans], counts) & _repeated(ids)
    weights = np.where(lessons, np.uint8(REPEATED_WEIGHT * WEIGHT_SCALE), np.repeat(shares, counts))
    before = np.repeat(np.cumsum([0, *(len(span.text) for span in spans[:-1])]), counts)
    starts = before + np.concatenate([[start for start, _ in each.offsets] for each in encoded])
    copied, chosen = align("".join(span.text for span in spans), starts, ids)
    least = np.where((copied != NO_SOURCE) & (weights > 0), round(COPIED_WEIGHT * WEIGHT_SCALE), 0)
    return Encoded(ids, np.maximum(weights, least).astype(np.uint8), copied, chosen)


def _repeated(ids: NDArray[np.uint16]) -> NDArray[np.bool_]:
    """Which tokens form a pair with their predecessor that occurred earlier in ``ids`` (n,)."""
    pairs = ids[:-1].astype(np.int64) << 16 | ids[1:]
    first = np.unique(pairs, return_index=True)[1]
    repeated = np.ones(len(ids), np.bool_)
    repeated[0] = False
    repeated[first + 1] = False
    return repeated


def _spans(turn: ChatTurn) -> Iterator[_Span]:
    """The turn split where the loss weight changes; no token crosses a split.

    The frame ends in a newline and the text begins after it, so a text must not begin with a
    newline; generated texts never do. Commands are lines of their own.
    """
    word, rest = _first_word(f"{turn.text}<|im_end|>")
    asks = turn.role == "user" and len(turn.text) < _LONGEST_QUESTION
    weight = QUESTION_WEIGHT if asks else turn.weight
    yield _Span(f"<|im_start|>{turn.role}\n")
    yield _Span(word, turn.first or weight, not weight)
    for number, text in enumerate(_COMMAND.split(rest)):
        yield _Span(text, (number % 2 and turn.command) or weight, not weight)
    yield _Span("\n")


def _first_word(text: str) -> tuple[str, str]:
    """``text`` split before its first space; a token contains a space only at its start."""
    at = text.find(" ")
    return (text[:at], text[at:]) if at > 0 else (text, "")


def align(text: str, starts: NDArray[np.int64], ids: NDArray[np.uint16]) -> tuple[Indices, Indices]:
    """For each token of a chat, the token it is copied from and the token that marks its task.

    ``text`` is the chat in ChatML, ``starts`` (n,) the character at which each token begins,
    ``ids`` (n,) the token ids. Returns two arrays (n,) of indices into the chat, `NO_SOURCE` where
    there is none. An answer's name, description and command are copied from the notes, and in an
    answer from memory the values that the questions before it name. A task is marked by the
    colon after its description in the notes, the first position that has seen all of it. The tokens
    of an answer get the mark of the requested task, the tokens of each command in the notes that of
    its own task: a head that attends to the mark gives the two similar representations.
    """
    copied, chosen = (np.full(len(ids), NO_SOURCE, np.int16) for _ in range(2))
    tasks: dict[tuple[str, str], re.Match[str]] = {}
    for task in _TASK.finditer(text):
        tasks.setdefault((task["what"], task["command"]), task)
        _point(chosen, starts, task.span("command"), task.start("colon"))
    for answer in _ANSWER.finditer(text):
        asked = tasks.get((answer["what"], f"{answer['command']}`"))
        if asked is None:
            for own, origin in _values(text, answer):
                _match(copied, starts, ids, own, origin)
            continue
        _point(chosen, starts, answer.span("led"), asked.start("colon"))
        for part in ("what", "command"):
            _match(copied, starts, ids, answer.span(part), asked.start(part))
        title = text.rfind(f"# {answer['name']}\n", 0, asked.start())
        if title >= 0:
            _match(copied, starts, ids, answer.span("name"), title + len("# "))
    return copied, chosen


def _values(text: str, answer: re.Match[str]) -> Iterator[tuple[tuple[int, int], int]]:
    """Where the command of ``answer`` holds a value of an earlier question, last question first.

    Yields the value's span and the position of the same text in the question; for ``3G`` named as
    ``3 GB``, those of the number.
    """
    command, taken = answer.start("command"), set[int]()
    for question in reversed(list(_QUESTION.finditer(text, 0, answer.start()))):
        values = {value for kind in find_values(question[1]).values() for value in kind}
        values |= _named_later(text, question, answer["command"])
        for value in sorted(values, key=lambda value: (-len(value), value)):
            alone = value if value in question[1] else _LETTERS_AFTER.sub("", value)
            said = whole(alone).search(question[1])
            if said is None:
                continue
            for found in whole(value).finditer(answer["command"]):
                if not taken & set(range(*found.span())):
                    taken.update(range(*found.span()))
                    start = command + found.start()
                    yield (start, start + len(alone)), question.start(1) + said.start()


def _named_later(text: str, question: re.Match[str], command: str) -> set[str]:
    """The words of ``command`` that do not occur before the follow-up ``question``."""
    before = text[: question.start()]
    if _ANSWERED not in before:
        return set()
    return {word for word in command.split()[1:] if len(word) > 1 and word not in before}


@lru_cache(maxsize=4096)
def whole(value: str) -> re.Pattern[str]:
    """A pattern for ``value`` as a whole word; it never matches if ``value`` is empty."""
    return re.compile(rf"(?<!\w){re.escape(value)}(?!\w)") if value else re.compile(r"(?!)")


def _point(chosen: Indices, starts: NDArray[np.int64], span: tuple[int, int], place: int) -> None:
    """Set the mark of the tokens in ``span`` to the token at ``place``."""
    first, stop = np.searchsorted(starts, span)
    chosen[first:stop] = np.searchsorted(starts, place)


def _match(
    copied: Indices,
    starts: NDArray[np.int64],
    ids: NDArray[np.uint16],
    span: tuple[int, int],
    origin: int,
) -> None:
    """Align the tokens of ``span`` and the preceding space with those from ``origin`` on."""
    first, stop = np.searchsorted(starts, (span[0] - 1, span[1]))
    own = np.arange(first, stop)
    place = starts[own] - span[0] + origin
    found = np.searchsorted(starts, place)
    same = (starts[found] == place) & (ids[found] == ids[own])
    copied[own[same]] = found[same]

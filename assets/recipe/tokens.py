"""From text to token ids: the tokenizer, how it is trained, and a chat as ids with loss weights.

Owns the special tokens and the ChatML form. The tokenizer is trained with stricter borders than it
is used with: no merge crosses a backtick, a brace pair or a digit, so a command reads the same
tokens in a page, between backticks, and in an answer, on a line of its own.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from assets.recipe.alignment import Indices, align
from assets.recipe.turns import Chat, Turn

SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
END_OF_TEXT, IM_START, IM_END = range(3)
CHAT_TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' "
    "+ '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
WEIGHT_SCALE = 20
"""Loss weights are kept as whole twentieths in a byte."""

REPEATED = 0.1
"""Weight, outside answers, of a token that has followed the same token before in the chat.

Nothing foretells the text of notes, but its repetitions can be copied: each is a lesson in it.
"""

_COMMAND = re.compile(r"(?<=```sh\n)(.*?)(?=\n```)", re.DOTALL)


def train_tokenizer(texts: Iterable[str], vocabulary: int) -> Tokenizer:
    """A byte-level BPE of ``vocabulary`` ids, specials first, over ``texts``."""
    tokenizer = Tokenizer(models.BPE())
    plain = pre_tokenizers.ByteLevel(add_prefix_space=False)
    borders = pre_tokenizers.Split(Regex(r"`+|\{\{|\}\}|\d"), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([borders, plain])
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


class _Piece(NamedTuple):
    """A stretch of one loss weight; ``read`` where it is text that nobody is to answer with."""

    text: str
    weight: float = 0.0
    read: bool = False


class Encoded(NamedTuple):
    """A chat as the trainer reads it; four arrays (n,).

    ``weights`` are those of predicting this very token, in twentieths; ``copied`` and ``chosen``
    are as in `align`.
    """

    ids: NDArray[np.uint16]
    weights: NDArray[np.uint8]
    copied: Indices
    chosen: Indices


def encode_chats(tokenizer: Tokenizer, chats: Iterable[Chat]) -> list[Encoded]:
    """Each chat as ids, loss weights, and where its answers stand in its notes.

    The end-of-turn token carries its turn's weight; the frame around a turn carries none. Outside
    answers, what repeats carries `REPEATED`.
    """
    return [_encode(tokenizer, [p for turn in chat for p in _pieces(turn)]) for chat in chats]


def _encode(tokenizer: Tokenizer, pieces: Sequence[_Piece]) -> Encoded:
    encoded = tokenizer.encode_batch([piece.text for piece in pieces])
    counts = [len(each.ids) for each in encoded]
    ids = np.concatenate([np.asarray(each.ids, np.uint16) for each in encoded])
    shares = np.asarray([round(piece.weight * WEIGHT_SCALE) for piece in pieces], np.uint8)
    lessons = np.repeat([piece.read for piece in pieces], counts) & _repeated(ids)
    weights = np.where(lessons, np.uint8(REPEATED * WEIGHT_SCALE), np.repeat(shares, counts))
    before = np.repeat(np.cumsum([0, *(len(piece.text) for piece in pieces[:-1])]), counts)
    starts = before + np.concatenate([[start for start, _ in each.offsets] for each in encoded])
    return Encoded(ids, weights, *align("".join(piece.text for piece in pieces), starts, ids))


def _repeated(ids: NDArray[np.uint16]) -> NDArray[np.bool_]:
    """Which tokens, with the one before them, make a pair that stood earlier in ``ids`` (n,)."""
    pairs = ids[:-1].astype(np.int64) << 16 | ids[1:]
    first = np.unique(pairs, return_index=True)[1]
    repeated = np.ones(len(ids), np.bool_)
    repeated[0] = False
    repeated[first + 1] = False
    return repeated


def _pieces(turn: Turn) -> Iterator[_Piece]:
    """The turn cut where the loss weight changes; no token can cross such a cut.

    The frame ends in a newline and the text begins after it, so a text must not begin with a
    newline; the generator's texts never do. Commands are lines of their own.
    """
    word, rest = _first_word(f"{turn.text}<|im_end|>")
    yield _Piece(f"<|im_start|>{turn.role}\n")
    yield _Piece(word, turn.first or turn.weight, not turn.weight)
    for number, text in enumerate(_COMMAND.split(rest)):
        yield _Piece(text, (number % 2 and turn.command) or turn.weight, not turn.weight)
    yield _Piece("\n")


def _first_word(text: str) -> tuple[str, str]:
    """``text`` cut before its first space; a token may begin with a space and never holds one."""
    at = text.find(" ")
    return (text[:at], text[at:]) if at > 0 else (text, "")

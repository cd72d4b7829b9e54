"""From text to token ids: the tokenizer, how it is trained, and a chat as ids with loss weights.

Owns the special tokens and the ChatML form. The tokenizer is trained with stricter borders than it
is used with: no merge crosses a backtick, a brace pair or a digit, so a command reads the same
tokens in a page, between backticks, and in an answer, on a line of its own.
"""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from assets.recipe.turns import Chat

SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
END_OF_TEXT, IM_START, IM_END = range(3)
CHAT_TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' "
    "+ '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
WEIGHT_SCALE = 20
"""Loss weights are kept as whole twentieths in a byte."""


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


def encode_chats(
    tokenizer: Tokenizer, chats: Iterable[Chat]
) -> tuple[list[NDArray[np.uint16]], list[NDArray[np.uint8]]]:
    """Ids and loss weights (twentieths, of predicting this very token) of each chat.

    The end-of-turn token carries its turn's weight; the frame around a turn carries none.
    """
    ids: list[NDArray[np.uint16]] = []
    weights: list[NDArray[np.uint8]] = []
    for chat in chats:
        pieces, shares = _pieces(chat)
        encoded = tokenizer.encode_batch(pieces)
        counts = [len(each.ids) for each in encoded]
        ids.append(np.concatenate([np.asarray(each.ids, np.uint16) for each in encoded]))
        weights.append(np.repeat(np.asarray(shares, np.uint8), counts))
    return ids, weights


def _pieces(chat: Chat) -> tuple[list[str], list[int]]:
    """The chat cut where the loss weight changes; no token can cross such a cut.

    The frame ends in a newline and the text begins after it, so a text must not begin with a
    newline; the generator's texts never do.
    """
    pieces: list[str] = []
    shares: list[int] = []
    for turn in chat:
        word, rest = _first_word(f"{turn.text}<|im_end|>")
        weights = (0.0, turn.first or turn.weight, turn.weight, 0.0)
        pieces += [f"<|im_start|>{turn.role}\n", word, rest, "\n"]
        shares += [round(weight * WEIGHT_SCALE) for weight in weights]
    return pieces, shares


def _first_word(text: str) -> tuple[str, str]:
    """``text`` cut before its first space; a token may begin with a space and never holds one."""
    at = text.find(" ")
    return (text[:at], text[at:]) if at > 0 else (text, "")

"""Passages as token ids, and as the documents CREST is built from.

Owns how long texts are cut for a tokenizer, and what a passage is called in CREST.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

import numpy as np

from datastores.corpus import Passage
from datastores.crest_document import Document
from datastores.documents import CHATS, CODE, NOTES, SHELL
from datastores.tokenised import Stretch, Tokenised
from engines import sources
from engines.target import Vocabulary

KINDS = {
    CHATS: sources.CHATS.bit_length() - 1,
    NOTES: sources.NOTES.bit_length() - 1,
    CODE: sources.CODE.bit_length() - 1,
    SHELL: sources.CODE.bit_length() - 1,
}
"""Kind of text → its number in CREST: the place of the bit of the source that is credited."""

PIECE = 2**16
"""Characters given to a tokenizer at once; it takes many times their memory."""


def identity_of(key: bytes, number: int) -> bytes:
    """Of passage `number` of the text under `key`."""
    return hashlib.sha256(number.to_bytes(4, "little") + key).digest()


def documents(text: Tokenised) -> Iterator[Document]:
    """The passages of a text, as CREST wants them."""
    for number, stretch in enumerate(text.stretches):
        yield Document(identity_of(text.key, number), stretch.tokens, stretch.kind)


def tokenised(key: bytes, passages: Sequence[Passage], vocabulary: Vocabulary) -> Tokenised:
    """The token ids of `passages`; those that were kept, where this tokenizer made them."""
    stretches = []
    for passage in passages:
        if passage.tokens and passage.tokenizer == vocabulary.fingerprint:
            tokens = list(passage.tokens)
        else:
            pieces = (vocabulary.encode(piece) for piece in pieces_of(passage.text))
            tokens = [token for piece in pieces for token in piece]
        stretches.append(Stretch(KINDS[passage.kind], np.array(tokens, dtype=np.uint32)))
    return Tokenised(key, tuple(stretches))


def pieces_of(text: str, size: int = PIECE) -> Iterator[str]:
    """`text` in pieces of at most `size` characters, cut where lines end if they do."""
    start = 0
    while start < len(text):
        end = start + size
        if end < len(text):
            end = text.rfind("\n", start, end) + 1 or end
        yield text[start:end]
        start = end

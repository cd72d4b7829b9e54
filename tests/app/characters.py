"""A tokenizer of single characters, and projections made with it."""

from __future__ import annotations

BUDGET = 2**22
SENTENCE = "the walrus keeps seventeen brass telescopes"


class Characters:
    """A tokenizer: the token of a character is its code point plus an offset."""

    stops: frozenset[int] = frozenset()
    prompt_prefix: tuple[int, ...] = ()
    size = 2**21

    def __init__(self, fingerprint: str = "characters", offset: int = 1000) -> None:
        self.fingerprint = fingerprint
        self.offset = offset

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        return [ord(character) + self.offset for character in text]

    def text(self, token: int) -> str:
        return chr(token - self.offset)

    def piece(self, token: int) -> bytes:
        return chr(token - self.offset).encode()

"""Tokenizers of recorded models, from files: SentencePiece, Hugging Face, or a GGUF model's own.

Owns the choice by file name. Refuses to know what is encoded.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from app.bench.recordings import Encode
from datastores.errors import InputError

ENDS = ("</s>", "<|eot_id|>", "<|im_end|>", "<|endoftext|>", "<end_of_turn>", "<eos>")
"""Tokens that end an answer, by name, in the order in which they are looked for."""


@dataclass(frozen=True, slots=True)
class Encoder:
    """A tokenizer: its name for people, texts → ids, the token that ends an answer."""

    name: str
    encode: Encode
    end: int


def load_encoder(path: Path, threads: int = 1) -> Encoder:
    """The tokenizer in `path`: `*.model` (SentencePiece), `*.json` (tokenizers), or `*.gguf`.

    Raises:
        InputError: it cannot be read, or is none of these.
    """
    if not path.is_file():
        raise InputError(f"there is no tokenizer at {path}")
    if path.suffix == ".model":
        return _sentencepiece(path, threads)
    if path.suffix == ".json":
        return _tokenizers(path)
    if path.suffix == ".gguf":
        return _gguf(path)
    raise InputError(f"{path} is no tokenizer: give a .model, tokenizer.json or .gguf file")


def _sentencepiece(path: Path, threads: int) -> Encoder:
    from sentencepiece import SentencePieceProcessor

    try:
        processor = SentencePieceProcessor(model_file=str(path))
    except (OSError, RuntimeError) as error:
        raise InputError(f"cannot read the tokenizer {path}: {error}") from error

    def encode(texts: Sequence[str]) -> list[list[int]]:
        found: list[list[int]] = processor.encode(list(texts), num_threads=threads)
        return found

    return Encoder(path.name, encode, int(processor.eos_id()))


def _tokenizers(path: Path) -> Encoder:
    from tokenizers import Tokenizer

    try:
        text = path.read_text(encoding="utf-8")
        whole = "model" in json.loads(text)
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"cannot read the tokenizer {path}: {error}") from error
    if not whole:
        raise InputError(f"{path} is no tokenizer: it has no model in it")
    tokenizer = Tokenizer.from_str(text)
    known = (tokenizer.token_to_id(name) for name in ENDS)
    end = next((number for number in known if number is not None), tokenizer.get_vocab_size())

    def encode(texts: Sequence[str]) -> list[list[int]]:
        found = tokenizer.encode_batch(list(texts), add_special_tokens=False)
        return [one.ids for one in found]

    return Encoder(path.name, encode, end)


def _gguf(path: Path) -> Encoder:
    from engines.llama.tokenizer import load_vocabulary

    vocabulary = load_vocabulary(path)

    def encode(texts: Sequence[str]) -> list[list[int]]:
        return [vocabulary.encode(text) for text in texts]

    return Encoder(path.name, encode, min(vocabulary.stops))

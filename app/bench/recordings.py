"""Recorded answers as token ids: files of chats, and the tokenizers of the models that wrote them.

    {"id": "…-123", "messages": [{"role": "user", "content": "…"}, {"role": "assistant", …}]}

Owns the format, which chats are replayed and which may be history. A chat of the history whose
question is also replayed is left out, since it would give the answer away. A tokenizer is chosen by
its file name: SentencePiece, Hugging Face, or a GGUF model's own.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from datastores.crest.counting import TokenDocument
from datastores.errors import InputError
from engines.recorded_replay import Recorded

ENDS = ("</s>", "<|eot_id|>", "<|im_end|>", "<|endoftext|>", "<end_of_turn>", "<eos>")
"""Names of stop tokens, in the order they are looked up."""


@dataclass(frozen=True, slots=True)
class Encoder:
    """A tokenizer: its display name, texts → token ids, the token that ends an answer."""

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
    from engines.llama.vocabulary import load_vocabulary

    vocabulary = load_vocabulary(path)

    def encode(texts: Sequence[str]) -> list[list[int]]:
        return [vocabulary.encode(text) for text in texts]

    return Encoder(path.name, encode, min(vocabulary.stops))


Encode = Callable[[Sequence[str]], list[list[int]]]
"""Texts to token ids, in batches."""


@dataclass(frozen=True, slots=True)
class Said:
    """One message: who said it, and what."""

    role: str
    text: str


@dataclass(frozen=True, slots=True)
class RecordedChat:
    """One recorded chat; `number` is the number that ends its id, else that of its line."""

    number: int
    messages: tuple[Said, ...]

    @property
    def question(self) -> str:
        """Its first message, with normalised white space."""
        return " ".join(self.messages[0].text.split())


def read_chats(path: Path) -> Iterator[RecordedChat]:
    """The chats of a file, which may be compressed (`.xz`).

    Raises:
        InputError: it cannot be read, or a line is not a chat.
    """
    opened = lzma.open if path.suffix == ".xz" else open
    try:
        with opened(path, "rt", encoding="utf-8") as file:
            for number, line in enumerate(file):
                if line.strip():
                    yield _chat(path, number, line)
    except (OSError, UnicodeDecodeError, lzma.LZMAError, EOFError) as error:
        raise InputError(f"cannot read {path}: {error}") from error


def replayed_chats(paths: Sequence[Path], first: int) -> list[RecordedChat]:
    """The chats to replay: from each file those numbered `first` or more, or all if none is."""
    chosen = []
    for path in paths:
        chats = list(read_chats(path))
        chosen += [chat for chat in chats if chat.number >= first] or chats
    return chosen


def history_texts(paths: Sequence[Path], replayed: Sequence[RecordedChat]) -> Iterator[Said]:
    """Every message of the history, each text once, without chats whose question is replayed."""
    questions = {chat.question for chat in replayed}
    seen: set[bytes] = set()
    for path in paths:
        for chat in read_chats(path):
            if chat.question in questions:
                continue
            for said in chat.messages:
                digest = hashlib.sha256(f"{said.role}\n{said.text}".encode()).digest()
                if digest not in seen:
                    seen.add(digest)
                    yield said


def recordings(chats: Sequence[RecordedChat], encode: Encode, end: int) -> list[Recorded]:
    """Every answer of `chats` with the tokens before it; the few tokens of a template are left out.

    Args:
        end: the token that ends an answer.
    """
    found = []
    for chat in chats:
        before: list[int] = []
        for said, ids in zip(
            chat.messages, encode([one.text for one in chat.messages]), strict=True
        ):
            if said.role == "assistant":
                ids = [*ids, end]
                if len(ids) > 1:
                    found.append(Recorded(tuple(before), tuple(ids)))
            before += ids
    return found


def documents(texts: Sequence[Said], encode: Encode, end: int, kind: int) -> list[TokenDocument]:
    """Each message as one document."""
    made = []
    for said, ids in zip(texts, encode([one.text for one in texts]), strict=True):
        tokens = np.array([*ids, end] if said.role == "assistant" else ids, dtype=np.uint32)
        made.append(TokenDocument(hashlib.sha256(tokens.tobytes()).digest(), tokens, kind))
    return made


def _chat(path: Path, number: int, line: str) -> RecordedChat:
    try:
        record = json.loads(line)
        messages = tuple(Said(one["role"], one["content"]) for one in record["messages"])
        valid = bool(messages) and all(isinstance(one.text, str) for one in messages)
    except (ValueError, KeyError, TypeError, RecursionError):
        valid = False
    if not valid:
        raise InputError(
            f"{path}, line {number + 1}, is no chat: see `specchat bench crest --help`"
        )
    ending = re.search(r"(\d+)$", str(record.get("id", "")))
    return RecordedChat(int(ending[1]) if ending else number, messages)

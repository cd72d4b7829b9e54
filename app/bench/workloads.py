"""Chats for benchmarks: to answer, to simulate, and as the history that is drafted from.

Files have one chat a line, and may be compressed (`.xz`):

    {"id": "…", "messages": [{"role": "user", "content": "…"}, {"role": "assistant", …}]}

Past conversations come from specchat's history, its exports and those of other programs; private
chats are left out. Recorded answers become token ids with the tokenizers of the models that wrote
them: SentencePiece, Hugging Face, or a GGUF model's own, by the file's name.
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

from app.bench import extra
from app.conversation.restore import ExportedChat, read_export
from app.importing.import_file import ImportFile
from app.importing.readers import chat_exports, make_readers
from app.importing.reading import read_file
from datastores.chats.history import HistoryReader
from datastores.chats.records import StoredMessage
from datastores.crest.texts import TokenText
from datastores.errors import InputError
from datastores.library.documents import CHATS, Document, Part
from engines.chat_template.prompt_builder import Message
from engines.drafter_simulation import Recorded


@dataclass(frozen=True, slots=True)
class RecordedChat:
    """One chat of a file; `number` is the number that ends its id, or else that of its line."""

    id: str
    number: int
    messages: tuple[Message, ...]

    @property
    def question(self) -> str:
        """Its first message, with normalised white space."""
        return " ".join(self.messages[0].content.split())

    def contents(self, role: str) -> tuple[str, ...]:
        """The texts of one role, in order."""
        return tuple(message.content for message in self.messages if message.role == role)


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
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except (UnicodeDecodeError, lzma.LZMAError, EOFError) as error:
        raise InputError(f"cannot read {path}: {error}") from error


def _chat(path: Path, number: int, line: str) -> RecordedChat:
    try:
        record = json.loads(line)
        messages = tuple(Message(one["role"], one["content"]) for one in record["messages"])
        name = str(record.get("id", number))
        valid = bool(messages) and all(isinstance(one.content, str) for one in messages)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        valid = False
    if not valid:
        raise InputError(
            f'{path}, line {number + 1}: expected {{"id", "messages": [{{"role", "content"}}, …]}}'
        )
    ending = re.search(r"(\d+)$", name)
    return RecordedChat(name, int(ending[1]) if ending else number, messages)


@dataclass(frozen=True, slots=True)
class Workload:
    """One chat to answer: the person's messages, and recorded answers to be written instead of the
    model's own, if any."""

    id: str
    questions: tuple[str, ...]
    answers: tuple[str, ...] = ()


def read_workload(path: Path, *, recorded: bool = False) -> list[Workload]:
    """The chats in `path` to answer, with their answers only if `recorded`.

    Raises:
        InputError: as `read_chats`; there is no chat, or one without a question or, if `recorded`,
            without its answers.
    """
    chats = [
        Workload(chat.id, _questions(chat, path), _answers(chat, path) if recorded else ())
        for chat in read_chats(path)
    ]
    if not chats:
        raise InputError(f"the workload {path} holds no chats")
    return chats


def _questions(chat: RecordedChat, path: Path) -> tuple[str, ...]:
    questions = chat.contents("user")
    if not questions:
        raise InputError(f"{path}, chat {chat.id}: no message of role user")
    return questions


def _answers(chat: RecordedChat, path: Path) -> tuple[str, ...]:
    roles = [message.role for message in chat.messages]
    if roles != ["user", "assistant"] * (len(roles) // 2):
        raise InputError(f"{path}, chat {chat.id}: not every question has a recorded answer")
    return chat.contents("assistant")


PastConversation = Sequence[StoredMessage]
"""One chat; parents come before children."""


def from_history(history: HistoryReader) -> Iterator[PastConversation]:
    """Every chat that is not private, the oldest first."""
    for chat in sorted(history.chats(), key=lambda chat: chat.id):
        if not chat.private:
            yield history.tree(chat.id)


def from_files(paths: Sequence[Path]) -> Iterator[PastConversation]:
    """The chats of exports, in file order, in any format that `specchat import` reads.

    Raises:
        InputError: a file cannot be read, or holds no chats.
    """
    for path in paths:
        found = 0
        for conversation in _from_file(path):
            found += 1
            yield conversation
        if not found:
            raise InputError(f"{path} holds no chats that can be simulated")


def _from_file(path: Path) -> Iterator[PastConversation]:
    try:
        material = ImportFile(path.name, path.stat().st_size, lambda: path.open("rb"))
        is_own = chat_exports.is_own_export(material)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    if is_own:
        # The reader for imports drops token ids, which `read_export` keeps.
        for exported in read_export(path):
            if isinstance(exported, ExportedChat) and not exported.chat.private:
                yield exported.messages
        return
    for outcome in read_file(material, make_readers()):
        if isinstance(outcome, Document):
            parts = [part for part in outcome.parts if part.kind == CHATS]
            if parts:
                yield _messages(parts)


def _messages(parts: Sequence[Part]) -> list[StoredMessage]:
    """Parts as messages, each the child of the previous one."""
    return [
        StoredMessage(
            id=number,
            chat=0,
            parent=number - 1 or None,
            role=part.role,
            content=part.text,
            tokens=(),
            model="",
            tokenizer="",
            finish="stop",
            statistics={},
            created=0.0,
        )
        for number, part in enumerate(parts, start=1)
    ]


ENDS = ("</s>", "<|eot_id|>", "<|im_end|>", "<|endoftext|>", "<end_of_turn>", "<eos>")
"""Names of stop tokens, the first found counts."""


@dataclass(frozen=True, slots=True)
class Encoder:
    """A tokenizer; `end` is the token that ends an answer."""

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
    sentencepiece = extra("sentencepiece")
    try:
        processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    except (OSError, RuntimeError) as error:
        raise InputError(f"cannot read the tokenizer {path}: {error}") from error

    def encode(texts: Sequence[str]) -> list[list[int]]:
        found: list[list[int]] = processor.encode(list(texts), num_threads=threads)
        return found

    return Encoder(path.name, encode, int(processor.eos_id()))


def _tokenizers(path: Path) -> Encoder:
    tokenizers = extra("tokenizers")
    try:
        text = path.read_text(encoding="utf-8")
        whole = "model" in json.loads(text)
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"cannot read the tokenizer {path}: {error}") from error
    if not whole:
        raise InputError(f"{path} is no tokenizer: it has no model in it")
    tokenizer = tokenizers.Tokenizer.from_str(text)
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


def simulated_chats(paths: Sequence[Path], first: int) -> list[RecordedChat]:
    """The chats to simulate: from each file those numbered `first` or more, or all if none is."""
    chosen = []
    for path in paths:
        chats = list(read_chats(path))
        chosen += [chat for chat in chats if chat.number >= first] or chats
    return chosen


def history_texts(paths: Sequence[Path], simulated: Sequence[RecordedChat]) -> Iterator[Message]:
    """Every message of the history, each text once.

    Chats whose question is also simulated are left out: they would give the answer away.
    """
    questions = {chat.question for chat in simulated}
    seen: set[bytes] = set()
    for path in paths:
        for chat in read_chats(path):
            if chat.question in questions:
                continue
            for message in chat.messages:
                digest = hashlib.sha256(f"{message.role}\n{message.content}".encode()).digest()
                if digest not in seen:
                    seen.add(digest)
                    yield message


def recordings(chats: Sequence[RecordedChat], encode: Encode, end: int) -> list[Recorded]:
    """Every answer of `chats` with the tokens before it; the few tokens of a template are left out.

    Args:
        end: the token that ends an answer.
    """
    found = []
    for chat in chats:
        before: list[int] = []
        texts = encode([message.content for message in chat.messages])
        for message, ids in zip(chat.messages, texts, strict=True):
            if message.role == "assistant":
                ids = [*ids, end]
                if len(ids) > 1:
                    found.append(Recorded(tuple(before), tuple(ids)))
            before += ids
    return found


def token_texts(
    messages: Sequence[Message], encode: Encode, end: int, kind: int
) -> list[TokenText]:
    """Each message as one text."""
    made = []
    texts = encode([message.content for message in messages])
    for message, ids in zip(messages, texts, strict=True):
        tokens = np.array([*ids, end] if message.role == "assistant" else ids, dtype=np.uint32)
        made.append(TokenText(hashlib.sha256(tokens.tobytes()).digest(), tokens, kind))
    return made

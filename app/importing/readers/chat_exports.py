"""JSON: chat exports of any program, and anything else as plain text.

Reads a file record by record; `chat_records` finds the chats in each. Exports without messages are
handled here: Gemini's activities in a Google account, Claude's projects and memories, and the
histories of text-generation-webui.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any

from app.importing.events import SkippedFile
from app.importing.import_file import (
    MAX_ENTRY_BYTES,
    MIB,
    NO_TEXT,
    FormatReader,
    ImportFile,
    Outcome,
)
from app.importing.json_stream import (
    DAMAGED,
    JSON_LINES_SUFFIXES,
    JsonRecord,
    json_shape,
    looks_like_json,
    mapping,
    records,
    sequence,
    string,
    utf8_head,
)
from app.importing.readers.chat_messages import ASSISTANT, USER, is_message, message_parts
from app.importing.readers.chat_records import (
    PRIVATE,
    FoundChat,
    chat_id,
    chats_in,
    date_of,
    is_whole,
    title_of,
)
from app.importing.readers.html import html_text
from app.importing.readers.text import kind_of, read_json_text, read_text
from app.importing.skipped_names import CONVERSATIONS_FILE
from datastores.errors import InputError
from datastores.library.documents import CHATS, Document, Part, dated_title

MAX_RECORDS_WITHOUT_CHAT = 1000
MAX_BYTES_WITHOUT_CHAT = 64 * MIB
"""A file without a chat in this many records or bytes is not a chat export."""

MAX_TITLE_CHARACTERS = 80

_OWN = re.compile(rb'"specchat"\s*:\s*\d')

_ACTIVITY = re.compile(r"(?:Prompted|Asked|Said|Branched|Answered)(?: (?:with|Gemini|Bard):)? ")
"""Google's prefix of the person's words."""

_HISTORY_START = "<|BEGIN-VISIBLE-CHAT|>"
"""Placeholder of text-generation-webui for the question before the model's greeting."""


def is_own_export(file: ImportFile) -> bool:
    """Whether it begins like an export by specchat."""
    head = utf8_head(file)
    return (
        looks_like_json(file)
        and _OWN.search(head) is not None
        and json_shape(head).keys >= {"specchat", "chats"}
    )


def _is_named_json(file: ImportFile) -> bool:
    return file.suffix in (".json", *JSON_LINES_SUFFIXES)


def _claims(file: ImportFile) -> bool:
    return _is_named_json(file) or looks_like_json(file)


def _read(file: ImportFile) -> Iterator[Outcome]:
    """The chats in `file`, or all of it as text if there are none."""
    is_export = is_own_export(file)
    waiting: list[SkippedFile] = []
    try:
        for outcome in _ChatFile(file, is_export).outcomes():
            if isinstance(outcome, Document) or outcome.reason == PRIVATE or is_export:
                is_export = True
                yield from waiting
                waiting.clear()
                yield outcome
            else:
                waiting.append(outcome)
                if len(waiting) == MAX_RECORDS_WITHOUT_CHAT:
                    break
    except InputError:
        if is_export or _is_named_json(file):
            raise
    if not is_export:
        yield from _read_as_text(file, {skipped.reason for skipped in waiting})


JSON = FormatReader("JSON", _claims, _read)


def _read_as_text(file: ImportFile, reasons: Set[str]) -> Iterator[Outcome]:
    if CONVERSATIONS_FILE.fullmatch(file.filename) and DAMAGED in reasons:
        raise InputError("not a known chat export, or a damaged one")
    return read_json_text(file) if _is_named_json(file) else read_text(file)


class _ChatFile:
    """Reads a file record by record.

    Some programs write each message as a record: the messages of one chat are consecutive, and the
    record before them, if it holds no chat itself, describes it.
    """

    def __init__(self, file: ImportFile, is_own: bool) -> None:
        self._file = file
        self._is_own = is_own
        self._header: JsonRecord | None = None
        self._run = FoundChat()
        self._run_id = ""
        self._run_size = 0
        self._runs = 0
        self._found = False

    def outcomes(self) -> Iterator[Outcome]:
        """The chats, and what is skipped.

        Raises:
            InputError: the rest cannot be read.
        """
        size = 0
        for record in records(self._file, is_message, is_whole):
            if isinstance(record, JsonRecord) and is_message(record.value):
                yield from self._add_message(record.value)
                continue
            yield from self._end_header()
            if isinstance(record, SkippedFile):
                yield record
                continue
            yield from self._outcomes_of(record)
            size += record.size
            if size > MAX_BYTES_WITHOUT_CHAT and not self._found and not self._run.parts:
                return
        yield from self._end_header()
        yield from self._end_run()

    def _outcomes_of(self, record: JsonRecord) -> Iterator[Outcome]:
        found = False
        try:
            for outcome in self._in_record(record):
                found = True
                yield outcome
        except InputError as error:
            found = True
            yield SkippedFile(self._name(record), str(error))
        rest = record.rest or (self._is_own and "specchat" in mapping(record.value))
        if not found and not rest and not self._runs and not self._run.parts:
            self._header = record

    def _in_record(self, record: JsonRecord) -> Iterator[Outcome]:
        value = mapping(record.value)
        if self._is_own and value.get("private"):
            raise InputError(PRIVATE)
        for document in (*_project(value), *_memories(value)):
            self._found = True
            yield document
        yield from self._activity(value, record)
        yield from self._document(_history(value), record.number)
        for chat in chats_in(record.value):
            yield from self._document(chat, record.number)

    def _activity(self, value: Mapping[str, Any], record: JsonRecord) -> Iterator[Outcome]:
        """A question to Gemini and its answer, a web page, from a Google account's activities."""
        product = " ".join(map(string, (value.get("header"), *sequence(value.get("products")))))
        question, asked = _ACTIVITY.subn("", string(value.get("title")), count=1)
        pages = [string(mapping(item).get("html")) for item in sequence(value.get("safeHtmlItem"))]
        if not question or not re.search("Gemini|Bard", product) or not (asked or any(pages)):
            return
        chat = FoundChat(question.partition("\n")[0][:MAX_TITLE_CHARACTERS], date_of(value))
        chat.parts.append(Part(CHATS, question, USER))
        for page in filter(str.strip, pages):
            answer = html_text(b"<meta charset=utf-8>" + page.encode("utf-8", "replace"))
            if answer.strip():
                chat.parts.append(Part(CHATS, answer, ASSISTANT))
            else:
                yield SkippedFile(self._name(record), NO_TEXT)
        yield from self._document(chat, record.number)

    def _add_message(self, message: Mapping[str, Any]) -> Iterator[Outcome]:
        if chat_id(message) != self._run_id or self._run_size > MAX_ENTRY_BYTES:
            yield from self._end_run()
            self._run_id = chat_id(message)
        if self._header is not None:
            header = mapping(self._header.value)
            self._run.title, self._run.date = title_of(header), date_of(header)
            self._header = None
        self._run.date = self._run.date or date_of(message)
        parts = tuple(message_parts(message))
        self._run.parts += parts
        self._run_size += sum(len(part.text) for part in parts)

    def _end_run(self) -> Iterator[Outcome]:
        ended, self._run, self._run_size = self._run, FoundChat(), 0
        self._runs += bool(ended.parts)
        yield from self._document(ended, self._runs)

    def _end_header(self) -> Iterator[Outcome]:
        if self._header is not None:
            yield SkippedFile(self._name(self._header), "no messages in it")
            self._header = None

    def _document(self, chat: FoundChat, number: int) -> Iterator[Document]:
        if chat.parts:
            self._found = True
            title = chat.title or f"{self._file.stem} {number}"
            yield Document(dated_title(title, chat.date), tuple(chat.parts))

    def _name(self, record: JsonRecord) -> str:
        return f"{self._file.name}, chat {record.number}"


def _project(record: Mapping[str, Any]) -> Iterator[Document]:
    """The description, the files and the instructions of a project in Claude."""
    docs = [doc for doc in map(mapping, sequence(record.get("docs"))) if string(doc.get("content"))]
    if not docs and "prompt_template" not in record:
        return
    texts = [(string(doc.get("filename")), string(doc["content"])) for doc in docs]
    texts.insert(0, ("description", string(record.get("description"))))
    texts.append(("instructions", string(record.get("prompt_template"))))
    yield from _notes(title_of(record), texts)


def _memories(record: Mapping[str, Any]) -> Iterator[Document]:
    memories = mapping(record.get("project_memories"))
    texts = [("chats", string(record.get("conversations_memory")))]
    texts += [(f"project {key}", string(text)) for key, text in memories.items()]
    yield from _notes("Memories", texts)


def _notes(title: str, texts: Iterable[tuple[str, str]]) -> Iterator[Document]:
    """A document for each named note that has text."""
    for name, text in texts:
        if text.strip():
            yield Document(f"{title}: {name}", (Part(kind_of(name.lower()), text),))


def _history(record: Mapping[str, Any]) -> FoundChat:
    """A chat of text-generation-webui, which stores pairs of question and answer."""
    pairs = sequence(record.get("internal")) if "visible" in record else ()
    chat = FoundChat(title_of(record), date_of(record))
    for pair in map(sequence, pairs):
        for role, text in zip((USER, ASSISTANT), pair, strict=False):
            if string(text).strip() and text != _HISTORY_START:
                chat.parts.append(Part(CHATS, text, role))
    return chat

"""Citations: the passages of imported texts that an answer used, what became of the search, and the
sources of borrowed words, as stored with the answer and as said to the person.

Only places (for imported chats, their titles) and a digest are stored, never text, so that what was
deleted from the library cannot be read here either. Of the person's own chats not even the title
is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from app.figures import amount, percent
from app.locations import Locations
from datastores.errors import InputError
from datastores.library.documents import CHATS

if TYPE_CHECKING:
    from app.indexing.passage_index import FoundPassage
    from datastores.chats.history import HistoryReader
    from datastores.chats.records import Chat, StoredMessage
    from datastores.passages.chunks import Chunk, Passage

CITATIONS_KEY = "citations"
"""The key of the citations among an answer's figures; the list is empty if it used no passage."""
SEARCH_KEY = "search"
"""The key of the `SearchOutcome` among them."""
DOCUMENTS_KEY = "documents"
"""The key of the digests of all documents whose passages it was given, in hexadecimal."""
SOURCES_KEY = "sources"
"""The key of the `Source`s among them; absent without KNN-LM."""
FORMER_TOO_LONG_KEY = "passage_too_long"

MAX_PLACE = 400
"""Most characters shown of a citation's place."""

MIN_SHARE = 0.25
"""Minimum share of an answer's own words that are in a passage it used, and in no other. Answers of
Qwen2.5-Coder 1.5B that are from a note have .29 or more of it."""

_FENCE = re.compile(r"^[ \t]*```.*", re.MULTILINE)
"""The marks around code, and its language."""

UNTITLED, DELETED_CHAT = "untitled", "a chat that was deleted"
NO_PASSAGE = "No passage fits: answered without your notes"
PASSAGE_TOO_LONG = (
    "A passage of your imports matches, but does not fit into the context: raise `context` in the"
    " settings."
)


@dataclass(frozen=True, slots=True)
class SearchOutcome:
    """What a search of imports brought for an answer.

    Attributes:
        read: number of passages in its prompts.
        rejected: number of passages that were left out, as they do not state the answer.
        too_long: whether not even the best passage fitted.
        unindexed: number of imported texts that were not indexed yet, of all `texts`.
    """

    read: int = 0
    too_long: bool = False
    unindexed: int = 0
    texts: int = 0
    rejected: int = 0

    def lines(self, used: int) -> list[str]:
        """What happened, in words for the person.

        Args:
            used: number of passages that the answer used.
        """
        lines = [PASSAGE_TOO_LONG if self.too_long else self._passages(used)]
        if self.unindexed:
            lines.append(f"Notes not searched yet: {self.unindexed:,} of {self.texts:,}")
        return lines

    def _passages(self, used: int) -> str:
        if not max(used, self.read):
            return NO_PASSAGE
        if used < self.read:
            read = amount(self.read, "passage")
            return f"{used} of {read} used" if used else f"{read} read, none used"
        return f"{amount(used, 'passage')} used"


NOTHING_FOUND = SearchOutcome()


@dataclass(frozen=True, slots=True)
class Citation:
    """A passage that an answer used.

    Attributes:
        file: the file it is in: the name of `import_path` itself, or a name within it.
        part: number of the document's part (a chat's message), from 0.
        first_line, last_line: its lines in that part, counted from 1.
        digest: of its heading and content, in hexadecimal.
        import_name: what the import was called.
        chat: title and date of the imported chat that it is from; empty for other documents.
    """

    import_path: str
    file: str
    part: int
    first_line: int
    last_line: int
    digest: str
    import_name: str = ""
    chat: str = ""

    @property
    def path(self) -> Path:
        """The file on disk, which may be gone."""
        import_path = Path(self.import_path)
        return import_path if import_path.name == self.file else import_path / self.file

    @property
    def place(self) -> str:
        """The place within its import: `notes/bike.md:12-20`, or the chat and the number of the
        message; not sanitised."""
        return _imported_place(self)


@dataclass(frozen=True, slots=True)
class Source(Citation):
    """A text that words of an answer came from (KNN-LM), at the passage that gave most of them.

    Attributes:
        share: of the answer's tokens, in expectation.
        owner: of an own chat, `app.conversation.privacy.owner_of_chat`; its title is `chat`, where
            it is known. Empty for imports.
        message: id of the message in it.
    """

    share: float = 0.0
    owner: str = ""
    message: int = 0

    @property
    def place(self) -> str:
        """See `Citation.place`, with the share."""
        if not self.owner:
            return f"{_imported_place(self)} ({percent(self.share)})"
        return f"{f'Chats: {self.chat}' if self.chat else DELETED_CHAT} ({percent(self.share)})"


def _imported_place(cited: Citation) -> str:
    name = cited.import_name or Path(cited.import_path).name
    if cited.chat:
        return f"{name}: {cited.chat}, message {cited.part + 1}"
    file = name if name.rpartition("/")[2] == cited.file else f"{name}/{cited.file}"
    last = f"-{cited.last_line}" if cited.last_line > cited.first_line else ""
    return f"{file}:{cited.first_line}{last}"


def citation(passage: FoundPassage) -> Citation:
    """The citation of a passage."""
    return Citation(**_values(passage))


def source(passage: FoundPassage, share: float) -> Source:
    """The source of `share` of an answer's tokens."""
    return Source(**_values(passage), share=share)


def own_source(chat: Chat, owner: str, message: int, share: float) -> Source:
    """The source of `share` of an answer's tokens in a message of an own chat."""
    title = chat.title or UNTITLED
    return Source("", "", 0, 1, 1, "", "", title, share, owner, message)


def _values(passage: FoundPassage) -> dict[str, Any]:
    """The fields of `Citation`."""
    chunk = passage.chunk
    return {
        "import_path": passage.import_path,
        "file": passage.file,
        "part": passage.part,
        "first_line": chunk.first_line,
        "last_line": chunk.last_line,
        "digest": chunk.digest.hex(),
        "import_name": passage.import_name,
        "chat": passage.title if passage.kind == CHATS else "",
    }


def citation_records(passages: Sequence[FoundPassage]) -> list[dict[str, object]]:
    """The citations of `passages`, for JSON."""
    return [asdict(citation(passage)) for passage in passages]


def source_records(sources: Iterable[Source]) -> list[dict[str, object]]:
    """`sources` as they are stored: without titles of own chats, which may be deleted."""
    return [asdict(replace(one, chat="") if one.owner else one) for one in sources]


def stored_citations(figures: Mapping[str, object]) -> list[Citation]:
    """The citations, or else the sources, among the figures of an answer.

    Restored chats may hold anything: what is none is left out.
    """
    kinds = ((CITATIONS_KEY, Citation), (SOURCES_KEY, Source))
    return [one for key, kind in kinds for one in _stored_of(kind, figures.get(key))]


def own_titles(history: HistoryReader, messages: Iterable[StoredMessage]) -> dict[str, str]:
    """The titles of own chats by owner, if any of `messages` has words of one.

    Raises:
        StoreError: the history cannot be read.
    """
    # Imported here: few answers need it, and it imports the engine.
    from app.conversation.privacy import owner_of_chat

    if not any(SOURCES_KEY in message.statistics for message in messages):
        return {}
    return {owner_of_chat(history.name, one.id): one.title or UNTITLED for one in history.chats()}


def titled(citations: Iterable[Citation], titles: Mapping[str, str]) -> list[Citation]:
    """`citations`, those of own chats with their `titles`."""
    return [
        replace(one, chat=titles.get(one.owner, ""))
        if isinstance(one, Source) and one.owner
        else one
        for one in citations
    ]


def stored_documents(figures: Mapping[str, Any]) -> frozenset[bytes]:
    """Keys of the documents whose passages an answer with these `figures` was given.

    Raises:
        InputError: they are damaged.
    """
    try:
        return frozenset(bytes.fromhex(key) for key in figures.get(DOCUMENTS_KEY, ()))
    except (TypeError, ValueError) as error:
        raise InputError("the figures of an answer are damaged: regenerate it") from error


def stored_outcome(figures: Mapping[str, object]) -> SearchOutcome | None:
    """The outcome among the figures of an answer; None if nothing was searched."""
    citations, stored = figures.get(CITATIONS_KEY), figures.get(SEARCH_KEY)
    if not isinstance(stored, Mapping):
        too_long = figures.get(FORMER_TOO_LONG_KEY) is True
        return SearchOutcome(too_long=too_long) if isinstance(citations, list) else None
    known: dict[str, Any] = {
        name: value
        for name, default in asdict(NOTHING_FOUND).items()
        if type(value := stored.get(name)) is type(default)
    }
    return replace(NOTHING_FOUND, **known)


def used_passages(
    answer: str, question: str, instruction: str, passages: Sequence[FoundPassage]
) -> tuple[FoundPassage, ...]:
    """Those of `passages` whose content is in `answer`, in the same order.

    Each has at least `MIN_SHARE` of the words of `answer` that are neither in `question` and
    `instruction` nor in a passage with more of them. All are used if the answer has only words of
    the question, which does not tell.
    """
    # Imported here: to print citations, no texts are compared.
    from datastores.passages.word_counts import keys_in
    from datastores.search_form import index_form
    from engines.retrieval.question_words import NO_SUBJECT

    texts = [_FENCE.sub("", answer), question, instruction, " ".join(NO_SUBJECT)]
    texts += [f"{one.source}\n{one.chunk.content}" for one in passages]
    own, asked, told, stop, *held = map(set, keys_in(list(map(index_form, texts))))
    own -= asked | stop
    if not own:
        return tuple(passages)
    words = own - told
    left, least, used = set(words), max(1.0, MIN_SHARE * len(words)), set[int]()
    while held:
        best = max(range(len(held)), key=lambda number: len(left & held[number]))
        if len(left & held[best]) < least:
            break
        used.add(best)
        left -= held[best]
    return tuple(one for number, one in enumerate(passages) if number in used)


AnyCitation = TypeVar("AnyCitation", bound=Citation)


def _stored_of(kind: type[AnyCitation], records: object) -> list[AnyCitation]:
    """Records of earlier versions have no `part`, no `digest`, and neither name nor chat."""
    types = {"str": str, "int": int, "float": float}
    found = list[AnyCitation]()
    for record in records if isinstance(records, list) else ():
        if isinstance(record, dict):
            values = {"part": 0, "digest": "", "import_name": "", "chat": "", **record}
            if all(type(values.get(one.name)) is types[str(one.type)] for one in fields(kind)):
                found.append(kind(**{one.name: values[one.name] for one in fields(kind)}))
    return found


@dataclass(frozen=True, slots=True)
class CitedText:
    """A cited passage as it is now.

    Attributes:
        chunk: the passage, or what replaced it; None if it is no longer imported.
        changed: whether the text changed since the answer.
        key: of its document in the library.
        own_chat: number of the own chat that it is in; 0 for imports.
    """

    chunk: Chunk | None
    changed: bool = False
    key: bytes = field(default=b"", compare=False)
    own_chat: int = 0


def read_cited(locations: Locations, citations: Sequence[Citation]) -> list[CitedText]:
    """The text of each citation, if it still exists. Call it in a thread.

    Raises:
        StoreError: a store cannot be read.
    """
    # Imported here: to print citations, no store is opened.
    from app.indexing.passage_index import open_passages
    from datastores.chats.history import History
    from datastores.library.library import Library

    with (
        closing(Library.open(locations.library)) as library,
        closing(open_passages(locations)) as passages,
        closing(History.open(locations.history)) as history,
    ):
        return [
            _own_message(history, one)
            if isinstance(one, Source) and one.owner
            else _cited(one, passages.of_texts(library.texts_in(one.import_path, one.file)))
            for one in citations
        ]


def _own_message(history: HistoryReader, source: Source) -> CitedText:
    """The message of an own chat that words came from."""
    from app.conversation.privacy import chat_of
    from datastores.passages.chunks import Chunk

    try:
        message = history.message(source.message)
    except InputError:
        return CitedText(None)
    if message.chat != chat_of(source.owner, history.name):
        return CitedText(None)
    lines = message.content.count("\n") + 1
    return CitedText(Chunk(source.chat, 1, lines, message.content), own_chat=message.chat)


def _cited(cited: Citation, present: Sequence[Passage]) -> CitedText:
    """The passage among those of its file, or else the one now at its lines."""
    in_part = [passage for passage in present if passage.part == cited.part]
    for passage in in_part:
        if passage.chunk.digest.hex() == cited.digest:
            return CitedText(passage.chunk, key=passage.text)
    at_lines = [passage for passage in in_part if passage.chunk.last_line >= cited.first_line]
    for replaced in (at_lines or in_part[-1:])[:1]:
        return CitedText(replaced.chunk, changed=bool(cited.digest), key=replaced.text)
    return CitedText(None)

"""Citations: the passages of imported texts that an answer used, and what became of the search, as
stored with the answer and as said to the person.

Only places (for imported chats, their titles) and a digest are stored, never text, so that what was
deleted from the library cannot be read here either.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.figures import amount
from app.locations import Locations
from datastores.library.documents import CHATS

if TYPE_CHECKING:
    from app.indexing.passage_index import FoundPassage
    from datastores.passages.chunks import Chunk, Passage

CITATIONS_KEY = "citations"
"""The key of the citations among an answer's figures; the list is empty if it used no passage."""
SEARCH_KEY = "search"
"""The key of the `SearchOutcome` among them."""
FORMER_TOO_LONG_KEY = "passage_too_long"

MAX_PLACE = 400
"""Most characters shown of a citation's place."""

MIN_SHARE = 0.25
"""Minimum share of an answer's own words that are in a passage it used, and in no other. Answers of
Qwen2.5-Coder 1.5B that are from a note have .29 or more of it."""

_FENCE = re.compile(r"^[ \t]*```.*", re.MULTILINE)
"""The marks around code, and its language."""

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
        too_long: whether not even the best passage fitted.
        unindexed: number of imported texts that were not indexed yet, of all `texts`.
    """

    read: int = 0
    too_long: bool = False
    unindexed: int = 0
    texts: int = 0

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
        name = self.import_name or Path(self.import_path).name
        if self.chat:
            return f"{name}: {self.chat}, message {self.part + 1}"
        file = name if name.rpartition("/")[2] == self.file else f"{name}/{self.file}"
        last = f"-{self.last_line}" if self.last_line > self.first_line else ""
        return f"{file}:{self.first_line}{last}"


def citation(passage: FoundPassage) -> Citation:
    """The citation of a passage."""
    chunk = passage.chunk
    return Citation(
        passage.import_path,
        passage.file,
        passage.part,
        chunk.first_line,
        chunk.last_line,
        chunk.digest.hex(),
        passage.import_name,
        passage.title if passage.kind == CHATS else "",
    )


def citation_records(passages: Sequence[FoundPassage]) -> list[dict[str, object]]:
    """The citations of `passages`, for JSON."""
    return [asdict(citation(passage)) for passage in passages]


def stored_citations(figures: Mapping[str, object]) -> list[Citation]:
    """The citations among the figures of an answer.

    Restored chats may hold anything: what is no citation is left out.
    """
    records = figures.get(CITATIONS_KEY)
    if not isinstance(records, list):
        return []
    return [found for record in records if (found := _stored(record)) is not None]


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


def _stored(record: object) -> Citation | None:
    """Records of earlier versions have no `part`, no `digest`, and neither name nor chat."""
    if not isinstance(record, dict):
        return None
    values = {"part": 0, "digest": "", "import_name": "", "chat": "", **record}
    kinds = {"str": str, "int": int}
    if any(type(values.get(one.name)) is not kinds[str(one.type)] for one in fields(Citation)):
        return None
    return Citation(**{one.name: values[one.name] for one in fields(Citation)})


@dataclass(frozen=True, slots=True)
class CitedText:
    """A cited passage as it is now.

    Attributes:
        chunk: the passage, or what replaced it; None if it is no longer imported.
        changed: whether the text changed since the answer.
        key: of its document in the library.
    """

    chunk: Chunk | None
    changed: bool = False
    key: bytes = field(default=b"", compare=False)


def read_cited(locations: Locations, citations: Sequence[Citation]) -> list[CitedText]:
    """The text of each citation, if it is still imported. Call it in a thread.

    Raises:
        StoreError: a store cannot be read.
    """
    # Imported here: to print citations, no library is opened.
    from app.indexing.passage_index import open_passages
    from datastores.library.library import Library

    with (
        closing(Library.open(locations.library)) as library,
        closing(open_passages(locations)) as passages,
    ):
        return [
            _cited(one, passages.of_texts(library.texts_in(one.import_path, one.file)))
            for one in citations
        ]


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

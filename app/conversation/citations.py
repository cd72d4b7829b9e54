"""Citations: the passages of imported texts that an answer was given, as stored with the answer.

Only places (for imported chats, their titles) and a digest are stored, never text, so that what was
deleted from the library cannot be read here either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from app.indexing.passage_index import FoundPassage, open_passages
from app.locations import Locations
from datastores.library.documents import CHATS
from datastores.library.library import Library
from datastores.passages.chunks import Chunk, Passage

CITATIONS_KEY = "citations"
"""The key of the citations among an answer's figures; the list is empty if nothing was relevant."""
TOO_LONG_KEY = "passage_too_long"
"""Stored with an answer if not even the best relevant passage fitted."""

MAX_PLACE = 400
"""Most characters shown of a citation's place."""

NO_PASSAGE = "No passage of your imports matches."
PASSAGE_TOO_LONG = (
    "A passage of your imports matches, but does not fit into the context: raise `context` in the"
    " settings."
)


@dataclass(frozen=True, slots=True)
class Citation:
    """A passage in the context of an answer.

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


def why_none(*, requested: bool, too_long: bool) -> str:
    """Why an answer cites nothing, in a sentence; empty if that is not worth one.

    Args:
        requested: whether the person asked for imports to be searched.
        too_long: whether there was a relevant passage, but not even the best fitted.
    """
    if too_long:
        return PASSAGE_TOO_LONG
    return NO_PASSAGE if requested else ""


def stored_why_none(figures: Mapping[str, object]) -> str:
    """The same from the figures of an answer."""
    searched = isinstance(figures.get(CITATIONS_KEY), list)
    return why_none(requested=searched, too_long=figures.get(TOO_LONG_KEY) is True)


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

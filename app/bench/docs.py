"""`python -m app.bench docs`: whether answers that stand in a person's texts are found and given.

A corpus is imported and indexed by the product's own parts into a temporary folder. For each
question its documents are looked for in the ranking, and, with a model, among the passages in its
prompt and in its answer, which the `Assistant` writes as for `specchat ask`. Only the settings are
the person's. A rank is that of the document's best passage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

from app.bench.questions import KINDS, NOTHING, TWO, GradedQuestion, declines, is_right
from app.cli.output import StatusLine
from app.cli.stores import index_by_meaning, update_index
from app.config import Options
from app.conversation.assistant import Assistant
from app.conversation.events import Cited, Event, Retrieved, Wrote
from app.conversation.follow_up import completed
from app.conversation.imported_texts import ImportedTexts
from app.importing.session import import_into
from app.indexing.passage_index import FoundPassage
from app.locations import Locations
from datastores.chats.history import History
from datastores.chats.records import ASSISTANT, USER
from datastores.errors import InputError
from datastores.library.library import Library
from engines.chat_template.reasoning import AnswerStream

DEPTHS = (1, 3, 8)
"""Recall is reported among the first 1, 3 and 8 passages."""
UNANSWERED = "…"
"""Stands for the answers to earlier questions where only passages are wanted."""


@contextmanager
def indexed(
    options: Options, settings: Locations, texts: Path, questions: Sequence[GradedQuestion]
) -> Iterator[Locations]:
    """Temporary stores that hold the folder `texts` as imported and indexed, embeddings included.

    Args:
        settings: where the person's settings are.

    Raises:
        InputError: there is nothing to import, or not every document of the questions.
    """
    with TemporaryDirectory(prefix="specchat-bench-") as folder:
        root = Path(folder)
        locations = Locations(root, root / "cache", settings.config)
        locations.create()
        with closing(Library.open(locations.library)) as library:
            for _ in import_into(library, locations, [texts]):
                pass
            missing = _documents(questions) - _names(library)
        if missing:
            raise InputError(f"{texts} holds no document '{min(missing)}'")
        update_index(options, locations, StatusLine())
        index_by_meaning(locations, StatusLine())
        yield locations


def _raise(error: Exception) -> None:
    raise error


def _documents(questions: Sequence[GradedQuestion]) -> set[str]:
    return {document for question in questions for document in question.documents}


def _names(library: Library) -> set[str]:
    texts = {key for _, key in library.import_texts()}
    places = [place for key in texts for place in library.places(key)]
    return {name for place in places for name in (place.file, place.title)}


@dataclass(frozen=True, slots=True)
class Ranking:
    """The ranked passages for a question, whether or not they are relevant.

    Attributes:
        ranks: of each document of the question, from 1; None if it is not among them.
    """

    question: GradedQuestion
    passages: Sequence[FoundPassage]
    ranks: tuple[int | None, ...]
    seconds: float

    def among(self, depth: int) -> int:
        """Number of the question's documents among the first `depth` passages."""
        return sum(rank is not None and rank <= depth for rank in self.ranks)


def rankings(locations: Locations, questions: Sequence[GradedQuestion]) -> Iterator[Ranking]:
    """The first passages for each question, as an answer's are ranked. No target is loaded."""
    with closing(ImportedTexts.open(locations, _raise)) as imports:
        imports.ranked(questions[0].text, DEPTHS[-1])  # loads the models of the ranking
        for question in questions:
            started = perf_counter()
            found = imports.ranked(completed(question.before, question.text), DEPTHS[-1])
            seconds = perf_counter() - started
            ranks = tuple(_rank(found, document) for document in question.documents)
            yield Ranking(question, found, ranks, seconds)


def _rank(passages: Sequence[FoundPassage], document: str) -> int | None:
    named = (rank for rank, one in enumerate(passages, 1) if document in (one.file, one.title))
    return next(named, None)


@dataclass(frozen=True, slots=True)
class Answered:
    """The passages that a question's prompt has, and the answer; None if it was not asked for."""

    question: GradedQuestion
    passages: tuple[FoundPassage, ...]
    text: str | None

    @property
    def cited(self) -> int:
        """Number of the question's documents among the passages."""
        ranks = (_rank(self.passages, document) for document in self.question.documents)
        return sum(rank is not None for rank in ranks)

    @property
    def right(self) -> bool:
        """Whether the answer has what the documents say."""
        return self.text is not None and is_right(self.text, self.question.answer)

    @property
    def declined(self) -> bool:
        """Whether the answer says that it is not known."""
        return self.text is not None and declines(self.text) and not self.right

    @property
    def invented(self) -> bool:
        """Whether the answer says something else than the documents."""
        return self.text is not None and not self.right and not self.declined

    @property
    def failed(self) -> bool:
        """Whether it is not what it should be: right, or declined if nothing answers it."""
        if self.question.kind == NOTHING:
            return bool(self.passages) if self.text is None else not self.declined
        return self.cited < self.question.needed if self.text is None else not self.right


def answer(
    assistant: Assistant, history: History, question: GradedQuestion, *, write: bool
) -> Answered:
    """Ask `question`, after those before it, in a chat of its own.

    Args:
        write: write the answers; otherwise only the passages are found.
    """
    chat = history.create_chat().id
    for text in question.before:
        if write:
            _read(assistant.answer(chat, history.chat(chat).active, text))
            continue
        asked = history.add_message(chat, history.chat(chat).active, USER, text)
        history.add_message(chat, asked.id, ASSISTANT, UNANSWERED)
    if write:
        passages, said = _read(assistant.answer(chat, history.chat(chat).active, question.text))
        return Answered(question, passages, said)
    with closing(assistant.answer_unsaved(history.chat(chat).active, question.text)) as events:
        first = next(events)
    return Answered(question, first.passages if isinstance(first, Retrieved) else (), None)


def _read(events: Iterator[Event]) -> tuple[tuple[FoundPassage, ...], str]:
    """The passages and the answer without its reasoning."""
    stream, passages = AnswerStream(), tuple[FoundPassage, ...]()
    for event in events:
        if isinstance(event, Retrieved | Cited):
            passages = event.passages
        elif isinstance(event, Wrote):
            stream.append("".join(piece.text for piece in event.pieces))
    stream.append("", last=True)
    return passages, stream.split.answer


def spread(questions: Sequence[GradedQuestion], limit: int) -> frozenset[int]:
    """The numbers of `limit` questions, evenly spread over each kind in turn."""
    order = sorted(range(len(questions)), key=lambda number: KINDS.index(questions[number].kind))
    count = min(limit, len(order))
    return frozenset(order[place * len(order) // count] for place in range(count))


Row = dict[str, object]
ALL = "all"
"""Names the row of every kind together."""


def ranking_rows(found: Sequence[Ranking]) -> list[Row]:
    """A row for each kind of question, and one for all, with shares of the questions.

    `at` counts questions with one of their documents among the first passages, `both_at` those with
    all of them.
    """
    answerable = [one for one in found if one.ranks]
    groups = {kind: [one for one in answerable if one.question.kind == kind] for kind in KINDS}
    return [
        {
            "kind": kind,
            "questions": len(group),
            **{f"at_{depth}": _share(one.among(depth) > 0 for one in group) for depth in DEPTHS},
            **{
                f"both_at_{depth}": _share(
                    one.among(depth) == len(one.ranks) for one in group if kind == TWO
                )
                for depth in DEPTHS[1:]
            },
            "median_ms": 1000 * median(one.seconds for one in group),
        }
        for kind, group in {**groups, ALL: answerable}.items()
        if group
    ]


def answer_rows(found: Sequence[Answered]) -> list[Row]:
    """A row for each kind of question, with numbers of its questions; None where it cannot be.

    `cited` counts questions with a passage of one of their documents in the prompt (of any, where
    nothing answers them), `both_cited` those with all of them.
    """
    return [
        {
            "kind": kind,
            "questions": len(of_kind),
            "cited": sum(bool(one.passages if kind == NOTHING else one.cited) for one in of_kind),
            "both_cited": sum(one.cited == len(one.question.documents) for one in of_kind)
            if kind == TWO
            else None,
            "answered": len(said := [one for one in of_kind if one.text is not None]),
            "right": sum(one.right for one in said) if said and kind != NOTHING else None,
            "declined": sum(one.declined for one in said) if said else None,
            "invented": sum(one.invented for one in said) if said else None,
        }
        for kind in KINDS
        if (of_kind := [one for one in found if one.question.kind == kind])
    ]


def _share(hits: Iterable[bool]) -> float | None:
    """The share of true ones; None if there is nothing to count."""
    counted = list(hits)
    return sum(counted) / len(counted) if counted else None

"""A request for an answer: everything it is generated from, and the figures stored with it.

Answers in stored chats, unsaved answers and continued ones are all requested in this form.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace

from app.chat_settings import AnswerEnd
from app.conversation.citations import (
    CITATIONS_KEY,
    DOCUMENTS_KEY,
    NOTHING_FOUND,
    SEARCH_KEY,
    SOURCES_KEY,
    SearchOutcome,
    Source,
    citation_records,
    source_records,
    used_passages,
)
from app.conversation.context_window import WHOLE_CHAT, WINDOW_KEY, Boundary
from app.conversation.continuation import NOTHING_WRITTEN, SAMPLING_KEY, PartialAnswer
from app.conversation.events import Cited, Event, Finished, Retrieved, Wrote
from app.conversation.generation import GenerationRequest
from app.conversation.imported_texts import INSTRUCTION
from app.conversation.passage_check import with_passages
from app.conversation.statistics import ORIGINS_KEY, REMARK_KEY, STATES_KEY, Provenance, Statistics
from app.engine.engine import PassageForm
from app.indexing.passage_index import FoundPassage
from datastores.chats.records import SYSTEM, USER, Chat
from engines.chat_template.prompt_builder import Message
from engines.chat_template.reasoning import split_reasoning
from engines.sampler import Sampling
from engines.step import FINISH_STOP

LAST_WORD = re.compile(r"\w+$")


@dataclass(slots=True)
class AnswerRequest:
    """A question to the model.

    Attributes:
        question: id of the stored question; 0 if nothing is stored.
        messages: up to the question, as the model gets them.
        asked: the question's text without attachments.
        material: texts of the chat that may answer the question themselves.
        passages: passages before the question; None if no text was searched.
        cited: those of them that the answer used; None until it is complete.
        outcome: what else the search brought.
        searched_seconds: time that the search took.
        begun: the beginning that the answer continues.
        begun_from: keys of the documents that the beginning was given passages of.
        states: number of datastore entries that KNN-LM searches; None without KNN-LM.
        sources: of the words that KNN-LM took from them.
        window: the part of the chat left out of `messages`.
        prompted: the part left out of the prompt; None until there is a prompt.
        remark: a sentence about the answer, or empty.
        after_loop: whether an earlier answer of the chat looped until it was stopped.
        said: the text after `begun`, in pieces.
    """

    chat: Chat
    question: int
    messages: Sequence[Message]
    sampling: Sampling
    end: AnswerEnd
    asked: str
    material: Sequence[str] = ()
    passages: Sequence[FoundPassage] | None = None
    cited: Sequence[FoundPassage] | None = None
    outcome: SearchOutcome = NOTHING_FOUND
    searched_seconds: float = 0.0
    begun: PartialAnswer = NOTHING_WRITTEN
    begun_from: frozenset[bytes] = frozenset()
    states: int | None = None
    sources: Sequence[Source] = ()
    window: Boundary = WHOLE_CHAT
    prompted: Boundary | None = None
    remark: str = ""
    after_loop: bool = False
    said: list[str] = field(default_factory=list)

    @property
    def left_out(self) -> Boundary:
        """The part of the chat left out of the prompt, as far as it is known."""
        return self.prompted or self.window

    @property
    def asked_before(self) -> list[str]:
        """The messages of the person before the question."""
        return [message.content for message in self.messages[:-1] if message.role == USER]

    @property
    def documents(self) -> frozenset[bytes]:
        """Keys of the documents that the answer's passages are from."""
        return self.begun_from.union(passage.text for passage in self.passages or ())

    def citing(self, event: Event) -> Iterator[Cited]:
        """`Cited`, before the `event` that ends the answer, if texts were searched.

        To be called with every event of the answer, in order.
        """
        if isinstance(event, Retrieved):
            self.passages, self.outcome = event.passages, event.outcome or self.outcome
        elif isinstance(event, Wrote):
            self.said += (piece.text for piece in event.pieces)
        elif isinstance(event, Finished) and self.passages is not None:
            answer = "".join((self.begun.text, *self.said))
            yield self._cite(answer, self.passages, event.finish)

    def _cite(self, said: str, passages: Sequence[FoundPassage], finish: str) -> Cited:
        answer = split_reasoning(said).answer
        if finish != FINISH_STOP:  # its last word may be a part of one
            answer = LAST_WORD.sub("", answer)
        cited = used_passages(answer, self.asked, INSTRUCTION, passages)
        self.cited, self.outcome = cited, replace(self.outcome, read=len(passages))
        return Cited(cited, self.outcome)

    def prompted_messages(self) -> list[Message]:
        """Those of `messages` that are in the prompt, without notes."""
        system = self.messages[:1] if self.messages[0].role == SYSTEM else []
        start = len(system) + self.left_out.dropped - self.window.dropped
        return [*system, *self.messages[start:]]

    def generation(
        self, form: PassageForm, passages: Sequence[FoundPassage] = ()
    ) -> GenerationRequest:
        """The request to the model, with `passages` in this form before the question."""
        return GenerationRequest(
            with_passages(form, self.messages, passages, self.outcome, self.asked),
            self.sampling,
            self.end,
            self.begun.tokens,
            self.window.dropped,
            waited_seconds=self.searched_seconds,
        )

    def figures(self, statistics: Statistics, provenance: Provenance) -> dict[str, object]:
        """The figures stored with the answer."""
        figures: dict[str, object] = {
            **statistics.after(self.begun.figures).figures(),
            "seed": self.sampling.seed,
            SAMPLING_KEY: asdict(self.sampling),
            ORIGINS_KEY: provenance.runs(),
        }
        if self.states is not None:
            figures[STATES_KEY] = self.states
            figures[SOURCES_KEY] = source_records(self.sources)
        if self.left_out.dropped:
            figures[WINDOW_KEY] = asdict(self.left_out)
        if self.passages is not None:
            cited = self.passages if self.cited is None else self.cited
            figures[CITATIONS_KEY] = citation_records(cited)
            figures[SEARCH_KEY] = asdict(self.outcome)
        if self.documents:  # also where a continued answer searches nothing
            figures[DOCUMENTS_KEY] = sorted(key.hex() for key in self.documents)
        if self.remark:
            figures[REMARK_KEY] = self.remark
        return self.begun.with_citations(figures)

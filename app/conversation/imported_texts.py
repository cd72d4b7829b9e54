"""Answering from imported texts: the passages that go before a question, and in which form.

`app.indexing.passage_index` stores and ranks passages; `citations.py` cites them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import cache, partial
from pathlib import Path
from typing import TypeVar

from app.config import load_config
from app.conversation.citations import stored_citations
from app.conversation.context_window import max_prompt_tokens
from app.engine.engine import Engine, PassageForm
from app.indexing.embedding import PassageEmbedding
from app.indexing.passage_index import FoundPassage, Gate, find, locate, open_passages, translations
from app.locations import Locations
from app.models.discovery import embedded_question_model
from app.models.selection import choose_embedder
from app.sanitise import one_line
from datastores.chats.records import SYSTEM, StoredMessage
from datastores.errors import ModelError, SpecchatError
from datastores.library.library import Library
from datastores.passages.chunks import Passage
from datastores.passages.store import PassageStore
from engines.chat_template.prompt_builder import Message
from engines.ralm.knowledge_base import RankedKnowledgeBase
from engines.ralm.scheduler import OptimalStride
from engines.retrieval.bm25 import Bm25Retriever
from engines.retrieval.dense import DenseRetriever
from engines.retrieval.excerpts import describe_fit
from engines.retrieval.protocol import QuestionModel, ScoredPassage
from engines.target import Vocabulary

HEADER, EXCERPTS_HEADER = "Notes:", "Notes that {fit}:"
"""Begins the system message with the passages, as in the embedded model's training."""
INSTRUCTION = """\
The following excerpts are from the user's own notes; some may be about something else. Answer the \
question from the excerpts if they say anything about it, naming the facts as they stand there. Do \
not guess: if the question is about the user and no excerpt answers it, say that the notes do not \
say. If it is a general question, ignore the excerpts and answer it as usual. Address the user as \
"you"."""
"""Begins the system message of a model that follows instructions.

Qwen2.5-Coder 1.5B declines most questions if it comes after the excerpts, or if it quotes the words
to decline with; without "Do not guess" it answers from excerpts about other things."""
MAX_CONTEXT_SHARE = 0.25
"""Share of the context for passages."""
MAX_PASSAGE_TOKENS = 512
"""Most tokens of passages after the first: a model of 1.5 B weights reads 50 to 80 tokens per
second on two cores.

Of 423 development questions about notes, manuals, mails, chats and prose, .548 are given the
passage that answers them, with this and with 1,024 tokens; .544 with 384, .513 with 256, and .452
with 128, which such a model reads in about 2 s. Of 41 that need two documents .76 are given both;
.71, .59 and .37."""
MAX_CHECKED = 8
"""Passages of the ranking that are checked unless one of the first is sure to answer. Of 200
development questions, the right one leads for 155, and is among the best eight for 181."""
MAX_SOURCE_CHARACTERS = 200
MIN_MATERIAL = 300
"""Characters from which a message without code may answer later questions."""
CODE = "```"
MAX_STRIDE = 4
"""Most strides generated before they are verified: the screen does not show them until then.

With 16, three answers of 64 tokens from 95 passages had a mean of 3.2 instead of 2.9 strides, 24
tokens rolled back instead of none, and took 1.05 times the CPU seconds (SmolLM2)."""


class ImportedTexts:
    """The person's imported texts, open for retrieval.

    Methods raise StoreError if a store cannot be read.
    """

    def __init__(
        self,
        library: Library,
        passages: PassageStore,
        locations: Locations,
        embedding: PassageEmbedding | None = None,
        load_question_model: Callable[[], QuestionModel | None] = lambda: None,
    ) -> None:
        """Search by meaning too if `embedding` is given.

        Args:
            load_question_model: called with the first question; its model reranks the best
                passages, None leaves the ranking by words.
        """
        self.locations = locations
        self.embedding = embedding
        self._stride_schedulers = defaultdict[frozenset[str], OptimalStride](
            partial(OptimalStride, asynchronous=False, max_stride=MAX_STRIDE)
        )
        self._library = library
        self._passages = passages
        self._load_question_model = cache(load_question_model)

    @classmethod
    def open(
        cls,
        locations: Locations,
        report: Callable[[SpecchatError], object] = lambda error: None,
    ) -> ImportedTexts:
        """The texts as indexed by `app.indexing.passage_index`.

        Args:
            report: takes errors that prevent the use of a model.

        Raises:
            InputError: the settings file is invalid.
        """
        library, passages = Library.open(locations.library), open_passages(locations)
        embedding = open_embedding(passages, locations, report)
        load = partial(load_question_model, embedded_question_model(), report)
        return cls(library, passages, locations, embedding, load)

    def warm_up(self) -> None:
        """Load the embedding model on a thread, if there are vectors to search with it."""
        if self.embedding is not None:
            self.embedding.warm_up()

    def close(self) -> None:
        with closing(self._library), closing(self._passages):
            if self.embedding is not None:
                self.embedding.close()

    def knowledge_base(self, import_paths: frozenset[str] = frozenset()) -> RankedKnowledgeBase:
        """The passages for iterative retrieval, ranked as for a question but by no model, which
        would take longer than writing.

        Args:
            import_paths: only passages of these imports; empty for all.
        """
        texts = self.texts(import_paths) if import_paths else None
        return RankedKnowledgeBase(
            Bm25Retriever(self._passages), translations(), texts, self._dense()
        )

    def stride_scheduler(self, import_paths: frozenset[str] = frozenset()) -> OptimalStride:
        """The scheduler of iterative retrieval from the `knowledge_base` of `import_paths`.

        Its estimates carry over between answers.
        """
        return self._stride_schedulers[import_paths]

    def _dense(self) -> DenseRetriever | None:
        return self.embedding.retriever() if self.embedding is not None else None

    def texts(self, import_paths: frozenset[str] = frozenset()) -> frozenset[bytes]:
        """The keys of the texts imported from `import_paths`; of all if they are empty."""
        texts = self._library.import_texts()
        return frozenset(key for path, key in texts if not import_paths or path in import_paths)

    def locate(
        self, passage: Passage, import_paths: frozenset[str] = frozenset()
    ) -> FoundPassage | None:
        """Where a passage was imported from; None if it was forgotten meanwhile."""
        return locate(self._library, ScoredPassage(passage, 0.0), import_paths)

    def passages_of(self, key: bytes) -> list[Passage]:
        """The passages of the text `key`, in order; none if it was forgotten meanwhile."""
        return self._passages.of_texts([key])

    @property
    def empty(self) -> bool:
        """Whether nothing is imported, or nothing indexed yet."""
        return self._passages.empty

    @property
    def text_count(self) -> int:
        """Number of imported texts."""
        return self._library.text_count

    @property
    def unindexed(self) -> int:
        """Number of imported texts that are not indexed yet."""
        return max(0, self.text_count - self._passages.text_count)

    def ranked(self, question: str, limit: int) -> list[FoundPassage]:
        """The best `limit` passages for `question`, whether or not they may answer it.

        Raises:
            ModelError: the question model cannot evaluate them.
        """
        return self._find(question, PassageForm(limit), Gate.ALL)

    def _find(
        self,
        question: str,
        form: PassageForm,
        gate: Gate,
        import_paths: frozenset[str] = frozenset(),
        chat: Sequence[str] = (),
    ) -> list[FoundPassage]:
        return find(
            self._library,
            self._passages,
            question,
            form.max_passages,
            import_paths,
            gate=gate,
            chat=chat,
            dense=self._dense(),
            # It knows which item of a page answers; of whole passages it prefers worse ones.
            model=self._load_question_model() if form.max_items else None,
            items=form.max_items,
        )

    def find(
        self,
        question: str,
        form: PassageForm,
        vocabulary: Vocabulary,
        context_length: int,
        import_paths: frozenset[str] = frozenset(),
        chat: Sequence[str] = (),
    ) -> tuple[FoundPassage, ...]:
        """The passages for `question`, best first.

        After the first, no more tokens than `MAX_CONTEXT_SHARE` of the context and
        `MAX_PASSAGE_TOKENS`.

        Args:
            form: how the model is given them.
            import_paths: only passages of these imports; empty for all.
            chat: texts of the chat that may answer it themselves; see
                `app.indexing.passage_index.find`.

        Raises:
            ModelError: the question model cannot evaluate them.
        """
        gate = Gate.LEADING if form.instructed else Gate.RELEVANT
        found = self._find(question, form, gate, import_paths, chat)
        return self.within_budget(found, vocabulary, context_length)

    def next_best(
        self,
        question: str,
        found: Sequence[FoundPassage],
        import_paths: frozenset[str] = frozenset(),
        chat: Sequence[str] = (),
    ) -> list[FoundPassage]:
        """Those of the best `MAX_CHECKED` passages for `question` that are not among the `found`;
        none beside texts of the `chat` that may answer it themselves."""
        if chat:
            return []
        best = self._find(question, PassageForm(MAX_CHECKED), Gate.ALL, import_paths)
        known = {(one.text, one.part, one.chunk.first_line) for one in found}
        return [one for one in best if (one.text, one.part, one.chunk.first_line) not in known]

    def within_budget(
        self, found: Sequence[FoundPassage], vocabulary: Vocabulary, context_length: int
    ) -> tuple[FoundPassage, ...]:
        """The first of `found`, and what fits into the prompt after it."""
        room = min(int(context_length * MAX_CONTEXT_SHARE), MAX_PASSAGE_TOKENS)
        chosen: list[FoundPassage] = []
        for passage in found:
            room -= len(vocabulary.encode(passage.quoted))
            if chosen and room < 0:
                break
            chosen.append(passage)
        return tuple(chosen)


def chat_material(earlier: Sequence[StoredMessage], content: str, asked: str) -> tuple[str, ...]:
    """The texts of a chat that may answer its next question themselves.

    These are messages with code or a file, or long ones, but no answers from notes.

    Args:
        earlier: the messages before the question.
        content: the question with its attachments.
        asked: the question alone.
    """
    own = (content,) if content != asked or CODE in asked else ()
    told = (
        one.content
        for one in earlier
        if (CODE in one.content or len(one.content) >= MIN_MATERIAL)
        and not stored_citations(one.statistics)
    )
    return (*told, *own)


def open_embedding(
    passages: PassageStore, locations: Locations, report: Callable[[SpecchatError], object]
) -> PassageEmbedding:
    """Search of `passages` by meaning, with the embedding model of the settings.

    Args:
        report: takes errors that prevent the use of the model.

    Raises:
        InputError: the settings file is invalid.
    """
    setting = load_config(locations.settings).embedding
    return PassageEmbedding(
        PassageStore(passages.store.new_connection()),
        locations,
        partial(choose_embedder, locations, setting),
        report,
        configured=bool(setting),
    )


def load_question_model(
    path: Path, report: Callable[[SpecchatError], object]
) -> QuestionModel | None:
    """The model at `path`; None, with the error reported, if it cannot be loaded."""
    from engines.llama.question_model import LlamaQuestionModel

    try:
        return LlamaQuestionModel(path)
    except ModelError as error:
        failed = ModelError(
            f"imports are ranked by their words alone: {path} cannot be loaded;"
            " if that lasts, install specchat again"
        )
        failed.__cause__ = error
        report(failed)
        return None


def with_notes(
    form: PassageForm, messages: Sequence[Message], passages: Sequence[FoundPassage | Passage]
) -> list[Message]:
    """`messages` with the passages before the last one, which is the question.

    The chat before them keeps its tokens, and so its KV cache.
    """
    if not passages:
        return list(messages)
    if form.instructed:
        numbered = enumerate(map(with_source, passages), start=1)
        parts = [INSTRUCTION, *(f"[{number}] {text}" for number, text in numbered)]
    else:
        parts = [_header(passages), *(_quoted(passage).strip() for passage in passages)]
    return [*messages[:-1], Message(SYSTEM, "\n\n".join(parts)), messages[-1]]


def with_source(passage: FoundPassage | Passage) -> str:
    """A passage as a model that follows instructions is given it."""
    source = passage.source if isinstance(passage, FoundPassage) else passage.chunk.heading
    return f"{one_line(source, MAX_SOURCE_CHARACTERS)}\n{_quoted(passage).strip()}"


def _header(passages: Sequence[FoundPassage | Passage]) -> str:
    fits = [one.fit for one in passages if isinstance(one, FoundPassage) and one.excerpt]
    return EXCERPTS_HEADER.format(fit=describe_fit(max(fits))) if fits else HEADER


def _quoted(passage: FoundPassage | Passage) -> str:
    return passage.quoted if isinstance(passage, FoundPassage) else passage.chunk.content


AnyPassage = TypeVar("AnyPassage", FoundPassage, Passage)


def fitting(
    engine: Engine, messages: Sequence[Message], passages: Sequence[AnyPassage], limit: int
) -> tuple[AnyPassage, ...]:
    """The first of `passages` that fit before the last of `messages`.

    They may displace earlier turns, but not the system prompt, the question and an answer of
    `limit` tokens.
    """
    instructed = len(messages) > 1 and messages[0].role == SYSTEM
    asked = [messages[0], messages[-1]] if instructed else [messages[-1]]
    fits = tuple(passages)
    longest = max_prompt_tokens(engine, limit)
    form = engine.passage_form
    while fits and len(engine.render(with_notes(form, asked, fits))) > longest:
        fits = fits[:-1]
    return fits

"""Answers in stored chats: a question in, events out, everything stored in the history.

The question is stored before the model sees it, the answer while it is generated, and its
statistics at the end. The interface and `specchat ask` use it through `app.runtime.model_thread`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from threading import Event as Flag
from typing import Any

from app.chat_settings import (
    DOCS_ONCE,
    AnswerEnd,
    require_sequences,
)
from app.conversation.answer_modes import AnswerModes
from app.conversation.answer_request import AnswerRequest
from app.conversation.attachments import Attachment, compose, question_of
from app.conversation.context_window import (
    WHOLE_CHAT,
    Boundary,
    fit,
    read_window,
    require_fit,
    shown_messages,
    system_prompt,
)
from app.conversation.continuation import NOTHING_WRITTEN
from app.conversation.events import (
    Dropped,
    Event,
    Finished,
    Interpolated,
    Remarked,
    Resumed,
    Wrote,
)
from app.conversation.generation import FINISH_INTERRUPTED
from app.conversation.imported_texts import ImportedTexts, chat_material
from app.conversation.left_out import remark
from app.conversation.privacy import ChatIsolation
from app.conversation.question_language import ENGLISH_ONLY, is_foreign
from app.conversation.statistics import Provenance, Statistics
from app.conversation.stop_sequences import tokens_of
from app.conversation.titles import first_title, is_meaningful, title
from app.engine.engine import AnswerDefaults, Engine
from app.models.discovery import embedded
from datastores.chats import records
from datastores.chats.answer_writer import AnswerWriter, reopen_answer
from datastores.chats.history import History
from datastores.chats.usage import DRAFT_MODEL_KEY, MODEL_KEY
from datastores.errors import InputError
from datastores.tokens import common_prefix
from engines.chat_template.prompt_builder import Message
from engines.chat_template.reasoning import marked_piece
from engines.chat_template.template import BASE_MODEL

SAMPLING = "this chat's sampling"
"""What settings of a chat are called in errors."""


class Assistant:
    """Answers in the chats of one history with one loaded model, one turn at a time."""

    def __init__(
        self,
        engine: Engine,
        history: History,
        imports: ImportedTexts | None = None,
        *,
        default_docs: str = DOCS_ONCE,
        docs: str = "",
        stop: Sequence[str] = (),
    ) -> None:
        """Use `imports`, if given, for questions that concern them.

        Args:
            default_docs: their mode in chats without a setting of their own.
            docs: a `DocsSetting` as it is stored, for every chat; empty leaves it to the chats.
            stop: texts that end every answer, in addition to those of its chat.
        """
        self.engine = engine
        self.history = history
        self._modes = AnswerModes(history, imports, default_docs, docs)
        self._sequences = require_sequences(tuple(stop), "--stop")
        self._isolation = ChatIsolation(engine, history.name)
        self._stop = Flag()

    def configured(
        self,
        defaults: AnswerDefaults,
        *,
        default_docs: str,
        docs: str = "",
        stop: Sequence[str] = (),
    ) -> Assistant:
        """Another assistant with the same model, history and imports, and the settings given here
        (see `__init__`); `stop` of either ends the answer of both."""
        configured = Assistant(
            replace(self.engine, defaults=defaults),
            self.history,
            self._modes.imports,
            default_docs=default_docs,
            docs=docs,
            stop=stop,
        )
        configured._stop = self._stop
        return configured

    def answer(
        self, chat: int, parent: int | None, text: str, attachments: Sequence[Attachment] = ()
    ) -> Generator[Event]:
        """Store `text` as the user's message under `parent`; the generator answers it.

        Raises:
            InputError: the text is empty, or in a language that the embedded model does not know.
            ContextOverflowError: it does not fit into the context; nothing is stored.
        """
        self._require_question(text)
        content, attached = compose(text, attachments)
        system = system_prompt(self.history.chat(chat).system)
        require_fit(
            self.engine, [*system, Message(records.USER, content)], attached=bool(attachments)
        )
        message = self.history.add_message(
            chat, parent, records.USER, content, attachments=attached
        )
        if not self.history.chat(chat).title:
            self.history.rename(chat, first_title(text))
        return self.respond(chat, message.id)

    def edit(
        self, message: int, text: str, attachments: Sequence[Attachment] = ()
    ) -> Generator[Event]:
        """Store `text` as another version of the user's `message`; the generator answers it.

        Raises:
            InputError: the message is not the user's, or as for `answer`.
        """
        edited = self.history.message(message)
        if edited.role != records.USER:
            raise InputError("only your own messages can be edited")
        return self.answer(edited.chat, edited.parent, text, attachments)

    def regenerate(self, answer: int) -> Generator[Event]:
        """Answer the question of the stored `answer` once more; both answers are kept.

        The new answer is sampled unless the user chose temperature 0, at which it would be the
        same.

        Raises:
            InputError: it is not an answer.
            ContextOverflowError: its question does not fit into this model's context.
        """
        answered = self.history.message(answer)
        if answered.role != records.ASSISTANT or answered.parent is None:
            raise InputError("only an answer can be regenerated")
        system = system_prompt(self.history.chat(answered.chat).system)
        question = self.history.message(answered.parent).content
        require_fit(self.engine, [*system, Message(records.USER, question)])
        return self.respond(answered.chat, answered.parent, again=True)

    def resume(self, answer: int) -> Generator[Event]:
        """Continue an answer that was stopped or cut off, with the same prompt, settings and noise.

        The longer answer replaces the stored one.

        Raises:
            InputError: it ended by itself, another message follows it, or it is another model's.
            ContextOverflowError: question and answer fill the context.
        """
        stopped = self.history.message(answer)
        if stopped.role != records.ASSISTANT or stopped.parent is None:
            raise InputError("only an answer can be continued")
        return self.respond(stopped.chat, stopped.parent, stopped=stopped)

    def respond(
        self,
        chat: int,
        message: int,
        *,
        again: bool = False,
        stopped: records.StoredMessage | None = None,
    ) -> Generator[Event]:
        """Answer the stored `message`: for the first time, once more (`again`), or continuing the
        `stopped` answer.

        However this ends, what was generated is stored; an error before the first word leaves no
        answer.

        Raises:
            InputError: the chat's sampling settings are invalid, or as for `resume`.
        """
        self._stop.clear()
        settings = self.history.chat(chat)
        last = self.history.message(message).parent if stopped is None else stopped.id
        path, window = read_window(self.history, self.engine, message, last)
        turn = AnswerRequest(
            settings,
            message,
            shown_messages(self.engine.vocabulary, settings.system, path),
            self.engine.defaults.draw(settings.sampling, SAMPLING, again=again),
            self._answer_end(settings.sampling),
            question_of(path[-1]),
            chat_material(path[:-1], path[-1].content, question_of(path[-1])),
            window=window,
            after_loop=any(one.finish == records.LOOPED for one in path),
        )
        # Retrieval comes first, so that its failure leaves no empty answer.
        turn.passages = yield from self._modes.retrieve(self.engine, turn, self._stop)
        if stopped is None:
            answer = self._add_answer(chat, message)
        else:
            self._modes.resume(self.engine, turn, stopped)
            yield Resumed(turn.begun.pieces)
            answer = reopen_answer(self.history, stopped.id).id
        yield from self._write(turn, answer)
        if not turn.left_out.dropped:
            self._update_title(chat, message, self.history.message(answer).content)

    def _write(self, turn: AnswerRequest, answer: int) -> Generator[Event]:
        """Generate `answer`, and store it while it grows."""
        texts = [message.content for message in turn.messages]
        engine = self._isolation.engine(
            turn.chat, [*texts, turn.begun.text], turn.documents, after_loop=turn.after_loop
        )
        statistics, provenance = Statistics(), Provenance()
        provenance.append(turn.begun.pieces)

        def figures() -> dict[str, object]:
            version = engine.resources.draft_model_version.number
            own = {MODEL_KEY: engine.name, DRAFT_MODEL_KEY: version}
            return {**own, **turn.figures(statistics, provenance)}

        begun, finish = turn.begun, FINISH_INTERRUPTED
        writer = AnswerWriter(self.history, answer, figures, begun.text, begun.tokens)
        events = self._modes.generate(engine, turn, statistics, self._stop)
        try:
            with closing(events):
                for event in events:
                    yield from turn.citing(event)
                    if isinstance(event, Dropped):
                        turn.prompted = Boundary(event.messages, engine.target.context_length)
                    elif isinstance(event, Interpolated):
                        turn.states, turn.sources = event.states, event.sources
                    elif isinstance(event, Wrote):
                        provenance.append(event.pieces)
                        text = "".join(piece.text for piece in event.pieces)
                        writer.append(text, event.step.tokens)
                    elif isinstance(event, Finished):
                        finish = event.finish
                        yield from _remarks(turn, engine, writer.text, finish)
                    yield event
        except Exception:  # any failure, but not being closed or interrupted
            finish = records.FAILED
            raise
        finally:
            self._end(turn, engine, writer, answer, finish)

    def _end(
        self, turn: AnswerRequest, engine: Engine, writer: AnswerWriter, answer: int, finish: str
    ) -> None:
        """Close the stored `answer`, and record it for drafting and learning."""
        ended = engine.vocabulary.stops.intersection(writer.tokens[-1:])
        if turn.end.stop and finish == records.WHOLE and not ended:
            writer.trim(partial(tokens_of, piece=marked_piece(engine.vocabulary)))
        writer.close(finish)
        content = self.history.message(answer).content
        documents = turn.documents
        self._isolation.answered(
            turn.chat,
            engine,
            turn.messages,
            content,
            self._cached(turn),
            partial(self._is_offered, turn.chat.id, documents),
            documents,
            looped=finish == records.LOOPED,
        )
        if finish == records.FAILED and not content:
            replaced = turn.begun is not NOTHING_WRITTEN
            active = turn.question if replaced else turn.chat.active
            self.history.discard_answer(answer, active)

    def answer_unsaved(
        self,
        parent: int | None,
        text: str,
        system: str = "",
        settings: Mapping[str, object] | None = None,
        attachments: Sequence[Attachment] = (),
    ) -> Generator[Event]:
        """Answer `text` as if it followed the stored message `parent`; nothing is stored anywhere.

        Args:
            parent: None asks as in a new chat with this system prompt and these sampling settings.

        Raises:
            InputError: as for `answer`, or the chat's sampling settings are invalid.
            ContextOverflowError: it does not fit into the context.
        """
        self._require_question(text)
        self._stop.clear()
        chat = records.Chat(0, "", False, True, system, settings or {}, None, 0.0, 0.0)
        path, window = list[records.StoredMessage](), WHOLE_CHAT
        if parent is not None:
            path, window = read_window(self.history, self.engine, parent, parent)
            chat = self.history.chat(path[-1].chat)
        content, _ = compose(text, attachments)
        question = Message(records.USER, content)
        messages = [*shown_messages(self.engine.vocabulary, chat.system, path), question]
        sampling = self.engine.defaults.draw(chat.sampling, SAMPLING)
        end = self._answer_end(chat.sampling)
        material = chat_material(path, content, text)
        turn = AnswerRequest(chat, 0, messages, sampling, end, text, material, window=window)
        turn.passages = yield from self._modes.retrieve(self.engine, turn, self._stop)
        engine = self._isolation.unsaved_engine()
        with closing(self._modes.generate(engine, turn, Statistics(), self._stop)) as events:
            for event in events:
                yield from turn.citing(event)
                yield event

    def stop(self) -> None:
        """End the answer in progress, from any thread; what was generated is kept."""
        self._stop.set()

    def _cached(self, turn: AnswerRequest) -> int:
        """Number of tokens in the KV cache that the chat's next prompt repeats; what a search
        brought is only in this one."""
        tokens = self.engine.target.tokens
        if turn.passages is None:
            return len(tokens)
        repeated, _ = fit(self.engine, turn.prompted_messages(), turn.end.max_tokens)
        return common_prefix(tokens, repeated)

    def _is_offered(self, chat: int, documents: frozenset[bytes]) -> bool:
        """Whether drafts may come from an answer in `chat` that was given passages of
        `documents`."""
        if not any(one.id == chat and not one.private for one in self.history.chats()):
            return False
        imports = self._modes.imports
        return not documents or imports is None or documents <= imports.texts()

    def _require_question(self, text: str) -> None:
        """Check that `text` is not empty, nor in a language that the embedded model does not
        know."""
        if not text.strip():
            raise InputError("the message is empty: type a question")
        if self.engine.path == embedded() and is_foreign(text):
            raise InputError(ENGLISH_ONLY)

    def _add_answer(self, chat: int, message: int) -> int:
        """Store an empty answer to `message`; returns its id."""
        answer = self.history.add_message(
            chat,
            message,
            records.ASSISTANT,
            "",
            model=self.engine.target.fingerprint,
            tokenizer=self.engine.vocabulary.fingerprint,
            finish=records.STREAMING,
        )
        return answer.id

    def _update_title(self, chat: int, message: int, answer: str) -> None:
        """Title a chat by its questions as soon as they say enough, unless the user renamed it."""
        current = self.history.chat(chat).title
        if is_meaningful(current):
            return
        thread = self.history.path(message)
        asked = [question_of(one) for one in thread if one.role == records.USER]
        better = title(asked, answer if len(asked) == 1 else "")
        if current == first_title(asked[0]) and better != current:
            self.history.rename(chat, better)

    def _answer_end(self, chosen: Mapping[str, Any]) -> AnswerEnd:
        """Where the chat's answers end."""
        end = self.engine.defaults.end(chosen, self._sequences, SAMPLING)
        return replace(end, stop=(*end.stop, *self.engine.stop))


def _remarks(turn: AnswerRequest, engine: Engine, answer: str, finish: str) -> Iterator[Remarked]:
    """A remark on `answer`, if any: what the command of the embedded model leaves out of the
    question; under the first answer in a chat, that a base model wrote it."""
    if finish == records.WHOLE and engine.path == embedded():
        turn.remark = remark(turn.asked, answer)
    elif BASE_MODEL in engine.restrictions and not _answered(turn):
        turn.remark = BASE_MODEL
    if turn.remark:
        yield Remarked(turn.remark)


def _answered(turn: AnswerRequest) -> bool:
    """Whether an earlier answer of the chat is before the question."""
    return any(message.role == records.ASSISTANT for message in turn.messages)

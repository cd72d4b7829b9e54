"""A stored thread of messages, the turns that extend it, and the transcript entries of both.

A turn is a new question, an edited one, another answer to the same one, or the rest of an answer.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from app.conversation.attachments import Attachment, attachments_of, question_of
from app.conversation.citations import own_titles, stored_citations, stored_outcome, titled
from app.conversation.events import Event
from app.conversation.statistics import ORIGINS_KEY, REMARK_KEY, STATES_KEY
from app.interface.keymap import Keymap
from app.interface.transcript.answer import GROWING, Answer
from app.interface.transcript.entries import Greeting, Question
from app.interface.transcript.rows import Entry
from app.runtime.model_thread import Answers, Begin
from app.sanitise import one_line
from datastores.chats.history import History
from datastores.chats.records import ASSISTANT, STREAMING, USER, WHOLE, StoredMessage

MAX_REMARK_CHARS = 400
"""Characters shown of a remark: a restored chat may contain one of any length."""


@dataclass(slots=True)
class Turn:
    """A question in progress, with the entries that show it.

    Attributes:
        chat: None until a new chat is stored.
        parent: id of the message that it follows.
        text: the question as it was typed; empty if a stored question is answered again.
        begin: begins it on the model's thread.
        previous: id of the thread's last message before the turn.
        edited: the question of which this is another version, if any.
        stopped: whether the person stopped it.
        started: when it was sent, in seconds of the monotonic clock.
        branches: whether `parent` is followed by messages up to `previous`, which are kept.
        answered: done when the answer is; None until the model is asked.
    """

    chat: int | None
    parent: int | None
    text: str
    question: Question
    answer: Answer
    begin: Begin
    previous: int | None = None
    edited: StoredMessage | None = None
    attachments: Sequence[Attachment] = ()
    stopped: bool = False
    started: float = 0.0
    branches: bool = False
    answered: Future[None] | None = None


def new_turn(
    chat: int | None,
    thread: Sequence[StoredMessage],
    text: str,
    attachments: Sequence[Attachment] = (),
) -> Turn:
    """A new question at the end of `thread`; `chat` is None until it is stored."""
    parent = parent_of_next(thread)

    def begin(assistant: Answers) -> Generator[Event]:
        assert turn.chat is not None
        return assistant.answer(turn.chat, parent, text, attachments)

    question = Question(text, attachments=attachments)
    turn = Turn(chat, parent, text, question, Answer(), begin, _last(thread))
    turn.attachments = attachments
    return turn


def edit_turn(
    thread: Sequence[StoredMessage],
    question: StoredMessage,
    text: str,
    attachments: Sequence[Attachment] = (),
) -> Turn:
    """Another version of `question`."""
    return Turn(
        question.chat,
        question.parent,
        text,
        Question(text, attachments=attachments),
        Answer(),
        lambda assistant: assistant.edit(question.id, text, attachments),
        _last(thread),
        question,
        attachments,
    )


def regenerate_turn(thread: Sequence[StoredMessage]) -> Turn | None:
    """Another answer to the last question; None if there is none."""
    if len(thread) < 2 or thread[-1].role != ASSISTANT:
        return None
    answer = thread[-1].id
    return _again(thread, Answer(), lambda assistant: assistant.regenerate(answer))


def resume_turn(thread: Sequence[StoredMessage]) -> Turn | None:
    """The rest of the last answer; None if that is complete."""
    if not is_cut_off(thread):
        return None
    answer = thread[-1]
    shown = _answer(answer, GROWING, {})
    return _again(thread, shown, lambda assistant: assistant.resume(answer.id))


def _again(thread: Sequence[StoredMessage], answer: Answer, begin: Begin) -> Turn:
    """A turn for the last question of `thread`, which has been answered before."""
    question, answered = thread[-2:]
    entry = Question(question_of(question), question.id, attachments_of(question))
    return Turn(answered.chat, question.parent, "", entry, answer, begin, answered.id)


def is_cut_off(thread: Sequence[StoredMessage]) -> bool:
    """Whether the last answer was stopped or ended early for another reason."""
    return (
        len(thread) > 1
        and thread[-1].role == ASSISTANT
        and thread[-1].finish not in (WHOLE, STREAMING)
    )


def previous_question(
    thread: Sequence[StoredMessage], message: StoredMessage | None
) -> StoredMessage | None:
    """The question before `message`, or the last one; None if there is none."""
    questions = [one for one in thread if one.role == USER]
    ids = [question.id for question in questions]
    place = ids.index(message.id) if message is not None and message.id in ids else 0
    return questions[place - 1] if questions else None


def other_version(
    thread: Sequence[StoredMessage], versions: Mapping[int, tuple[int, ...]], step: int
) -> int | None:
    """The version `step` places further of the lowest message that has one; None if none has.

    Messages at their last version are skipped, so that one pair of keys reaches every branch.
    """
    for message in reversed(thread):
        known = versions.get(message.id, (message.id,))
        place = known.index(message.id) + step
        if 0 <= place < len(known):
            return known[place]
    return None


def _last(thread: Sequence[StoredMessage]) -> int | None:
    return thread[-1].id if thread else None


WRITTEN_ELSEWHERE = "interrupted"
"""How an answer is shown while another window is writing it."""

GREETING = (
    "specchat",
    "",
    "Runs entirely on your machine. Nothing you type leaves it.",
    "It gets faster the more you use it.",
)
PRIVATE_GREETING = (
    "Private chat",
    "",
    "It is stored on this machine, but not used for drafts, indexing or training.",
)
KEY_HINT = "{prompt.send} Send · {prompt.newline} New line · {help} Help"


def greeting(hint: str, keys: Keymap, *, private: bool = False) -> Greeting:
    """The greeting of an empty chat, with a `hint` about the model."""
    lines = PRIVATE_GREETING if private else GREETING
    return Greeting((*lines, "", *((hint, "") if hint else ()), keys.fill(KEY_HINT)))


@dataclass(frozen=True, slots=True)
class Thread:
    """The shown messages, oldest first, and all versions of those that have several.

    Attributes:
        titles: of own chats by owner, if an answer has words of one.
    """

    messages: list[StoredMessage] = field(default_factory=list)
    versions: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    titles: Mapping[str, str] = field(default_factory=dict)

    def __contains__(self, message: int) -> bool:
        return any(shown.id == message for shown in self.messages)

    def place(self, message: int) -> str:
        """Which of its versions a message is: `‹ 2/3 ›`; empty if there is only one."""
        known = self.versions.get(message)
        return f"‹ {known.index(message) + 1}/{len(known)} ›" if known else ""


def read_thread(history: History, chat: int | None) -> Thread:
    """The thread of a chat; empty for None.

    Raises:
        InputError, StoreError: the thread cannot be read.
    """
    if chat is None:
        return Thread()
    messages = history.thread(chat)
    return Thread(messages, history.versions(chat), own_titles(history, messages))


def thread_through(
    history: History, message: int, versions: Mapping[int, tuple[int, ...]]
) -> Thread:
    """The thread through `message` to the newest one below it, whichever version is active.

    Raises:
        InputError, StoreError: the thread cannot be read.
    """
    messages = history.path(history.leaf_below(message))
    return Thread(messages, versions, own_titles(history, messages))


def is_answered(thread: Thread, turn: Turn) -> bool:
    """Whether `thread`, read after `turn`, ends in its answer."""
    last = thread.messages[-1] if thread.messages else None
    return last is not None and last.role == ASSISTANT and last.id != turn.previous


def entries(thread: Thread, turn: Turn | None) -> list[Entry]:
    """The entries of a thread and of the `turn` in progress."""
    messages = thread.messages if turn is None else up_to(thread.messages, turn.parent)
    shown = [entry for message in messages if (entry := _entry(message, thread))]
    if turn is not None:
        shown += [turn.question, turn.answer]
    return shown


def up_to(messages: Sequence[StoredMessage], last: int | None) -> list[StoredMessage]:
    """The messages up to the one with id `last`; empty if there is none."""
    ids = [message.id for message in messages]
    return list(messages[: ids.index(last) + 1]) if last in ids else []


def parent_of_next(messages: Sequence[StoredMessage]) -> int | None:
    """The message that a new question follows: it replaces an unanswered last question."""
    if not messages:
        return None
    last = messages[-1]
    return last.parent if last.role == USER else last.id


def questions(messages: Sequence[StoredMessage]) -> list[str]:
    """The person's questions, oldest first."""
    return [question_of(message) for message in messages if message.role == USER]


def update_entries(thread: Thread, turn: Turn) -> None:
    """Set id and version of the entries of a finished `turn`, the last two messages of `thread`."""
    live: tuple[Question | Answer, ...] = (turn.question, turn.answer)
    for entry, message in zip(live, thread.messages[-2:], strict=True):
        entry.message, entry.version = message.id, thread.place(message.id)


def _entry(message: StoredMessage, thread: Thread) -> Entry | None:
    entry: Question | Answer
    if message.role == USER:
        entry = Question(question_of(message), message.id, attachments_of(message))
    elif message.role == ASSISTANT:
        finish = WRITTEN_ELSEWHERE if message.finish == STREAMING else message.finish
        entry = _answer(message, finish, thread.titles)
        entry.message = message.id
    else:
        return None
    entry.version = thread.place(message.id)
    return entry


def _answer(message: StoredMessage, finish: str, titles: Mapping[str, str]) -> Answer:
    runs = message.statistics.get(ORIGINS_KEY)
    answer = Answer(message.content, finish, runs=runs if isinstance(runs, list) else ())
    answer.citations = titled(stored_citations(message.statistics), titles)
    answer.outcome = stored_outcome(message.statistics)
    remark = message.statistics.get(REMARK_KEY)
    answer.remark = one_line(remark, MAX_REMARK_CHARS) if isinstance(remark, str) else ""
    states = message.statistics.get(STATES_KEY)
    answer.states = states if isinstance(states, int) else None
    return answer

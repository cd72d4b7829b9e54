"""Checks which of the passages found may state the answer, before a model answers from them.

A small model that is told to say so where none does still answers from a similar passage: the
van's tyre pressure from the bike's. Its states tell better (`app.engine.answerability`), and better
than any ranking by words and vectors: so the next ones in the ranking are checked, too.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence

from app.conversation.citations import SearchOutcome
from app.conversation.events import Checking
from app.conversation.imported_texts import with_notes, with_source
from app.engine.answerability import PassageCheck
from app.engine.engine import Engine, PassageForm
from app.indexing.passage_index import FoundPassage
from datastores.chats.records import SYSTEM
from datastores.errors import ModelError
from engines.chat_template.prompt_builder import Message
from engines.retrieval.question_words import is_about_own
from engines.target import Stop

MAX_QUESTION = 500
"""Longest question that is checked, in characters."""
SURE = 1.0
"""Log-odds at which no further passage is checked. For 200 development questions, three passages
then are on average, and the right one is given for .81, and as the first for .74; with 2, 4.2
passages, .82 and .75."""

NOT_COVERED = """\
The notes of the user do not mention what they ask. If it is about their own life, things or \
people ("I", "my", "we", somebody's name), reply only: "Your notes do not mention that." Answer \
whatever anybody could ask, such as facts, code or other texts, as usual."""
"""Stands in the place of passages where none was found that states the answer. Of 32 questions
about a person's life, Qwen2.5-Coder 1.5B then says so for 28, and invents for one; it answers all
of 16 general ones. Told to say so in words of its own, it does for 24, and invents for three."""

NextBest = Callable[[], Sequence[FoundPassage]]


def checked(
    engine: Engine,
    question: str,
    leading: tuple[FoundPassage, ...],
    next_best: NextBest,
    stop: Stop,
) -> Generator[Checking, None, tuple[FoundPassage, ...]]:
    """The passages to answer `question` from; all that lead if nothing can check them.

    Args:
        leading: the passages that lead the search, best first.
        next_best: returns those that follow in the ranking.

    Raises:
        StoppedError: `stop` said so.
    """
    answerability = engine.answerability
    if not leading or len(question) > MAX_QUESTION or answerability is None:
        return leading
    if (check := answerability.check) is None:
        return leading
    try:
        return (yield from answering(check, question, leading, next_best, stop))
    except ModelError as error:
        answerability.give_up(error)
        return leading


def answering(
    check: PassageCheck,
    question: str,
    leading: Sequence[FoundPassage],
    next_best: NextBest,
    stop: Stop,
) -> Generator[Checking, None, tuple[FoundPassage, ...]]:
    """The passages that may state the answer, the surest first, then the other `leading` ones,
    which may state a part of it; none if no passage may. For the arguments see `checked`.

    Raises:
        StoppedError: `stop` said so.
        ModelError: the model cannot evaluate a passage.
    """
    found: list[tuple[float, FoundPassage]] = []
    for number, total, passage in _in_order(leading, next_best):
        yield Checking(number, total)
        odds = check.log_odds(with_source(passage), question, stop)
        found.append((odds, passage))
        if odds >= SURE:
            break
    found.sort(key=lambda one: -one[0])
    stated = [passage for odds, passage in found if odds >= check.classifier.minimum]
    return (*stated, *(one for one in leading if one not in stated)) if stated else ()


def _in_order(
    leading: Sequence[FoundPassage], next_best: NextBest
) -> Iterator[tuple[int, int, FoundPassage]]:
    """Passages with their numbers, from 1, and how many there are as far as it is known."""
    for number, passage in enumerate(leading, 1):
        yield number, len(leading), passage
    following = next_best()
    for number, passage in enumerate(following, len(leading) + 1):
        yield number, len(leading) + len(following), passage


def with_passages(
    form: PassageForm,
    messages: Sequence[Message],
    passages: Sequence[FoundPassage],
    outcome: SearchOutcome,
    question: str,
) -> list[Message]:
    """`messages` with what goes before the last one, the `question`: the passages, or that all
    texts were searched and do not answer it.

    Where nothing leads the search, that is said only if the question is about something of the
    asker's own: to read it takes a third of a second of Qwen2.5-Coder 1.5B on two cores.
    """
    if passages or not form.instructed:
        return with_notes(form, messages, passages)
    searched = outcome.texts and not outcome.unindexed and not outcome.too_long
    if outcome.rejected or (searched and is_about_own(question)):
        return [*messages[:-1], Message(SYSTEM, NOT_COVERED), messages[-1]]
    return list(messages)

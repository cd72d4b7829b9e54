"""Asks a model, before it answers, whether the passages found state the answer.

A small model that is told to say so where they do not still answers from a similar passage: the
van's tyre pressure from the bike's note. Asked for one word first, it knows better ("answerability"
is in its states: Slobodkin et al., "The Curious Case of Hallucinatory (Un)answerability", EMNLP
2023). It is asked about the best passage alone, of which it judges best, and if it says no, about
all. So each passage is read once, for the check and the answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from app.conversation.citations import SearchOutcome
from app.conversation.imported_texts import with_notes
from app.engine.engine import PassageForm
from app.indexing.passage_index import FoundPassage
from datastores.chats.records import SYSTEM
from engines.chat_template.prompt_builder import Message
from engines.target import Floats, Vocabulary

CHECK = """\
{question}

Before you answer: do the excerpts above state exactly this, about the same thing or person? \
Something similar does not count. Reply with one word, yes or no."""
YES, NO = ("Yes", "yes", " Yes", " yes"), ("No", "no", " No", " no")
MIN_MASS = 0.5
"""Minimum probability of yes and no together: a model that would say something else, such as one
that reasons first, does not judge."""
MIN_ODDS_OF_BEST, MIN_ODDS_OF_ALL = -0.35, 0.0
"""Minimum log-odds of yes for the best passage, and for all: the more passages, the likelier yes.

Chosen on these: of 21 questions whose answer the best of up to four passages states,
Qwen2.5-Coder 1.5B passes all; of 32 that nothing answers, in people's own words about 44 notes, it
rejects 19: of 17 about another thing 11, of 6 on other subjects 5, of 9 about what a note leaves
out 3. The area under the curve is .92 for the best passage and .86 for all."""

NOT_COVERED = """\
The user's notes were searched and do not answer this. If the question is about the user's own \
life, things or people, and this conversation does not answer it, say that their notes do not \
mention it, and do not guess. Answer any other question as usual."""
"""Stands in the place of passages that do not state the answer."""


@dataclass(frozen=True, slots=True)
class PassageCheck:
    """A question to the model about the passages found for an answer.

    Attributes:
        messages: the chat up to the question, without passages.
        question: its text without attachments.
        outcome: of the search that found the `passages`.
    """

    form: PassageForm
    messages: Sequence[Message]
    question: str
    passages: tuple[FoundPassage, ...]
    outcome: SearchOutcome

    def asked(self) -> Iterator[tuple[list[Message], float]]:
        """The messages that ask about the best passage, and about all, each with the minimum
        log-odds of yes. They are those of the answer, except for the last."""
        check = replace(self.messages[-1], content=CHECK.format(question=self.question))
        asked = [*self.messages[:-1], check]
        yield with_notes(self.form, asked, self.passages[:1]), MIN_ODDS_OF_BEST
        if len(self.passages) > 1:
            yield with_notes(self.form, asked, self.passages), MIN_ODDS_OF_ALL

    @property
    def rejection(self) -> SearchOutcome:
        """What the search brought if no passage states the answer."""
        return replace(self.outcome, read=0, rejected=len(self.passages))

    @property
    def otherwise(self) -> list[Message]:
        """The messages to answer then."""
        return with_passages(self.form, self.messages, (), self.rejection)


def with_passages(
    form: PassageForm,
    messages: Sequence[Message],
    passages: Sequence[FoundPassage],
    outcome: SearchOutcome,
) -> list[Message]:
    """`messages` with what goes before the last one, the question: the passages, or that the check
    rejected them."""
    if outcome.rejected and not passages:
        return [*messages[:-1], Message(SYSTEM, NOT_COVERED), messages[-1]]
    return with_notes(form, messages, passages)


def says_yes(logits: Floats, vocabulary: Vocabulary, min_odds: float) -> bool:
    """Whether a model whose next token has these `logits` says yes to `CHECK`, or does not judge.

    Args:
        logits: float32 [vocabulary].
        min_odds: minimum log-odds of yes.
    """
    yes, no = (_first_tokens(words, vocabulary) for words in (YES, NO))
    scores = logits.astype(np.float64)
    for_yes = np.logaddexp.reduce(scores[sorted(yes - no)])
    for_no = np.logaddexp.reduce(scores[sorted(no - yes)])
    judges = np.logaddexp(for_yes, for_no) - np.logaddexp.reduce(scores) >= np.log(MIN_MASS)
    return bool(not judges or for_yes - for_no >= min_odds)


def _first_tokens(words: Sequence[str], vocabulary: Vocabulary) -> set[int]:
    return {vocabulary.encode(word)[0] for word in words}

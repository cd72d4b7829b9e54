"""Asks a model, before it answers, whether a passage found states the answer.

A small model that is told to say so where none does still answers from a similar passage: the
van's tyre pressure from the bike's. Asked for one word first, it knows better ("answerability"
is in its states: Slobodkin et al., "The Curious Case of Hallucinatory (Un)answerability", EMNLP
2023), and still better after examples of the difference. Each passage is judged alone, best first,
in a prompt of its own that always begins alike, so that only the passage and the question are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from app.conversation.citations import SearchOutcome
from app.conversation.imported_texts import with_notes, with_source
from app.engine.engine import PassageForm
from app.indexing.passage_index import FoundPassage
from datastores.chats.records import SYSTEM
from engines.chat_template.prompt_builder import Message
from engines.target import Floats, Vocabulary

EXAMPLES = """\
Does an excerpt of somebody's notes state the answer to a question, in whatever words? Not if it \
is about another thing or person, or does not say what is asked.

Excerpt: bike.md
The tyres of the Canyon need 3 bar. Bought in May from Tim for 600, who also lent me a pump.
Question: how hard do I pump up my bicycle?
Stated: yes
Question: what tyre pressure does the car need?
Stated: no
Question: what colour is my bike?
Stated: no
Question: who could help me with air when a wheel is soft?
Stated: yes

Excerpt: people/rosa.md
Rosa left the bank and builds violins in Lyon. Her son Paul starts school in autumn, he is mad \
about trains.
Question: when does Mia start school?
Stated: no
Question: what does my friend in France do for a living?
Stated: yes
Question: how old is Paul?
Stated: no
Question: which toy would please Rosa's boy?
Stated: yes

Excerpt: work/printer.md
2nd floor: jams with thick paper, then use tray 2. Toner: Lena orders it, code 55-A.
Question: what is the code for the copier's toner?
Stated: no
Question: whom do I tell when the printing machine runs dry?
Stated: yes
Question: what does a toner cost?
Stated: no
Question: strong sheets get stuck upstairs, what helps?
Stated: yes

"""
"""Begins each prompt."""
ASKED = """\
Excerpt: {excerpt}
Question: {question}
Stated:"""
MAX_QUESTION = 500
"""Longest question that is checked, in characters: it is read again with each passage."""
YES, NO = ("Yes", "yes", " Yes", " yes"), ("No", "no", " No", " no")
MIN_MASS = 0.5
"""Minimum probability of yes and no together: a model that would say something else does not
judge."""
MIN_ODDS, UNEVENNESS_ODDS, USUAL_UNEVENNESS = -0.2, 8.0, 0.15
"""Minimum log-odds of yes for a passage that matches the question's words as unevenly as usual, and
how much they grow with unevenness: a passage that matches all words but one well is about another
thing of the same kind, where models say yes too often.

Chosen on questions about 107 notes, many of them hard: of 37 that nothing answers,
Qwen2.5-Coder 1.5B rejects 31; of 34 whose answer is in one of up to four passages, in people's own
words or plain, it passes 31, and would answer one of the other three right. The area under the
curve is .95; without unevenness .89; with 6 and 10 for 8 it is .94 and .95. Of 58 with the answer
in the best passage or in none: .98; without unevenness .97; asked in the chat, without examples,
.87.

They flatter it. Of questions about another person's notes, written later by somebody else, it
rejects 7 of 33 that nothing answers though a note comes close, and 2 of 53 that a passage answers
(.77)."""

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
        question: its text without attachments, and what it follows.
        outcome: of the search that found the `passages`.
    """

    form: PassageForm
    messages: Sequence[Message]
    question: str
    passages: tuple[FoundPassage, ...]
    outcome: SearchOutcome

    def asked(self) -> Iterator[tuple[str, float]]:
        """What follows `EXAMPLES` for each passage, and the minimum log-odds of yes."""
        for passage in self.passages:
            uneven = 0.0 if passage.unevenness is None else passage.unevenness - USUAL_UNEVENNESS
            asked = ASKED.format(excerpt=with_source(passage), question=self.question)
            yield asked, MIN_ODDS + UNEVENNESS_ODDS * uneven

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
    """Whether a model whose next token has these `logits` says yes, or does not judge.

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

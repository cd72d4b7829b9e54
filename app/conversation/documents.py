"""Answering from imported texts: the passages that go before a question, and in which form.

One retrieval for each question. Owns how many passages fit and how they are marked as material for
the model. Refuses to know how passages are ranked and stored (`app.indexing.passage_index`) and how
they are cited (`citations.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from app.indexing.passage_index import FoundPassage, find, open_passages
from app.locations import Locations
from datastores.chats.records import SYSTEM
from datastores.library.library import Library
from datastores.passages.protocol import Passage
from datastores.passages.store import PassageStore
from engines.chat_template.prompt_builder import Message
from engines.target import Vocabulary

HEADER = "Notes:"
"""As the embedded model is trained: a system message of this and the passages' own text."""
MAX_CONTEXT_SHARE = 0.25
"""Of the context, for passages."""


class Documents:
    """The person's imported texts, open for retrieval.

    Methods raise StoreError if a store cannot be read.
    """

    def __init__(self, library: Library, passages: PassageStore) -> None:
        self._library = library
        self._passages = passages

    @classmethod
    def open(cls, locations: Locations) -> Documents:
        """The texts as they are indexed now; see `app.indexing.passage_index.update`."""
        return cls(Library.open(locations.library), open_passages(locations))

    def close(self) -> None:
        with closing(self._library), closing(self._passages):
            pass

    @property
    def empty(self) -> bool:
        """Whether nothing is imported, or nothing indexed yet."""
        return self._passages.empty

    def relevant(
        self,
        question: str,
        limit: int,
        vocabulary: Vocabulary,
        context_length: int,
        source: str = "",
    ) -> tuple[FoundPassage, ...]:
        """The best passages that are relevant to `question`, best first.

        At most `limit`, and no more tokens than `MAX_CONTEXT_SHARE` of the context.

        Args:
            source: only passages imported from this path; empty for all.
        """
        found = find(self._library, self._passages, question, limit, source, relevant_only=True)
        room = int(context_length * MAX_CONTEXT_SHARE)
        chosen: list[FoundPassage] = []
        for passage in found:
            room -= len(vocabulary.encode(passage.chunk.content))
            if room < 0:
                break
            chosen.append(passage)
        return tuple(chosen)


def with_notes(
    messages: Sequence[Message], passages: Sequence[FoundPassage | Passage]
) -> list[Message]:
    """`messages` with the passages before the last one, which is the question.

    What precedes them keeps its tokens, so the KV cache of the chat so far is reused.
    """
    if not passages:
        return list(messages)
    notes = "\n\n".join((HEADER, *(passage.chunk.content.strip() for passage in passages)))
    return [*messages[:-1], Message(SYSTEM, notes), messages[-1]]

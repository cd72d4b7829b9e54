"""The sources of an answer that KNN-LM worded: whose states its words came from, and where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from app.conversation.citations import Source, own_source, source
from app.conversation.imported_texts import ImportedTexts
from app.conversation.privacy import TEXT_PREFIX
from app.engine.engine import Engine
from datastores.chats.history import HistoryReader
from datastores.chats.records import Chat
from datastores.dense.flat_keys import FlatKeys
from datastores.dense.index import Contributor, DenseIndex
from datastores.errors import InputError
from engines.ralm.contributions import Contributions

MAX_SOURCES = 3
"""Most sources that are named."""


class SourceFinder:
    """Names the sources among the imports and chats whose states were searched.

    Args:
        chats: the person's own, by owner.
        import_paths: the only imports that were searched; empty for all.
    """

    def __init__(
        self,
        imports: ImportedTexts,
        history: HistoryReader,
        chats: Mapping[str, Chat],
        import_paths: frozenset[str],
    ) -> None:
        self._imports = imports
        self._history = history
        self._chats = chats
        self._import_paths = import_paths

    def find(
        self, engine: Engine, states: FlatKeys, contributions: Contributions, tokens: int
    ) -> tuple[Source, ...]:
        """The sources of an answer of `tokens` tokens, those with the largest shares first.

        Raises:
            StoreError: a store cannot be read.
        """
        rows, weights = contributions.totals()
        worker = engine.resources.dense
        assert worker is not None, "its states were searched"
        offsets = states.offsets(rows)
        find = partial(DenseIndex.contributors, offsets=offsets, weights=weights, limit=MAX_SOURCES)
        found = (self._source(engine, one, tokens) for one in worker.ask(find))
        return tuple(one for one in found if one is not None)

    def _source(self, engine: Engine, found: Contributor, tokens: int) -> Source | None:
        """None if the text was deleted meanwhile."""
        share = found.weight / max(1, tokens)
        piece = engine.vocabulary.piece
        excerpts = [
            b"".join(map(piece, excerpt)).decode("utf-8", "ignore") for excerpt in found.excerpts
        ]
        if found.owner.startswith(TEXT_PREFIX):
            return self._imported(found.owner, excerpts, share)
        chat = self._chats.get(found.owner)
        return self._own(chat, found.owner, excerpts, share) if chat is not None else None

    def _imported(self, owner: str, excerpts: Sequence[str], share: float) -> Source | None:
        key = bytes.fromhex(owner.removeprefix(TEXT_PREFIX))
        passages = self._imports.passages_of(key)
        if not passages:
            return None
        passage = passages[_place(excerpts, [one.chunk.content for one in passages])]
        located = self._imports.locate(passage, self._import_paths)
        return source(located, share) if located is not None else None

    def _own(self, chat: Chat, owner: str, excerpts: Sequence[str], share: float) -> Source | None:
        try:
            messages = self._history.tree(chat.id)
        except InputError:
            return None
        message = messages[_place(excerpts, [one.content for one in messages])].id
        return own_source(chat, owner, message, share)


def _place(excerpts: Sequence[str], texts: Sequence[str]) -> int:
    """Index of the text that has most of `excerpts`."""
    counts = [sum(excerpt in text for excerpt in excerpts) for text in texts]
    return counts.index(max(counts))

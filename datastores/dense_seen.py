"""What was last seen of a dense index that other processes change too.

They delete documents, and begin and end generations. Owns what this process takes for the present
state, and how it finds out, at the cost of a short statement, that it no longer is. Refuses to know
what follows from that (`datastores.dense_book`).
"""

from __future__ import annotations

from datastores.dense import DenseStore
from datastores.dense_generations import Generation


class Seen:
    """Generations and documents as far as noticed. Methods raise StoreError where the disk fails.

    Attributes:
        generations: the one that serves, then the one that is being built, as far as they exist.
    """

    def __init__(self, store: DenseStore) -> None:
        self._store = store
        self._deletions = store.deletions()
        self.generations = store.generations.all()

    @property
    def serving(self) -> Generation | None:
        """Whose keys are searched; None before the first projection."""
        return self.generations[0] if self.generations else None

    @property
    def newest(self) -> Generation | None:
        """Which lacks keys first: the one that is being built, else the one that serves."""
        return self.generations[-1] if self.generations else None

    @property
    def rebuilding(self) -> bool:
        """Whether one is being built beside the one that serves."""
        return len(self.generations) > 1

    def look(self) -> None:
        """Notice generations that were begun or ended, here or elsewhere."""
        if self._store.generations.ids() != [generation.id for generation in self.generations]:
            self.generations = self._store.generations.all()

    def deleted(self) -> bool:
        """Whether documents were deleted, here or elsewhere, since `documents` was last asked."""
        return self._store.deletions() != self._deletions

    def documents(self) -> set[int]:
        """The documents there are now."""
        deletions = self._store.deletions()
        documents = self._store.documents()
        self._deletions = deletions
        return documents

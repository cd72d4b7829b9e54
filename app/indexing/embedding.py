"""Searches passages by meaning, and embeds those that are not embedded yet.

Without an embedding model, texts are searched by their words alone. Search is exact: 100 thousand
vectors of 384 dimensions take 35 ms of CPU (47 ms for sixteen queries), while building an HNSW
graph of 10 thousand takes 3.6 s in every session. `embedding_process` embeds.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from app.indexing.embedding_process import (
    EmbeddingProcess,
    EmbeddingProgress,
    is_embedding_due,
    load_model,
)
from app.locations import Locations
from datastores.errors import ModelError, SpecchatError
from datastores.passages.embeddings import Embedder, StoredVectors
from datastores.passages.store import PassageStore
from datastores.storage.files import WorkLock
from engines.retrieval.dense import DenseRetriever

if TYPE_CHECKING:
    from engines.llama.embedding import EmbeddingModel

LOCK_FILE = "embedding.lock"
"""Held by the one process that embeds while it is idle."""
POLL_S = 0.05

T = TypeVar("T")


class PassageEmbedding:
    """Searches the passages of one store by meaning. For one thread.

    Args:
        passages: over a connection of its own; `close` closes it.
        choose: returns the file of the embedding model, or None for none. May take a while.
        report: called once for each error that prevents the use of a model.
        configured: whether the settings name the model.
    """

    def __init__(
        self,
        passages: PassageStore,
        locations: Locations,
        choose: Callable[[], Path | None],
        report: Callable[[SpecchatError], object],
        *,
        configured: bool = False,
    ) -> None:
        self._passages = passages
        self._stored = StoredVectors(passages)
        self._locations = locations
        self._choose = choose
        self._report = report
        self._unchecked = configured
        self._reported: set[str] = set()
        self._model: EmbeddingModel | None = None
        self._loading: Future[EmbeddingModel] | None = None
        self._retriever: DenseRetriever | None = None
        self._process: EmbeddingProcess | None = None
        self._thread = ThreadPoolExecutor(1, "embedding")

    def close(self) -> None:
        """End the process that embeds, and close the store."""
        if self._process is not None:
            self._process.close()
        self._thread.shutdown(cancel_futures=True)
        if self._retriever is not None:
            self._retriever.close()
        self._passages.close()

    def warm_up(self) -> None:
        """Load the model of the stored vectors, if any, on a thread, while the caller loads others.

        Raises:
            StoreError: the store cannot be read.
        """
        embedder = self._stored.embedder
        if embedder is not None and self._model is None and self._loading is None:
            self._loading = self._thread.submit(_load_warm, Path(embedder.path), self._locations)

    def retriever(self) -> DenseRetriever | None:
        """Searches the passages embedded so far; None if there are none, or no model for them.

        Raises:
            StoreError: the store cannot be read.
        """
        embedder = self._stored.embedder
        if embedder is None:
            self._check_configured()
            return None
        model = self._usable(embedder)
        if model is None:
            return None
        found = self._retriever
        if found is None or found.embedder != embedder:
            found = self._retriever = DenseRetriever(
                PassageStore(self._passages.store.new_connection()), embedder, model.encode_queries
            )
        found.update()
        return found if len(found) else None

    def embed(self) -> Generator[EmbeddingProgress | None]:
        """Have a process of the lowest priority embed all passages that are not embedded, a batch
        between two yields; may be stopped at any yield and started again.

        Yields None while there is nothing to report. Ends if another process does it.

        Raises:
            StoreError: the store cannot be read or written.
        """
        lock = WorkLock(self._locations.projections / LOCK_FILE)
        try:
            path = yield from self._elsewhere(self._choose)
            if path is None:
                if self._stored.embedder is not None:
                    self._stored.drop()
            elif is_embedding_due(self._passages, path) and lock.acquire():
                self._process = process = EmbeddingProcess(path, self._locations)
                while progress := (yield from self._elsewhere(process.more)):
                    yield progress
        except ModelError as error:
            self._tell(error)
        finally:
            if self._process is not None:
                self._process.close()
                self._process = None
            lock.release()

    def _elsewhere(self, work: Callable[[], T]) -> Generator[None, None, T]:
        """The result of `work`, run on the embedding thread."""
        result: Future[T] = self._thread.submit(work)
        while wait([result], POLL_S).not_done:
            yield
        return result.result()

    def _check_configured(self) -> None:
        """Report a configured model that cannot be used, before anything is embedded."""
        if self._unchecked:
            self._unchecked = False
            try:
                self._choose()
            except ModelError as error:
                self._tell(error)

    def _usable(self, embedder: Embedder) -> EmbeddingModel | None:
        """The model of the stored vectors; None, with a report, if it is missing or changed."""
        try:
            model = self._loaded(embedder)
            if (model.fingerprint, model.width) == (embedder.fingerprint, embedder.width):
                return model
            self._tell(
                ModelError(
                    f"the embedding model {embedder.path} changed; specchat indexes your imports"
                    " again while it is open and idle"
                )
            )
        except ModelError as error:
            self._tell(error)
        return None

    def _loaded(self, embedder: Embedder) -> EmbeddingModel:
        loading, self._loading = self._loading, None
        if loading is not None:
            with suppress(ModelError):  # it may have moved, which is looked for below
                self._model = loading.result()
        if self._model is None or self._model.fingerprint != embedder.fingerprint:
            self._model = load_model(self._where(Path(embedder.path)), self._locations)
        return self._model

    def _where(self, path: Path) -> Path:
        """The present path of the model that was at `path`: a Python upgrade, for instance, moves
        the built-in one."""
        return path if os.path.isfile(path) else self._choose() or path

    def _tell(self, error: ModelError) -> None:
        if str(error) not in self._reported:
            self._reported.add(str(error))
            self._report(ModelError(f"imports are searched by words only: {error}"))


def _load_warm(path: Path, locations: Locations) -> EmbeddingModel:
    """The model at `path`, whose weights a first pass has read from the disk."""
    model = load_model(path, locations)
    model.encode_queries([""])
    return model

"""Embeds passages, in this process or in one of the lowest priority.

Passages are embedded in batches of about `BATCH_S` and are searchable at once. Stopping loses one
batch: what has no vector yet is found in the store. Batches and lengths hardly matter to the CPU
time, which is spent in matrix products.

The child, `python -m app.indexing.embedding_process`, embeds one batch for each request, so that it
does nothing while its parent has other things to do. It also pauses within a batch, between two
operations of the model, while somebody waits for any specchat.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from importlib.resources import files
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from app.foreground import Foreground
from app.locations import Locations
from datastores.errors import ModelError
from datastores.passages.embeddings import Embedder, StoredVectors
from datastores.passages.store import PassageStore
from datastores.pauses import pause_with
from engines.child_process import LOWEST_PRIORITY, ChildProcess, emit, receive_requests, run_child

if TYPE_CHECKING:
    from engines.llama.embedding import EmbeddingModel

BATCH_S = 0.1
"""Time for a batch of passages: it is doubled after half of it, and halved after more."""
MAX_BATCH = 64
MANY = 32
"""Passages from which a copy of the model that is faster pays off (`engines.llama.bf16_copy`)."""
EMBEDDER = "app.indexing.embedding_process"
MORE = "more"
"""The request for a batch."""


@dataclass(frozen=True, slots=True)
class EmbeddingProgress:
    """Number of passages embedded, and of all passages."""

    done: int
    total: int


def load_model(
    path: Path,
    locations: Locations,
    *,
    threads: int = 0,
    pausable: bool = False,
    many: bool = False,
) -> EmbeddingModel:
    """The embedding model at `path`; one that did not come with specchat is probed first.

    Args:
        threads: 0 for one per physical core.
        pausable: whether it pauses in `datastores.pauses` while it encodes.
        many: whether it encodes many passages; see `EmbeddingModel`.

    Raises:
        ModelError: it is missing or cannot be used.
    """
    from engines.llama.embedding import EmbeddingModel

    if not path.is_file():
        raise ModelError(
            f"the embedding model {path} is missing: put it back, or choose another in the settings"
        )
    shipped = path.parent == Path(str(files("assets")))
    probed = None if shipped else locations.probes
    return EmbeddingModel(path, probe_cache=probed, threads=threads, pausable=pausable, many=many)


def is_embedding_due(passages: PassageStore, path: Path) -> bool:
    """Whether `embed` with the model at `path` has anything to do, an error included.

    Raises:
        StoreError: the store cannot be read.
    """
    from engines.fingerprint import fingerprint

    stored = StoredVectors(passages)
    embedded, total = stored.counts()
    known = stored.embedder
    if known is None or known.path != str(path) or embedded < total or not path.is_file():
        return bool(total)
    return fingerprint(path) != known.fingerprint


def embed(
    passages: PassageStore,
    path: Path,
    locations: Locations,
    *,
    threads: int = 0,
    pausable: bool = False,
) -> Generator[EmbeddingProgress]:
    """Embed all passages that are not embedded with the model at `path`; see `load_model`.

    May be stopped at any yield, and other processes may embed the same ones.

    Raises:
        StoreError: the store cannot be read or written.
        ModelError: the model cannot be used.
    """
    stored = StoredVectors(passages)
    model = load_model(
        path, locations, threads=threads, pausable=pausable, many=_left(stored, path) >= MANY
    )
    embedder = _embedder(stored, model)
    stored.bind(embedder)
    done, total = stored.counts()
    yield EmbeddingProgress(done, total)
    last, size = b"", 1
    while batch := stored.unembedded(last, size):
        started = perf_counter()
        encodings = model.encode_passages([one.text for one in batch])
        last, seconds = batch[-1].digest, perf_counter() - started
        stored.add(embedder, [one.digest for one in batch], encodings)
        done += len(batch)
        yield EmbeddingProgress(min(done, total), total)
        if seconds < BATCH_S / 2:
            size = min(2 * size, MAX_BATCH)
        elif seconds > BATCH_S:
            size //= 2
        size = max(size, model.parallel)


def _left(stored: StoredVectors, path: Path) -> int:
    """Number of passages that the model at `path` has to embed."""
    embedded, total = stored.counts()
    known = stored.embedder
    return total - (embedded if known is not None and known.path == str(path) else 0)


def _embedder(stored: StoredVectors, model: EmbeddingModel) -> Embedder:
    """The description of `model` to store with its vectors."""
    from engines.llama.unrelated_texts import compare_unrelated

    known = stored.embedder
    if known is not None and known.fingerprint == model.fingerprint:
        return replace(known, path=str(model.path))
    return Embedder(model.fingerprint, str(model.path), model.width, *compare_unrelated(model))


class EmbeddingProcess:
    """A process of the lowest priority that embeds one batch after another.

    Args:
        path: the file of the model.
    """

    def __init__(self, path: Path, locations: Locations) -> None:
        self._path = path
        folders = (locations.data, locations.cache, locations.config)
        self._child = ChildProcess(EMBEDDER, path, *folders, requests=True)

    def more(self) -> EmbeddingProgress | None:
        """Embed a batch; None if there is nothing left.

        Raises:
            ModelError: the model cannot be used, or the process was killed.
            StoreError: the store cannot be read or written.
        """
        try:
            answer = self._child.request(MORE)
        except EOFError:
            code = self._child.code()
            raise ModelError(f"embedding with {self._path} failed (exit code {code})") from None
        return None if answer is None else EmbeddingProgress(**answer)

    def close(self) -> None:
        """End it, at once."""
        self._child.close()


def embed_on_request(arguments: Sequence[str]) -> None:
    """In the child: embed a batch for each request, and emit the progress or None at the end.

    Args:
        arguments: file of the model; data, cache and configuration directory.
    """
    path, *folders = map(Path, arguments)
    locations = Locations(*folders)
    pause_with(Foreground(locations.foreground).wait)
    with closing(PassageStore.open(locations.passages)) as passages:
        # One thread: those of llama.cpp spin while they wait for one that is denied its core.
        embedding = embed(passages, path, locations, threads=1, pausable=True)
        for _ in receive_requests():
            progress = next(embedding, None)
            emit(None if progress is None else asdict(progress))


if __name__ == "__main__":
    run_child(embed_on_request, niceness=LOWEST_PRIORITY)

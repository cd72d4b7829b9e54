"""The stores and models that a loaded model drafts from, and the observers that record its answers.

`app.engine.drafters` makes drafters over them. The indexer also fills CREST, and idle encoding the
dense index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from app.engine.draft_model_versions import replay_path
from app.indexing.corpus_index import crest_path, tokens_path
from app.locations import Locations, make_folder
from datastores.crest.reader import CrestReader
from datastores.crest.store import CrestStore
from datastores.errors import ModelError, SpecchatError, StoreError
from datastores.storage.integrity import discard_quarantined
from datastores.suffix_reader import SuffixReader
from datastores.token_cache import TokenCache
from engines.distillation.versions import ORIGINAL, VersionIdentity
from engines.drafters.mtp import Heads, TargetWithHeads
from engines.drafters.protocol import Drafter
from engines.step import Keep, StepObserver
from engines.target import Floats, Target, Vocabulary

if TYPE_CHECKING:
    from datastores.dense.index import DenseIndex
    from datastores.dense.worker import DenseWorker
    from datastores.replay_buffer.writer import AnswerDetails, ReplayWriter
    from engines.drafters.draft_model import DraftModel
    from engines.drafters.head import Head


@dataclass(slots=True)
class DraftResources:
    """Open stores and models; None for those no drafter uses.

    Attributes:
        draft_model_version, head_version: `Versions.current_identity` when they were opened.
        heads: the target's own prediction heads (MTP).
        head: the draft head.
        stops: tokens that end an answer; nothing is drafted after them.
        replay: writes to the replay buffer.
        errors: of stores that were damaged and are rebuilt, or cannot be used.
    """

    crest: CrestReader | None = None
    suffixes: SuffixReader | None = None
    dense: DenseWorker | None = None
    draft_model: DraftModel | None = None
    draft_model_version: VersionIdentity = ORIGINAL
    heads: Heads | None = None
    head: Head | None = None
    head_version: VersionIdentity = ORIGINAL
    stops: frozenset[int] = frozenset()
    replay: ReplayWriter | None = None
    errors: list[SpecchatError] = field(default_factory=list)

    @contextmanager
    def collecting_errors(self) -> Iterator[None]:
        """Append errors within the block to `errors` instead of raising them."""
        try:
            yield
        except SpecchatError as error:
            self.errors.append(error)

    def ask_dense(self, work: Callable[[DenseIndex], object]) -> None:
        """Make the dense index do `work`, if it is open.

        One that was closed meanwhile has already written all it held.

        Raises:
            StoreError: the disk failed.
        """
        if self.dense is None:
            return
        from datastores.dense.worker import WorkerClosedError

        with suppress(WorkerClosedError):
            self.dense.ask(work)

    def forget(self, owner: str) -> None:
        """Make the stores that record answers forget what they recorded under `owner`.

        Raises:
            StoreError: the disk failed.
        """
        if self.replay is not None:
            self.replay.forget(owner)
        self.ask_dense(lambda index: index.forget(owner))

    def close(self) -> None:
        """Close them; those that record answers write what is pending."""
        self.draft_model = self.heads = self.head = None
        if self.replay is not None:
            self.replay.close()
        if self.crest is not None:
            self.crest.close()
        if self.suffixes is not None:
            self.suffixes.close()
        if self.dense is not None:
            self.dense.close()


def open_resources(
    drafters: Sequence[str],
    locations: Locations,
    target: Target,
    vocabulary: Vocabulary,
    crest_bytes: int,
) -> DraftResources:
    """Open what `drafters` draft from. A store that cannot be opened is left out, with its error
    kept."""
    resources = DraftResources(stops=vocabulary.stops)
    if "crest" in drafters:
        with resources.collecting_errors():
            _open_crest(resources, crest_path(locations, vocabulary.fingerprint), crest_bytes)
    if "suffix" in drafters:
        with resources.collecting_errors():
            _open_suffixes(resources, tokens_path(locations, vocabulary.fingerprint))
    if "dense" in drafters and target.width:
        with resources.collecting_errors():
            open_dense(resources, locations, target)
    if "mtp" in drafters:
        resources.heads = target_heads(target, vocabulary)
    return resources


def target_heads(target: Target, vocabulary: Vocabulary) -> Heads | None:
    """The model's own prediction heads; None if it has none that run."""
    if not isinstance(target, TargetWithHeads) or target.heads is None:
        return None
    return Heads(target.heads, vocabulary.stops)


def open_replay(locations: Locations, target: Target) -> ReplayWriter:
    """The writer to the replay buffer of `target`; it opens the file itself."""
    from datastores.replay_buffer.store import ReplayBuffer
    from datastores.replay_buffer.writer import ReplayWriter

    def open_buffer() -> ReplayBuffer:
        make_folder(locations.replay)
        path = replay_path(locations, target.fingerprint)
        return ReplayBuffer.open(path, target.fingerprint, target.vocabulary_size)

    return ReplayWriter(target.vocabulary_size, open_buffer)


def _open_crest(resources: DraftResources, path: Path, crest_bytes: int) -> None:
    """Open the n-grams. The indexer rebuilds a damaged store."""
    try:
        resources.crest = CrestReader(path)
    except StoreError:
        make_folder(path.parent)
        with closing(CrestStore.open(path, crest_bytes)) as store:
            discard_quarantined(store.store.path)
        resources.crest = CrestReader(path)


def _open_suffixes(resources: DraftResources, path: Path) -> None:
    """Open the suffix index. The indexer fills a damaged one again."""
    try:
        resources.suffixes = SuffixReader(path)
    except StoreError:
        make_folder(path.parent)
        with closing(TokenCache.open(path)) as cache:
            discard_quarantined(cache.store.path)
        resources.suffixes = SuffixReader(path)


def open_dense(resources: DraftResources, locations: Locations, target: Target) -> None:
    """Open the index of the model's states.

    Raises:
        ModelError: the model's engine outputs no states.
        StoreError: it cannot be read or written.
    """
    if not target.width:
        raise ModelError(
            "this model's hidden states cannot be read: choose another model, or --docs once"
        )
    from datastores.dense.store import DenseStore
    from datastores.dense.worker import DenseWorker

    folder = locations.states
    make_folder(folder)
    path = folder / f"{target.fingerprint}.db"
    store = DenseStore.open(path, target.fingerprint, target.width)
    discard_quarantined(path)
    resources.dense = DenseWorker(store, target.vocabulary_size)


@runtime_checkable
class Recorder(StepObserver, Protocol):
    """An observer that records answers under `owner`, or none for None."""

    owner: str | None


@runtime_checkable
class AnswerKeeper(Protocol):
    """An observer that records the answer being generated, and writes only on `keep`."""

    def wanted(self, position: int, origins: Sequence[int]) -> tuple[Sequence[int], Floats]: ...

    def keep(self, details: AnswerDetails) -> None: ...

    def drop(self) -> None: ...


@runtime_checkable
class RemembersAnswers(Protocol):
    """A drafter that drafts from earlier answers, of any chat, until `forget`."""

    def forget(self) -> None: ...


@runtime_checkable
class HasError(Protocol):
    """A drafter whose store may fail while it is read, with the reason as `error`."""

    error: SpecchatError | None


def make_observers(resources: DraftResources) -> list[StepObserver]:
    """The observers that record answers into `resources`."""
    observers: list[StepObserver] = []
    if resources.dense is not None:
        from engines.state_recorder import StateRecorder

        observers.append(StateRecorder(resources.dense))
    if resources.replay is not None:
        from engines.replay_recorder import ReplayRecorder

        observers.append(ReplayRecorder(resources.replay))
    return observers


def set_recording_owner(observers: Iterable[StepObserver], owner: str | None) -> None:
    """Record answers under `owner` from now on, or none for None."""
    for observer in observers:
        if isinstance(observer, Recorder):
            observer.owner = owner


def recorders(observers: Iterable[StepObserver]) -> list[Recorder]:
    """Those of `observers` that record the present answer."""
    found = (observer for observer in observers if isinstance(observer, Recorder))
    return [recorder for recorder in found if recorder.owner is not None]


def wanted_logits(observers: Iterable[StepObserver]) -> Keep | None:
    """Which logits the observers need; None for none."""
    keepers = [observer for observer in observers if isinstance(observer, AnswerKeeper)]
    return keepers[0].wanted if keepers else None


def keep_answer(observers: Iterable[StepObserver], details: AnswerDetails | None) -> None:
    """Write the answer that was just recorded, with `details`; None drops it."""
    for observer in observers:
        if isinstance(observer, AnswerKeeper):
            observer.keep(details) if details is not None else observer.drop()


def forget_answers(drafters: Iterable[Drafter]) -> None:
    """Make every drafter that remembers earlier answers forget them all."""
    for drafter in drafters:
        if isinstance(drafter, RemembersAnswers):
            drafter.forget()

"""The environment of a benchmark: real stores in a temporary folder, and drafters over them.

Besides specchat's own drafters there is one to compare with: `rest`, the papers' suffix array. A
person's own stores are never touched.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np

from app.bench.baselines.fixed_shape import DraftShape, ShapedDrafter
from app.bench.baselines.rest import MAX_CONTINUATION, RestDrafter, RestStore, write_rest
from app.config import DRAFTERS
from app.engine.engine import Engine, with_drafters
from app.engine.stores import Stores, make_drafters, open_stores
from app.engine.student import open_student
from app.indexing.corpus_index import crest_path
from app.locations import Locations
from datastores.crest.counting import TokenDocument
from datastores.crest.store import CrestStore
from datastores.errors import InputError
from engines import draft_tree
from engines.drafters.protocol import Drafter
from engines.target import Target

REST, STUDENT = "rest", "student"
KNOWN = (*DRAFTERS, REST)
"""Names that `bench decode --drafters` accepts."""
FROM_HISTORY = frozenset({"crest", "dense", REST})
"""Drafters that draft from the history."""
MAX_ROWS = 64
"""Rows of the widest tree that is verified."""


class Bench:
    """Equips one loaded model with one set of drafters after another."""

    def __init__(self, engine: Engine, draft_tokens: int | None, student: Path | None) -> None:
        """Args:
        draft_tokens: forced at each call; None lets the budget decide.
        student: file of the draft model; None for the model's own.
        """
        self.engine = engine
        self._draft_tokens = draft_tokens
        self._path = student

    def equipped(
        self, names: Sequence[str], stores: BenchStores, shape: DraftShape | None = None
    ) -> Engine:
        """The model with fresh drafters, whose drafts have `shape`, or what the budget decides.

        They record nothing, or the next row would draft from this one's answers.

        Raises:
            InputError: the draft model does not share the target's tokenizer, there is none
                although it was named, or there is no history for `rest`, which drafts from nothing
                else.
            ModelError: the draft model cannot be loaded.
        """
        if STUDENT in names and self.student is None and tuple(names) != DRAFTERS:
            raise InputError(
                f"{self.engine.name} has no draft model: leave out {STUDENT}, or give a --student"
            )
        drafters = [one for name in names for one in self._made(name, stores, shape)]
        if shape is None:
            return replace(with_drafters(self.engine, (), self._draft_tokens), drafters=drafters)
        shaped: list[Drafter] = [ShapedDrafter(drafter, shape) for drafter in drafters]
        length = min(shape.rows, MAX_ROWS - 1)
        return replace(with_drafters(self.engine, (), length), drafters=shaped)

    @cached_property
    def student(self) -> Student | None:
        """The draft model, loaded on first use; None if there is none."""
        if self._path is None:
            return self.engine.stores.student
        length = self.engine.target.context_length
        return open_student(self._path, self.engine.vocabulary, length)

    def _made(self, name: str, stores: BenchStores, shape: DraftShape | None) -> list[Drafter]:
        if name == STUDENT:
            return make_drafters([name], Stores(student=self.student))
        if name == REST:
            if stores.rest is None or not stores.documents:
                raise InputError(f"{REST} drafts from a history alone: give one with --history")
            return [RestDrafter(stores.rest, shape.length if shape else MAX_CONTINUATION)]
        return make_drafters([name], stores.stores)


def widest(draft_tokens: int | None, shapes: Sequence[DraftShape] = ()) -> int:
    """Rows of the widest tree for drafts of this length or these shapes."""
    return MAX_ROWS if shapes else min((draft_tokens or 0) + 1, MAX_ROWS)


def uses_history(names: Sequence[str]) -> bool:
    """Whether a set of drafters drafts from the history."""
    return not FROM_HISTORY.isdisjoint(names)


if TYPE_CHECKING:
    from datastores.dense.worker import DenseWorker
    from engines.drafters.student import Student

CREST_BYTES = 256 * 2**20
"""More than a benchmark fills."""
KIND = draft_tree.CHATS.bit_length() - 1


@dataclass(slots=True)
class BenchStores:
    """Open stores, and the documents in CREST.

    Attributes:
        folder: of all of them.
        rest: REST's suffix array, once `fill` has built it.
    """

    folder: Path
    stores: Stores
    crest: CrestStore | None
    rest: RestStore | None = None
    documents: list[TokenDocument] = field(default_factory=list)

    def learn(self, tokens: Sequence[int]) -> None:
        """Add a chat to CREST. (Its states were recorded while it was answered.)"""
        if self.crest is None:
            return
        document = self._document(tokens)
        if not self.crest.update([document]):
            self.crest.rebuild(self.documents)

    def fill(self, target: Target, texts: Sequence[Sequence[int]]) -> Iterator[None]:
        """Fill every store with the same texts, reading their states with `target`.

        Yields between slices of work. Call it once.
        """
        for tokens in texts:
            self._document(tokens)
        if self.crest is not None:
            self.crest.rebuild(self.documents)
        yield
        place = self.folder / "rest"
        place.mkdir()
        write_rest(place, self.documents)
        self.rest = RestStore(place)
        if self.stores.dense is not None:
            yield from _encode(target, self.stores.dense, texts)

    def _document(self, tokens: Sequence[int]) -> TokenDocument:
        """Add a document; its identity is unique even if its tokens are not."""
        ids = np.array(tokens, dtype=np.uint32)
        number = len(self.documents).to_bytes(8, "little")
        document = TokenDocument(hashlib.sha256(number + ids.tobytes()).digest(), ids, KIND)
        self.documents.append(document)
        return document


@contextmanager
def bench_stores(engine: Engine, drafters: Sequence[str]) -> Iterator[BenchStores]:
    """Empty stores for `drafters`, removed at the end of the block.

    Raises:
        StoreError: one cannot be created; figures without its drafts would mislead.
    """
    with TemporaryDirectory(prefix="specchat-bench-") as folder, ExitStack() as opened:
        root = Path(folder)
        places = Locations(data=root, cache=root, config=root)
        stores = open_stores(drafters, places, engine.target, engine.vocabulary, CREST_BYTES)
        opened.callback(stores.close)
        for error in stores.errors:
            raise error
        crest = None
        if "crest" in drafters:
            path = crest_path(places, engine.vocabulary.fingerprint)
            crest = opened.enter_context(closing(CrestStore.open(path, CREST_BYTES)))
        stores.student = engine.stores.student
        yield BenchStores(root, stores, crest)


def _encode(target: Target, worker: DenseWorker, texts: Sequence[Sequence[int]]) -> Iterator[None]:
    """Encode all texts into the dense index, as the idle model does with imported ones."""
    from datastores.dense.index import DenseIndex
    from engines.state_encoding import encode_backlog

    for number, tokens in enumerate(texts):
        worker.ask(partial(DenseIndex.add_document, source=f"history:{number}", tokens=tokens))
    for _ in encode_backlog(target, worker):
        yield

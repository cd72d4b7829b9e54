"""Stores for a benchmark: real ones, in a folder that goes with them, never a person's own.

The drafters of a benchmark: specchat's own over the benchmark's stores, and the two baselines.

`rest` is the papers' suffix array, `sd` a small draft model (plain speculative decoding). Neither
serves in chats: REST's index cannot grow, and a draft model has to be distilled first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np

from app.bench.baselines.fixed_shape import DraftShape, Shaped
from app.bench.baselines.rest import CONTINUATION, Rest, RestStore, write_rest
from app.config import DRAFTERS
from app.engine.engine import Engine, equip
from app.engine.stores import Stores, make_drafters, open_stores
from app.indexing.corpus_index import crest_path
from app.locations import Locations
from datastores.crest.counting import TokenDocument
from datastores.crest.store import CrestStore
from datastores.errors import InputError
from engines import draft_tree
from engines.drafters.protocol import Drafter
from engines.sampler import make_sampler
from engines.target import Target

REST, STUDENT = "rest", "sd"
KNOWN = (*DRAFTERS, REST, STUDENT)
"""Every drafter that `bench decode` knows by name."""
FROM_HISTORY = frozenset({"crest", "dense", REST})
"""Those of them that draft from the history."""
MOST_ROWS = 64
"""Widest tree that is ever verified."""


class Bench:
    """A loaded model that is equipped with one set of drafters after another."""

    def __init__(self, engine: Engine, draft_tokens: int | None, student: Path | None) -> None:
        """Equip `engine`.

        Args:
            draft_tokens: forced on each call; None lets the budget decide.
            student: file of the draft model; None for the one that comes with specchat.
        """
        self.engine = engine
        self._draft_tokens = draft_tokens
        self._path = student or Path(str(files("assets") / "student-f16.gguf"))

    def equipped(
        self, names: Sequence[str], stores: BenchStores, shape: DraftShape | None = None
    ) -> Engine:
        """The model with fresh drafters, whose drafts have a shape, or as the budget decides.

        They record nothing: the next row would draft from this one's answers.

        Raises:
            InputError: the draft model does not share the target's tokenizer, or there is no
                history for one that drafts from nothing else.
            ModelError: the draft model cannot be loaded.
        """
        drafters = [one for name in names for one in self._made(name, stores, shape)]
        if shape is None:
            return replace(equip(self.engine, (), self._draft_tokens), drafters=drafters)
        shaped: list[Drafter] = [Shaped(drafter, shape) for drafter in drafters]
        length = min(shape.rows, MOST_ROWS - 1)
        return replace(equip(self.engine, (), length), drafters=shaped)

    @cached_property
    def student(self) -> Target:
        """The draft model, loaded when first asked for."""
        from engines.llama import load

        model = load(self._path, context_length=self.engine.target.context_length)
        if model.vocabulary.fingerprint != self.engine.vocabulary.fingerprint:
            raise InputError(
                f"{self._path.name} cannot draft for {self.engine.name}: their tokenizers differ."
                f" Leave out {STUDENT}, or give a --student that fits"
            )
        return model.target

    def _made(self, name: str, stores: BenchStores, shape: DraftShape | None) -> list[Drafter]:
        if name == STUDENT:
            from engines.drafters.student import StudentDrafter

            draw = make_sampler(self.engine.sampling)
            return [StudentDrafter(self.student, self.engine.vocabulary.stops, draw)]
        if name == REST:
            if stores.rest is None or not stores.documents:
                raise InputError(f"{REST} drafts from a history alone: give one with --history")
            return [Rest(stores.rest, shape.length if shape else CONTINUATION)]
        return make_drafters([name], stores.stores, remember=False)


def widest(draft_tokens: int | None, shapes: Sequence[DraftShape] = ()) -> int:
    """Rows the model has to take for drafts of so many tokens, or of these shapes."""
    return MOST_ROWS if shapes else min((draft_tokens or 0) + 1, MOST_ROWS)


def differing(names: Sequence[str]) -> bool:
    """Whether a set drafts from the history at all."""
    return not FROM_HISTORY.isdisjoint(names)


if TYPE_CHECKING:
    from datastores.dense.worker import DenseWorker

BUDGET = 256 * 2**20
"""Bytes for CREST: more than a benchmark fills."""
KIND = draft_tree.CHATS.bit_length() - 1


@dataclass(slots=True)
class BenchStores:
    """Open stores, and what CREST was given.

    Attributes:
        folder: where they lie.
        rest: REST's suffix array, once `fill` has made it.
    """

    folder: Path
    stores: Stores
    crest: CrestStore | None
    rest: RestStore | None = None
    documents: list[TokenDocument] = field(default_factory=list)

    def learn(self, tokens: Sequence[int]) -> None:
        """A chat of `tokens` becomes history. (Its states were recorded while it was answered.)"""
        if self.crest is None:
            return
        document = self._document(tokens)
        if not self.crest.update([document]):
            self.crest.rebuild(self.documents)

    def fill(self, target: Target, texts: Sequence[Sequence[int]]) -> Iterator[None]:
        """Fill every store with the same texts, reading their states with `target`.

        Yields now and then; done when exhausted. To be called once.
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
        """One more document, unlike any other even if its tokens are the same."""
        ids = np.array(tokens, dtype=np.uint32)
        number = len(self.documents).to_bytes(8, "little")
        document = TokenDocument(hashlib.sha256(number + ids.tobytes()).digest(), ids, KIND)
        self.documents.append(document)
        return document


@contextmanager
def bench_stores(engine: Engine, drafters: Sequence[str]) -> Iterator[BenchStores]:
    """Empty stores for `drafters`, until the end of the block.

    Raises:
        StoreError: one cannot be made; figures without its drafts would mislead.
    """
    with TemporaryDirectory(prefix="specchat-bench-") as folder, ExitStack() as opened:
        root = Path(folder)
        places = Locations(data=root, cache=root, config=root)
        stores = open_stores(drafters, places, engine.target, engine.vocabulary, BUDGET)
        opened.callback(stores.close)
        for trouble in stores.troubles:
            raise trouble
        crest = None
        if "crest" in drafters:
            path = crest_path(places, engine.vocabulary.fingerprint)
            crest = opened.enter_context(closing(CrestStore.open(path, BUDGET)))
        yield BenchStores(root, stores, crest)


def _encode(target: Target, keeper: DenseWorker, texts: Sequence[Sequence[int]]) -> Iterator[None]:
    """States of all texts into the dense index, as an idle model reads imported ones."""
    from datastores.dense.recorder import DenseRecorder
    from engines.state_encoding import encode_backlog

    for number, tokens in enumerate(texts):
        keeper.ask(partial(DenseRecorder.add_document, source=f"history:{number}", tokens=tokens))
    for _ in encode_backlog(target, keeper):
        yield
    # The first texts decided the projection; now that all are known there may be a better one.
    if keeper.ask(DenseRecorder.refit):
        for _ in encode_backlog(target, keeper):
            yield

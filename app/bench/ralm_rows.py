"""The rows that `bench ralm` compares: methods with sets of drafters, and what those draft from.

`app.bench.ralm` and `app.bench.knn` measure them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, product
from pathlib import Path

from app.bench.environment import BenchStores, Sets, require_all, uses_history
from app.bench.knn import METHODS, NEIGHBOURS, KnnRow
from app.bench.ralm import RalmRow
from app.bench.ralm_corpus import read_texts
from app.bench.ralm_tables import PLAIN, SEQUENTIAL, TABLES
from app.engine.engine import Engine
from app.engine.loading import with_drafters
from engines.budget.cost_model import CostModel


@dataclass(frozen=True, slots=True)
class Loaded:
    """A loaded model, and the sets of drafters to compare.

    Attributes:
        stores: empty before `fill`.
        named: the drafters of each set, by its name.
        draft_tokens: forced at each step; None lets the budget decide.
    """

    engine: Engine
    stores: BenchStores
    named: Sets
    draft_tokens: int | None

    def fill(self, texts: Path, chats: Iterable[Sequence[int]] = ()) -> None:
        """Put the files under `texts`, and the token ids of `chats`, into the stores, if some set
        drafts from them.

        Raises:
            InputError: there are no files with text.
        """
        if not any(map(uses_history, self.named.values())):
            return
        imported = map(self.engine.vocabulary.encode, read_texts(texts).values())
        filling = self.stores.fill(self.engine.target, [*imported, *chats])
        for _ in self.engine.exclusively(filling):
            pass

    def rows(self, tables: Sequence[str]) -> list[RalmRow]:
        """RaLMSeq without drafts, then every method of `tables` with every set of drafters."""
        methods = dict.fromkeys(chain(*(TABLES[name].columns.values() for name in tables)))
        methods.pop(SEQUENTIAL, None)
        rows = [RalmRow(SEQUENTIAL, PLAIN, self._drafting(self.engine, ()))]
        for name, names in self.named.items():
            compared = (SEQUENTIAL, *methods) if names else methods
            rows += [
                RalmRow(method, name, self._drafting(self.engine, names)) for method in compared
            ]
        return rows

    def knn_rows(self) -> list[KnnRow]:
        """Every method with every k and every set of drafters, sequential and without drafts
        first."""
        named, rows = {PLAIN: (), **self.named}, []
        for (name, names), k, method in product(named.items(), NEIGHBOURS, METHODS):
            # The cost of a pass includes its search, so no row learns from the costs of another.
            own = replace(self.engine, costs=CostModel())
            rows.append(KnnRow(method, name, self._drafting(own, names), neighbours=k))
        return rows

    def _drafting(self, engine: Engine, names: Sequence[str]) -> Engine:
        """`engine` with fresh drafters, recording nothing."""
        length = self.draft_tokens if names else 0
        drafting = with_drafters(engine, names, length, self.stores.resources)
        require_all(names, drafting.drafters, engine)
        return replace(drafting, observers=[])

"""The drafters of a benchmark: specchat's own over the benchmark's stores, and the two baselines.

`rest` is the papers' suffix array, `sd` a small draft model (plain speculative decoding). Neither
serves in chats: REST's index cannot grow, and a draft model has to be distilled first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from importlib.resources import files
from pathlib import Path

from app.bench.stores import BenchStores
from app.drafting import make_drafters
from app.engine import Engine, equip
from app.options import DRAFTERS
from datastores.errors import InputError
from engines.drafters.protocol import Drafter
from engines.drafters.rest import CONTINUATION, Rest
from engines.drafters.shaped import Shape, Shaped
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
        self, names: Sequence[str], stores: BenchStores, shape: Shape | None = None
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

    def _made(self, name: str, stores: BenchStores, shape: Shape | None) -> list[Drafter]:
        if name == STUDENT:
            from engines.drafters.student import StudentDrafter

            draw = make_sampler(self.engine.sampling)
            return [StudentDrafter(self.student, self.engine.vocabulary.stops, draw)]
        if name == REST:
            if stores.rest is None or not stores.documents:
                raise InputError(f"{REST} drafts from a history alone: give one with --history")
            return [Rest(stores.rest, shape.length if shape else CONTINUATION)]
        return make_drafters([name], stores.stores, remember=False)


def widest(draft_tokens: int | None, shapes: Sequence[Shape] = ()) -> int:
    """Rows the model has to take for drafts of so many tokens, or of these shapes."""
    return MOST_ROWS if shapes else min((draft_tokens or 0) + 1, MOST_ROWS)


def differing(names: Sequence[str]) -> bool:
    """Whether a set drafts from the history at all."""
    return not FROM_HISTORY.isdisjoint(names)

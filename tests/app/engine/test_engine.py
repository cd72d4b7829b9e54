"""The model's lock is held for each slice of work, and free in between."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.app.scripted import scripted_engine


def test_slices_hold_the_models_lock_and_release_it_between(tmp_path: Path) -> None:
    engine = scripted_engine(tmp_path)

    def slices() -> Iterator[bool]:
        for _ in range(3):
            yield engine.busy.locked()

    seen = [(inside, engine.busy.locked()) for inside in engine.exclusively(slices())]
    assert seen == [(True, False)] * 3
    assert not engine.busy.locked()


def test_who_waits_for_the_models_lock_is_not_blocked(tmp_path: Path) -> None:
    engine = scripted_engine(tmp_path)
    slices = engine.exclusively(iter("ab"))
    with engine.busy:
        assert next(slices) is None
    assert list(slices) == ["a", "b"]

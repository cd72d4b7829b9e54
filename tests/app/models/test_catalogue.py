"""All models with what a person wants to know before choosing one."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.locations import Locations, ModelFolders
from app.models import selection as module
from app.models.discovery import embedded
from app.models.memory import freed_by_closing, memory_estimate
from app.models.selection import Catalogue, ListedModel, catalogue
from datastores.errors import InputError, ModelError
from tests.app.models.gguf_files import write_gguf

ROOM = 10**9
CONTEXT = 8192


@pytest.fixture(autouse=True)
def free(monkeypatch: pytest.MonkeyPatch) -> None:
    """So much memory is free on every machine."""
    monkeypatch.setattr(module, "available_memory", lambda: ROOM)


def _whole(locations: Locations, in_use: Path | None) -> Catalogue:
    *_, last = catalogue(locations, in_use)
    return last


def _names(locations: Locations, in_use: Path | None) -> list[str]:
    return [listed.model.name for listed in _whole(locations, in_use).models]


def test_the_one_in_use_comes_first_and_what_cannot_be_used_last(
    locations: Locations, others: ModelFolders
) -> None:
    folder = others.lm_studio[0]
    write_gguf(folder / "org" / "a" / "a.gguf", kind="mmproj")
    used = write_gguf(folder / "org" / "z" / "z.gguf")
    assert _names(locations, used) == ["org/z:z", "built-in", "org/a:a"]
    assert [listed.in_use for listed in _whole(locations, used).models] == [True, False, False]
    assert _names(locations, None) == ["built-in", "org/z:z", "org/a:a"]


def test_the_one_in_use_is_listed_before_the_others_are_looked_at(
    locations: Locations, others: ModelFolders
) -> None:
    used = write_gguf(others.lm_studio[0] / "org" / "z" / "z.gguf")
    steps = list(catalogue(locations, used))
    assert [len(step.models) for step in steps] == [1, 2]
    assert [step.whole for step in steps] == [False, True]
    assert steps[0].models[0].in_use


def test_a_file_elsewhere_is_listed_while_it_is_in_use(
    locations: Locations, tmp_path: Path
) -> None:
    path = write_gguf(tmp_path / "mine.gguf")
    assert _names(locations, path) == [str(path), "built-in"]
    path.unlink()
    assert _names(locations, path) == ["built-in"]


def test_what_closing_the_one_in_use_gives_back_counts_as_free(locations: Locations) -> None:
    found = _whole(locations, embedded())
    need, context = memory_estimate(embedded(), CONTEXT)
    assert found.room == ROOM + need.fixed + need.token * context
    assert freed_by_closing(embedded(), CONTEXT) == need.total(context) - embedded().stat().st_size
    assert _whole(locations, None).room == ROOM


def test_what_does_not_fit_is_listed_with_what_it_needs(
    locations: Locations, others: ModelFolders
) -> None:
    small = write_gguf(others.lm_studio[0] / "org" / "small" / "small.gguf")
    large = write_gguf(
        others.lm_studio[0] / "org" / "wide" / "wide.gguf", attention__key_length=1 << 20
    )
    found = _whole(locations, None)
    fits = {listed.model.path: listed.fits(found.room) for listed in found.models}
    assert (fits[small], fits[large]) == (True, False)
    needed = {listed.model.path: listed.needed for listed in found.models}
    need, context = memory_estimate(large, CONTEXT)
    assert needed[large] == need.total(context) > ROOM


def test_the_one_in_use_fits_whatever_is_free(locations: Locations) -> None:
    (listed,) = _whole(locations, embedded()).models
    assert listed.fits(0)
    assert not ListedModel(listed.model, listed.needed).fits(0)


def test_one_that_is_removed_meanwhile_is_reported(
    locations: Locations, others: ModelFolders, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(path: Path, context: int, _kv_type: str) -> None:
        raise ModelError(f"{path} cannot be read: No such file or directory")

    monkeypatch.setattr(module, "memory_estimate", gone)
    (listed,) = _whole(locations, None).models
    assert listed.model.problem.endswith("No such file or directory")


def test_invalid_settings_are_reported(locations: Locations) -> None:
    locations.create()
    locations.settings.write_text("nonsense = 1")
    with pytest.raises(InputError, match="unknown setting 'nonsense'"):
        _whole(locations, None)

"""Opening what drafters draft from: what is damaged is rebuilt, what is another's is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.damage import found_damage, settle
from app.engine.draft_resources import DraftResources, open_resources
from app.indexing.corpus_index import crest_path
from app.locations import Locations
from datastores.dense.index import DenseIndex
from datastores.dense.store import DenseStore
from tests.app.scripted import ScriptedVocabulary
from tests.engines.scripted import WIDTH, ScriptedTarget

BUDGET = 2**22


def opened(locations: Locations) -> DraftResources:
    return open_resources(("dense",), locations, ScriptedTarget(), ScriptedVocabulary(), BUDGET)


def path_of(locations: Locations) -> Path:
    return locations.states / "scripted.db"


def test_a_missing_index_is_made(locations: Locations) -> None:
    resources = opened(locations)
    assert resources.dense is not None
    assert resources.dense.ask(DenseIndex.status).positions == 0
    assert resources.errors == []
    resources.close()


@pytest.mark.parametrize("keep", [0.3, 0.9])
def test_a_damaged_index_is_set_aside_with_a_word_and_made_anew(
    locations: Locations, keep: float
) -> None:
    resources = opened(locations)
    assert resources.dense is not None
    resources.dense.ask(lambda index: index.add_text("text", list(range(60)) * 200))
    resources.close()
    whole = path_of(locations).read_bytes()
    cut = whole[: int(keep * len(whole))]
    path_of(locations).write_bytes(cut[:100] + b"\xff" * (len(cut) - 100))
    again = opened(locations)
    (told,) = found_damage(locations)
    assert f"{path_of(locations)} was damaged and is rebuilt" in told.text
    assert not told.kept
    settle(told)
    assert again.dense is not None
    assert again.dense.ask(DenseIndex.status).positions == 0
    again.close()
    last = opened(locations)
    assert found_damage(locations) == []
    assert list(locations.states.glob("*.corrupt-*")) == []
    last.close()


@pytest.mark.parametrize(("fingerprint", "width"), [("other", WIDTH), ("scripted", WIDTH + 1)])
def test_another_models_index_is_left_out_with_one_line(
    locations: Locations, fingerprint: str, width: int
) -> None:
    locations.states.mkdir()
    DenseStore.open(path_of(locations), fingerprint, width).close()
    resources = opened(locations)
    (told,) = resources.errors
    assert "another model; move it away" in str(told)
    assert "\n" not in str(told)
    assert resources.dense is None
    resources.close()


def n_grams(locations: Locations) -> DraftResources:
    return open_resources(("crest",), locations, ScriptedTarget(), ScriptedVocabulary(), BUDGET)


@pytest.mark.parametrize("place", ["folder", "link", "file for a folder"])
def test_without_a_file_for_the_n_grams_answers_come_without_them(
    locations: Locations, place: str
) -> None:
    path = crest_path(locations, ScriptedVocabulary.fingerprint)
    if place == "file for a folder":
        locations.projections.mkdir(parents=True)
        path.parent.touch()
    elif place == "folder":
        path.mkdir(parents=True)
    else:
        path.parent.mkdir(parents=True)
        path.symlink_to(path)
    resources = n_grams(locations)
    assert resources.crest is None
    assert [str(path.parent) in str(told) for told in resources.errors] == [True]
    resources.close()


@pytest.mark.parametrize("content", [b"", b"hello", bytes(4096), b"\xff" * 9000])
def test_n_grams_that_cannot_be_read_are_made_anew(locations: Locations, content: bytes) -> None:
    n_grams(locations).close()
    path = crest_path(locations, ScriptedVocabulary.fingerprint)
    path.write_bytes(content)
    again = n_grams(locations)
    assert again.crest is not None
    assert again.crest.lookup([1, 2]) == []
    told = [one.text for one in found_damage(locations)]
    assert told == [f"{path} was damaged and is rebuilt from your chats and imports"]
    again.close()
    assert list(path.parent.glob("*corrupt*")) == []
    last = n_grams(locations)
    assert last.errors == []
    last.close()

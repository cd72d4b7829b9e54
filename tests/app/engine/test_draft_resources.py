"""Opening what drafters draft from: what is damaged is rebuilt, what is another's is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.damage import found_damage, settle
from app.engine.draft_resources import DraftResources, open_resources
from app.indexing.corpus_index import crest_path, tokens_path
from app.locations import Locations
from datastores.crest.reader import CrestReader
from datastores.dense.index import DenseIndex
from datastores.dense.store import DenseStore
from datastores.suffix_reader import SuffixReader
from tests.app.scripted import ScriptedVocabulary
from tests.datastores.older import older_database
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


def from_texts(locations: Locations, name: str) -> DraftResources:
    return open_resources((name,), locations, ScriptedTarget(), ScriptedVocabulary(), BUDGET)


def reader_of(resources: DraftResources, name: str) -> CrestReader | SuffixReader | None:
    return {"crest": resources.crest, "suffix": resources.suffixes}[name]


PATHS = {"crest": crest_path, "suffix": tokens_path}


@pytest.mark.parametrize("name", PATHS)
@pytest.mark.parametrize("place", ["folder", "link", "file for a folder"])
def test_without_a_file_for_a_store_answers_come_without_it(
    locations: Locations, place: str, name: str
) -> None:
    path = PATHS[name](locations, ScriptedVocabulary.fingerprint)
    if place == "file for a folder":
        locations.projections.mkdir(parents=True)
        path.parent.touch()
    elif place == "folder":
        path.mkdir(parents=True)
    else:
        path.parent.mkdir(parents=True)
        path.symlink_to(path)
    resources = from_texts(locations, name)
    assert reader_of(resources, name) is None
    assert [str(path.parent) in str(told) for told in resources.errors] == [True]
    resources.close()


@pytest.mark.parametrize("name", PATHS)
@pytest.mark.parametrize("content", [b"", b"hello", bytes(4096), b"\xff" * 9000], ids=len)
def test_a_store_that_cannot_be_read_is_made_anew(
    locations: Locations, content: bytes, name: str
) -> None:
    from_texts(locations, name).close()
    path = PATHS[name](locations, ScriptedVocabulary.fingerprint)
    path.write_bytes(content)
    again = from_texts(locations, name)
    reader = reader_of(again, name)
    assert reader is not None
    assert reader.lookup([1, 2, 3, 4, 5, 6]) == []
    told = [one.text for one in found_damage(locations)]
    assert told == [f"{path} was damaged and is rebuilt from your chats and imports"]
    again.close()
    assert list(path.parent.glob("*corrupt*")) == []
    last = from_texts(locations, name)
    assert last.errors == []
    last.close()


def test_a_token_cache_without_an_index_gets_one(locations: Locations) -> None:
    path = tokens_path(locations, ScriptedVocabulary.fingerprint)
    path.parent.mkdir(parents=True)
    path.write_bytes(older_database("tokens", 1))
    resources = from_texts(locations, "suffix")
    assert resources.errors == []
    assert resources.suffixes is not None
    assert resources.suffixes.lookup(list(range(70_000, 70_020))) == []
    resources.close()

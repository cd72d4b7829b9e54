"""A model's EAGLE-3 drafter: its version drafts in place of the file, and none that is damaged or
tainted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from app.config import Options
from app.engine.draft_model_versions import (
    drop_tainted,
    eagle_versions,
    halted_learning,
    learning_histories,
    replay_path,
)
from app.engine.eagle import eagle_file
from app.engine.engine import Engine
from app.engine.loading import adopt_versions, load
from app.locations import Locations
from app.models.discovery import embedded
from datastores.replay_buffer.store import ReplayBuffer
from engines.distillation.versions import EAGLE_FILE, Attempt, Version, Versions
from engines.fingerprint import fingerprint
from engines.llama.prediction_heads import PredictionHeads
from tests.datastores.replay_buffer.records import VOCABULARY, record
from tests.engines.tiny import TinyVocabulary
from tests.engines.tiny_heads import write_dflash, write_eagle


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_eagle(tmp_path_factory.mktemp("eagle"), TinyVocabulary(), drafted=200)


@pytest.fixture
def original(model: Path) -> Path:
    found = eagle_file(model)
    assert found is not None
    return found


@pytest.fixture
def versions(locations: Locations, model: Path) -> Versions:
    return eagle_versions(locations, fingerprint(model))


@pytest.fixture
def engine(locations: Locations, model: Path) -> Iterator[Engine]:
    with closing(load(Options(model=str(model), drafters=("prompt", "mtp")), locations)) as opened:
        yield opened


def publish(versions: Versions, weights: bytes, buffer: ReplayBuffer | None = None) -> None:
    partial, number = versions.partial(), versions.next_number()
    (partial / EAGLE_FILE).write_bytes(weights)
    learned = (buffer.identity, buffer.last_id, buffer.last_removal) if buffer else ("", 0, 0)
    mark = fingerprint(partial / EAGLE_FILE)
    versions.publish(partial, Version(number, 1.0, mark, "", number - 1, *learned, {}))


def heads(engine: Engine) -> PredictionHeads:
    """Those that draft, which are also those that the target gives its states to."""
    found = engine.resources.heads
    assert found is not None
    assert found.model is engine.target.heads  # type: ignore[attr-defined]
    assert [drafter.name for drafter in engine.drafters] == ["prompt", "mtp"]
    assert engine.drafters[1]._model is found.model  # type: ignore[attr-defined]
    assert isinstance(found.model, PredictionHeads)
    return found.model


def test_a_version_drafts_from_the_next_answer_on(
    engine: Engine, versions: Versions, original: Path
) -> None:
    first = heads(engine)
    assert engine.resources.replay is not None, "answers are recorded for it from the start"
    adopt_versions(engine)
    assert heads(engine) is first
    publish(versions, original.read_bytes())
    adopt_versions(engine)
    assert heads(engine) is not first
    assert engine.resources.eagle_version.number == 1
    learned = heads(engine)
    adopt_versions(engine)
    assert heads(engine) is learned
    versions.reset()
    adopt_versions(engine)
    assert heads(engine) is not learned
    assert (engine.resources.eagle_version.number, engine.errors) == (0, [])


def test_a_version_drafts_from_the_start_of_a_session(
    locations: Locations, model: Path, original: Path, versions: Versions
) -> None:
    publish(versions, original.read_bytes())
    options = Options(model=str(model), drafters=("prompt", "mtp"))
    with closing(load(options, locations)) as engine:
        assert engine.resources.eagle_version.number == 1
        assert heads(engine).context_length == engine.target.context_length


@pytest.mark.parametrize("kept", [0, 500, -1])
def test_a_damaged_version_costs_one_line_and_the_file_drafts(
    locations: Locations, model: Path, original: Path, versions: Versions, kept: int
) -> None:
    publish(versions, original.read_bytes())
    versions.file(1).write_bytes(original.read_bytes()[:kept])
    options = Options(model=str(model), drafters=("prompt", "mtp"))
    with closing(load(options, locations)) as engine:
        [error] = engine.errors
        assert "version 1" in str(error)
        assert "rollback --eagle" in str(error)
        assert "\n" not in str(error)
        assert heads(engine)


def test_it_goes_with_what_it_learned_from(
    locations: Locations, model: Path, original: Path, versions: Versions
) -> None:
    target = fingerprint(model)
    locations.replay.mkdir()
    with closing(ReplayBuffer.open(replay_path(locations, target), target, VOCABULARY)) as buffer:
        buffer.add("chat:h:1", record())
        publish(versions, original.read_bytes(), buffer)
        drop_tainted(locations)
        assert versions.current == 1
        assert learning_histories(locations)[target].versions == [], "those are the draft model's"
        versions.note(Attempt(1.0, buffer.identity, 1, 0, "no gain", fruitless=9))
        assert list(halted_learning(locations)) == [
            (target, "EAGLE-3 drafter", "no gain in the last 9 trainings (no gain)")
        ]
        buffer.forget("chat:h:1")
        drop_tainted(locations)
    assert (versions.current, versions.all()) == (0, [])


def test_other_heads_do_not_learn(locations: Locations, tmp_path: Path) -> None:
    dflash = write_dflash(tmp_path, TinyVocabulary())
    assert eagle_file(dflash) is None
    assert eagle_file(embedded()) is None
    assert eagle_file(tmp_path) is None
    with closing(load(Options(model=str(dflash), drafters=("mtp",)), locations)) as engine:
        assert engine.versioned_eagle is None
        assert engine.resources.heads is not None

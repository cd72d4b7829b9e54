"""The draft head of a loaded model: its version drafts, and none that is damaged or tainted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pytest

from app.config import Options
from app.engine.draft_model_versions import (
    drop_tainted,
    head_versions,
    learning_histories,
    new_answers,
    replay_path,
)
from app.engine.engine import Engine
from app.engine.loading import adopt_versions, load
from app.locations import Locations
from app.models.discovery import embedded
from datastores.replay_buffer.store import ReplayBuffer
from engines.distillation.head import HeadModel, draft_vocabulary, write_head
from engines.distillation.output_matrix import OutputMatrix
from engines.distillation.versions import HEAD_FILE, Version, Versions
from engines.fingerprint import fingerprint
from tests.datastores.replay_buffer.records import VOCABULARY, record

TARGET = fingerprint(embedded())


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The file of a head for the embedded model that knows nothing."""
    matrix = OutputMatrix(embedded())
    path = tmp_path_factory.mktemp("head") / HEAD_FILE
    vocabulary = draft_vocabulary(matrix, np.arange(64))
    write_head(HeadModel(matrix.width).state_dict(), vocabulary, TARGET, path)
    return path.read_bytes()


@pytest.fixture
def versions(locations: Locations) -> Versions:
    return head_versions(locations, TARGET)


@pytest.fixture
def engine(locations: Locations) -> Iterator[Engine]:
    with closing(load(Options(drafters=("prompt", "head")), locations)) as opened:
        yield opened


def publish(versions: Versions, weights: bytes, buffer: ReplayBuffer | None = None) -> None:
    partial, number = versions.partial(), versions.next_number()
    (partial / HEAD_FILE).write_bytes(weights)
    learned = (buffer.identity, buffer.last_id, buffer.last_removal) if buffer else ("", 0, 0)
    mark = fingerprint(partial / HEAD_FILE)
    versions.publish(partial, Version(number, 1.0, mark, TARGET, number - 1, *learned, {}))


def drafting(engine: Engine) -> list[str]:
    return [drafter.name for drafter in engine.drafters]


def test_a_version_drafts_from_the_next_answer_on(
    engine: Engine, versions: Versions, weights: bytes
) -> None:
    assert drafting(engine) == ["prompt"]
    assert engine.resources.replay is not None, "answers are recorded for it from the start"
    publish(versions, weights)
    adopt_versions(engine)
    assert drafting(engine) == ["prompt", "head"]
    assert engine.resources.head_version.number == 1
    before = engine.drafters[1]
    adopt_versions(engine)
    assert engine.drafters[1] is before
    versions.reset()
    adopt_versions(engine)
    assert (drafting(engine), engine.errors) == (["prompt"], [])


@pytest.mark.parametrize("kept", [0, 500, -1])
def test_a_damaged_version_costs_one_line(
    locations: Locations, versions: Versions, weights: bytes, kept: int
) -> None:
    publish(versions, weights)
    versions.file(1).write_bytes(weights[:kept])
    with closing(load(Options(drafters=("head",)), locations)) as engine:
        [error] = engine.errors
        assert "version 1" in str(error)
        assert "\n" not in str(error)
        adopt_versions(engine)
        assert drafting(engine) == []


def test_it_goes_with_what_it_learned_from(
    locations: Locations, versions: Versions, weights: bytes
) -> None:
    locations.replay.mkdir()
    path = replay_path(locations, TARGET)
    with closing(ReplayBuffer.open(path, TARGET, VOCABULARY)) as buffer:
        buffer.add("chat:h:1", record())
        publish(versions, weights, buffer)
        drop_tainted(locations)
        assert versions.current == 1
        assert learning_histories(locations)[TARGET].versions == [], "those are the draft model's"
        assert new_answers(locations, TARGET, versions, with_states=True).count == 1
        buffer.forget("chat:h:1")
        drop_tainted(locations)
    assert (versions.current, versions.all()) == (0, [])

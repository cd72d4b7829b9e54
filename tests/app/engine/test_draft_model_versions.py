"""Versions of the draft model: the chosen one drafts, and none survives what it learned from."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from app.config import Options
from app.engine.draft_model_versions import (
    drop_tainted,
    learning_histories,
    learning_history,
    replay_path,
    versions_of,
)
from app.engine.engine import Engine
from app.engine.loading import adopt_versions, load
from app.locations import Locations
from app.models.discovery import embedded, embedded_draft_model
from datastores.errors import StoreError
from datastores.replay_buffer.store import ReplayBuffer
from engines.distillation.versions import (
    DRAFT_MODEL_FILE,
    VERSION_FILE,
    Attempt,
    Version,
    Versions,
)
from engines.fingerprint import fingerprint
from tests.datastores.replay_buffer.records import VOCABULARY, record
from tests.engines.tiny import TinyVocabulary, write_llama

TARGET = fingerprint(embedded())
FIGURES = {"acceptance_before": 0.5, "acceptance": 0.75}


@pytest.fixture
def versions(locations: Locations) -> Versions:
    return versions_of(locations, TARGET, embedded_draft_model())


@pytest.fixture
def buffer(locations: Locations) -> Iterator[ReplayBuffer]:
    locations.replay.mkdir()
    with closing(ReplayBuffer.open(replay_path(locations, TARGET), TARGET, VOCABULARY)) as opened:
        yield opened


def publish(versions: Versions, buffer: ReplayBuffer | None = None) -> int:
    """A version that learned from all that is in `buffer`: the embedded draft model once more."""
    partial, number = versions.partial(), versions.next_number()
    shutil.copy(embedded_draft_model(), partial / DRAFT_MODEL_FILE)
    learned = (buffer.identity, buffer.last_id, buffer.last_removal) if buffer else ("", 0, 0)
    mark = fingerprint(partial / DRAFT_MODEL_FILE)
    versions.publish(partial, Version(number, 1.0, mark, "", number - 1, *learned, FIGURES))
    versions.note(Attempt(2.0, learned[0], learned[1], number, ""))
    return number


@pytest.fixture
def engine(locations: Locations) -> Iterator[Engine]:
    opened = load(Options(drafters=("prompt", "draft-model")), locations)
    yield opened
    opened.close()


def test_the_current_version_is_opened(locations: Locations, versions: Versions) -> None:
    publish(versions)
    publish(versions)
    versions.rollback()
    with closing(load(Options(drafters=("draft-model",)), locations)) as engine:
        assert engine.resources.draft_model_version.number == 1
        assert engine.resources.draft_model is not None
        assert engine.errors == []


def test_a_version_is_adopted_between_two_answers(engine: Engine, versions: Versions) -> None:
    before = engine.drafters[1]
    adopt_versions(engine)
    assert engine.drafters[1] is before
    publish(versions)
    adopt_versions(engine)
    after = engine.drafters[1]
    assert after is not before
    assert (after.name, engine.resources.draft_model_version.number) == ("draft-model", 1)
    adopt_versions(engine)
    assert engine.drafters[1] is after
    versions.reset()
    adopt_versions(engine)
    assert engine.resources.draft_model_version.number == 0
    assert engine.errors == []


@pytest.mark.parametrize("content", [None, b"", b"GGUF" + bytes(99), "vocabulary"])
def test_a_damaged_or_swapped_version_costs_one_line_and_the_original_drafts(
    locations: Locations, engine: Engine, versions: Versions, content: bytes | str | None
) -> None:
    path = versions.file(publish(versions))
    if isinstance(content, str):
        write_llama(path, TinyVocabulary())
    elif content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    for _ in range(2):
        adopt_versions(engine)
        [error] = engine.errors
        assert "version 1" in str(error)
        assert "specchat draft rollback" in str(error)
        assert "\n" not in str(error)
        assert engine.drafters[1].name == "draft-model"
    assert engine.resources.draft_model is not None


def test_versions_go_with_what_they_learned_from(
    locations: Locations, versions: Versions, buffer: ReplayBuffer
) -> None:
    buffer.add("chat:h:1", record())
    first = publish(versions, buffer)
    buffer.add("chat:h:2", record(1))
    publish(versions, buffer)
    checkpoint = versions.checkpoint(buffer.identity, buffer.last_removal)
    checkpoint.write_bytes(b"half-trained")
    drop_tainted(locations)
    assert len(versions.all()) == 2
    assert checkpoint.exists()
    buffer.forget("chat:h:2")
    drop_tainted(locations)
    assert [version.number for version in versions.all()] == [first]
    assert versions.current == first
    assert versions.last_attempt() is None, "the rest is learned again"
    assert not checkpoint.exists()
    again = publish(versions, buffer)
    drop_tainted(locations)
    assert versions.current == again, "it never knew chat 2"
    buffer.forget("chat:h:1")
    drop_tainted(locations)
    assert (versions.current, versions.all()) == (0, [])


def test_without_their_buffer_versions_go(
    locations: Locations, versions: Versions, buffer: ReplayBuffer
) -> None:
    publish(versions, buffer)
    buffer.close()
    replay_path(locations, TARGET).write_bytes(b"no database" * 99)
    with pytest.raises(StoreError, match="was damaged and is deleted"):
        drop_tainted(locations)
    drop_tainted(locations)
    assert versions.all() == []
    publish(versions)
    replay_path(locations, TARGET).unlink(missing_ok=True)
    drop_tainted(locations)
    assert versions.all() == []


@pytest.mark.parametrize("content", [None, "", "{", "[]", '{"number": 1}', "a field"])
def test_a_version_that_cannot_tell_what_it_learned_from_goes_with_any_of_it(
    locations: Locations, versions: Versions, buffer: ReplayBuffer, content: str | None
) -> None:
    buffer.add("chat:h:1", record())
    first = publish(versions, buffer)
    buffer.add("chat:h:2", record(1))
    path = versions.file(publish(versions, buffer)).with_name(VERSION_FILE)
    if content is None:
        path.unlink()
    elif content == "a field":
        path.write_text(json.dumps({**json.loads(path.read_text()), "last_record": "2"}))
    else:
        path.write_text(content)
    drop_tainted(locations)
    assert versions.damaged == [2], "nothing was removed"
    buffer.forget("chat:h:2")
    drop_tainted(locations)
    assert versions.damaged == []
    assert versions.current == first
    assert not versions.file(2).parent.exists()


def test_a_damaged_version_goes_with_its_buffer(locations: Locations, versions: Versions) -> None:
    path = versions.file(publish(versions)).with_name(VERSION_FILE)
    path.write_bytes(b"")
    drop_tainted(locations)
    assert not path.parent.exists()


def test_what_was_learned_is_reported(
    locations: Locations, versions: Versions, buffer: ReplayBuffer, tmp_path: Path
) -> None:
    empty = learning_history(locations, "another", Versions(tmp_path))
    assert (empty.versions, empty.current, empty.answers, empty.attempt) == ([], 0, 0, None)
    buffer.add("chat:h:1", record())
    publish(versions, buffer)
    history = learning_history(locations, TARGET, versions)
    assert (history.current, history.answers) == (1, 1)
    assert history.versions[0].figures == FIGURES
    assert history.bytes == buffer.total_bytes + buffer.state_bytes
    assert learning_histories(locations) == {TARGET: history}


def test_a_target_without_versions_reads_no_draft_model(
    locations: Locations, tmp_path: Path
) -> None:
    drop_tainted(locations)
    assert not locations.draft_models.exists()


def test_half_trained_weights_go_without_any_version(
    locations: Locations, versions: Versions, buffer: ReplayBuffer
) -> None:
    buffer.add("chat:h:1", record())
    versions.folder.mkdir(parents=True)
    checkpoint = versions.checkpoint(buffer.identity, buffer.last_removal)
    for path in (checkpoint, checkpoint.with_suffix(".new")):
        path.write_bytes(b"half-trained")
    drop_tainted(locations)
    assert checkpoint.exists()
    buffer.forget("chat:h:1")
    drop_tainted(locations)
    assert list(versions.folder.iterdir()) == []


def test_what_a_killed_process_exported_goes_and_what_is_being_exported_stays(
    locations: Locations, versions: Versions, buffer: ReplayBuffer
) -> None:
    buffer.add("chat:h:1", record())
    exporting = versions.partial()
    killed = exporting.with_name(".partial-999999999")
    killed.mkdir()
    (killed / "draft-model.gguf").write_bytes(b"trained")
    drop_tainted(locations)
    assert list(versions.folder.iterdir()) == [exporting]

"""The process that trains: it publishes whole versions or none, whenever it is killed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.engine.draft_model_versions import head_versions, replay_path, versions_of
from app.locations import Locations
from app.runtime import learning_process
from app.runtime.learning import HEAD_TOO
from app.runtime.learning_process import Round
from datastores.errors import InputError
from datastores.replay_buffer.store import ReplayBuffer
from engines.child_process import ChildProcess
from engines.distillation.trainee import Trainee
from engines.distillation.versions import Attempt, Versions
from engines.sampler import Sampling
from tests.engines.distillation.workspace import Workspace, open_workspace
from tests.engines.tiny import TinyVocabulary, write_llama

TARGET = "target"


@pytest.fixture
def workspace(tmp_path: Path, locations: Locations) -> Iterator[Workspace]:
    with open_workspace(tmp_path) as opened:
        opened.buffer.close()
        locations.replay.mkdir()
        shutil.copy(tmp_path / "replay.db", replay_path(locations, TARGET))
        yield opened


def process(
    locations: Locations, draft_model: Path | None, target: Path | None = None, head: bool = False
) -> ChildProcess:
    folders = (locations.data, locations.cache, locations.config)
    trainees = (draft_model or "", HEAD_TOO if head else "")
    module = "tests.app.runtime.learning_process_child"
    return ChildProcess(module, TARGET, target or draft_model, *trainees, *folders)


def whole(versions: Versions) -> bool:
    """Whether every version is intact, and the one that drafts too."""
    current = versions.current_version()
    return current is None or versions.file(current.number).exists()


def test_killed_while_it_trains_it_leaves_whole_versions_and_goes_on(
    locations: Locations, workspace: Workspace
) -> None:
    versions = versions_of(locations, TARGET, workspace.draft_model)
    with process(locations, workspace.draft_model) as child:
        for _ in zip(range(3), child, strict=False):
            pass
        child.stop()
    assert whole(versions)
    with process(locations, workspace.draft_model) as child:
        messages: list[dict[str, Any]] = list(child)
    reading, *steps, result = messages
    assert reading == {"reading": True}
    assert [step["done"] for step in steps] == sorted(step["done"] for step in steps)
    assert steps[-1]["done"] == steps[-1]["steps"]
    assert (result["version"] is None) == bool(result["reason"])
    assert whole(versions)
    assert not list(versions.folder.glob("*.safetensors"))
    path = replay_path(locations, TARGET)
    with closing(ReplayBuffer.existing(path)) as buffer:
        assert len(list(buffer.records())) == 90
        assert buffer.damaged == {}


def test_another_vocabulary_ends_it_in_one_line(
    locations: Locations, workspace: Workspace, tmp_path: Path
) -> None:
    other = write_llama(tmp_path / "other.gguf", TinyVocabulary(controls=("<other>",)))
    with (
        process(locations, other, workspace.draft_model) as child,
        pytest.raises(InputError, match="cannot draft for this model"),
    ):
        list(child)
    assert not versions_of(locations, TARGET, other).all()


def test_too_few_answers_are_said_to_be(tmp_path: Path, locations: Locations) -> None:
    locations.replay.mkdir()
    with (
        open_workspace(tmp_path, answers=0) as workspace,
        process(locations, workspace.draft_model) as child,
    ):
        _, result = child
    assert result["version"] is None
    assert "too few to learn from" in result["reason"]


def test_a_head_is_trained_without_a_draft_model(
    locations: Locations, workspace: Workspace
) -> None:
    with process(locations, None, workspace.draft_model, head=True) as child:
        *_, result = child
    versions = head_versions(locations, TARGET)
    assert (result["version"] is None) == bool(result["reason"])
    assert whole(versions)
    assert versions.last_attempt() is not None
    assert len(versions.all()) == (result["version"] is not None)


def test_acceptance_is_measured_at_the_persons_sampling_settings(
    locations: Locations, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    locations.settings.parent.mkdir(parents=True, exist_ok=True)
    locations.settings.write_text("[sampling]\ntemperature = 0.4\ntop_k = 7\n", "utf-8")
    found: list[Sampling] = []

    def run_round(buffer: ReplayBuffer, trainee: Trainee, folder: Path, **_: object) -> Round:
        found.append(trainee.sampling)
        yield from ()

    monkeypatch.setattr(learning_process, "run_round", run_round)
    path, folders = workspace.draft_model, (locations.data, locations.cache, locations.config)
    learning_process.learn([TARGET, str(path), str(path), HEAD_TOO, *map(str, folders)])
    chosen = replace(Sampling(), temperature=0.4, top_k=7)
    assert [replace(each, seed=0) for each in found] == [chosen, chosen]


def test_a_head_that_brought_nothing_lately_waits_for_more_answers(
    locations: Locations, workspace: Workspace
) -> None:
    versions = head_versions(locations, TARGET)
    with closing(ReplayBuffer.existing(replay_path(locations, TARGET))) as buffer:
        identity = buffer.identity
    for fruitless, learns in ((9, False), (0, True)):
        versions.partial()
        versions.note(Attempt(1.0, identity, 0, 0, "it costs", fruitless))
        with process(locations, None, workspace.draft_model, head=True) as child:
            messages = list(child)
        assert bool(messages) == learns


def test_a_draft_model_that_cannot_learn_does_not_keep_the_head_from_it(
    locations: Locations, workspace: Workspace, tmp_path: Path
) -> None:
    other = write_llama(tmp_path / "other.gguf", TinyVocabulary(controls=("<other>",)))
    with (
        process(locations, other, workspace.draft_model, head=True) as child,
        pytest.raises(InputError, match="cannot draft for this model"),
    ):
        list(child)
    assert head_versions(locations, TARGET).last_attempt() is not None

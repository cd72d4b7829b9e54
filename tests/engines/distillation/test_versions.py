"""The folder of versions: the latest three, one that drafts, nothing half-written."""

import json
import shutil
from pathlib import Path

import pytest

from datastores.errors import StoreError
from engines.distillation.versions import (
    DRAFT_MODEL_FILE,
    ORIGINAL,
    VERSION_FILE,
    Attempt,
    Version,
    Versions,
)
from engines.fingerprint import fingerprint


def publish(versions: Versions) -> int:
    """A next version with some bytes for weights."""
    partial, number = versions.partial(), versions.next_number()
    (partial / DRAFT_MODEL_FILE).write_bytes(b"weights %d" % number)
    mark = fingerprint(partial / DRAFT_MODEL_FILE)
    versions.publish(partial, Version(number, 1.0, mark, "origin", 0, "b", 9, 0, {"x": 0.5}))
    return number


def test_every_byte_of_a_small_head_counts(tmp_path: Path) -> None:
    path = tmp_path / "head.safetensors"
    path.write_bytes(bytes(6 << 20))
    mark = fingerprint(path)
    with path.open("r+b") as file:
        file.seek((1 << 20) + 10 * 20_480 + 18_000)
        file.write(b"x")
    assert fingerprint(path) != mark


@pytest.fixture
def versions(tmp_path: Path) -> Versions:
    return Versions(tmp_path / "versions")


def test_without_versions_the_original_draft_model_drafts(versions: Versions) -> None:
    assert versions.current == 0
    assert versions.current_version() is None
    assert versions.all() == []
    with pytest.raises(StoreError, match="nothing to roll back"):
        versions.rollback()
    versions.reset()
    assert not versions.folder.exists()


def test_the_latest_three_are_kept(versions: Versions) -> None:
    for _ in range(5):
        publish(versions)
    assert [version.number for version in versions.all()] == [3, 4, 5]
    current = versions.current_version()
    assert current is not None
    assert (current.number, current.figures) == (5, {"x": 0.5})
    assert versions.file(5).read_bytes() == b"weights 5"


def test_rolling_back_ends_at_the_original_draft_model(versions: Versions) -> None:
    publish(versions)
    publish(versions)
    assert [versions.rollback(), versions.rollback()] == [1, 0]
    assert versions.current_version() is None
    versions.select(2)
    assert versions.current == 2
    with pytest.raises(StoreError, match="no version 9"):
        versions.select(9)


def test_after_a_rollback_the_next_version_has_a_number_of_its_own(versions: Versions) -> None:
    publish(versions)
    publish(versions)
    versions.rollback()
    assert publish(versions) == 3
    assert versions.current == 3


def test_a_reset_leaves_no_weights(versions: Versions) -> None:
    publish(versions)
    versions.note(Attempt(1.0, "b", 9, 1, ""))
    versions.reset()
    assert versions.current == 0
    assert versions.last_attempt() is None
    assert not list(versions.folder.rglob("*.gguf"))


def test_a_number_is_never_used_again(versions: Versions) -> None:
    publish(versions)
    known = versions.current_identity
    versions.reset()
    assert versions.current_identity == ORIGINAL
    assert publish(versions) == 2
    assert versions.current_identity != known
    versions.select(0)
    versions.select(2)
    assert versions.next_number() == 3


def test_a_file_that_was_swapped_is_noticed(versions: Versions) -> None:
    publish(versions)
    versions.file(1).write_bytes(b"other weights")
    with pytest.raises(StoreError, match=r"version 1 in .* is damaged") as error:
        versions.current_version()
    assert "\n" not in str(error.value)
    assert versions.rollback() == 0


@pytest.mark.parametrize("content", ["", "{", "[]", '{"version": "x"}', '{"version": 7}'])
def test_a_damaged_choice_is_the_latest_version(versions: Versions, content: str) -> None:
    publish(versions)
    publish(versions)
    (versions.folder / "current.json").write_text(content)
    assert versions.current == 2
    assert versions.next_number() == 3


def test_where_the_chosen_version_is_gone_the_one_before_it_drafts(versions: Versions) -> None:
    for _ in range(3):
        publish(versions)
    versions.select(2)
    shutil.rmtree(versions.folder / "0002")
    assert versions.current == 1
    shutil.rmtree(versions.folder / "0001")
    assert versions.current == 0


def test_a_version_whose_deletion_was_interrupted_is_gone(
    versions: Versions, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(versions)

    def killed(path: Path) -> None:
        (path / VERSION_FILE).unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("engines.distillation.versions.shutil.rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            versions.delete(1)
    assert versions.all() == []
    monkeypatch.setattr("engines.distillation.versions.psutil.pid_exists", lambda _: False)
    versions.drop_abandoned()
    assert [path.name for path in versions.folder.iterdir()] == ["current.json"]


@pytest.mark.parametrize("content", ["", "{", "{}", '{"number": 1}'])
def test_a_damaged_description_is_left_out(versions: Versions, content: str) -> None:
    publish(versions)
    (versions.folder / "0001" / VERSION_FILE).write_text(content)
    assert versions.all() == []
    assert versions.damaged == [1]
    with pytest.raises(StoreError, match="damaged"):
        versions.current_version()
    versions.reset()
    assert not list(versions.folder.rglob("*.gguf"))


def test_without_its_description_a_version_is_damaged_and_goes_with_a_reset(
    versions: Versions,
) -> None:
    publish(versions)
    (versions.folder / "0001" / VERSION_FILE).unlink()
    assert (versions.all(), versions.damaged) == ([], [1])
    with pytest.raises(StoreError, match="damaged"):
        versions.current_version()
    assert versions.next_number() == 2
    versions.reset()
    assert not list(versions.folder.rglob("*.gguf"))


def test_files_of_a_killed_process_are_no_version(versions: Versions) -> None:
    left = versions.folder / ".partial-1"
    left.mkdir(parents=True)
    (left / VERSION_FILE).write_text(json.dumps({"number": 1}))
    assert versions.all() == []
    assert publish(versions) == 1
    assert not left.exists()


def test_an_attempt_comes_back(versions: Versions) -> None:
    versions.folder.mkdir()
    assert versions.last_attempt() is None
    attempt = Attempt(2.0, "b", 9, 0, "nothing was gained")
    versions.note(attempt)
    assert versions.last_attempt() == attempt


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot write to"):
        Versions(tmp_path / "file").partial()


def test_a_version_of_an_earlier_specchat_drafts_and_shows_its_figures(versions: Versions) -> None:
    publish(versions)
    folder = versions.folder / "0001"
    (folder / DRAFT_MODEL_FILE).rename(folder / "student.gguf")
    described = json.loads((folder / VERSION_FILE).read_text())
    described["figures"] = {"tokens_per_call": 2.5, "tokens_per_call_before": 2.0}
    (folder / VERSION_FILE).write_text(json.dumps(described))
    current = versions.current_version()
    assert current is not None
    assert current.figures == {"tokens_per_step": 2.5, "tokens_per_step_before": 2.0}
    assert versions.file(1).read_bytes() == b"weights 1"
    publish(versions)
    assert versions.file(2).name == DRAFT_MODEL_FILE

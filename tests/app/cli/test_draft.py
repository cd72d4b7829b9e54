"""`specchat draft` lists, rolls back and deletes versions."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from app.cli.main import DONE, FAILED, run
from app.engine.draft_model_versions import versions_of
from app.locations import locate
from app.models.discovery import embedded, embedded_draft_model
from engines.distillation.versions import Attempt, Versions
from engines.fingerprint import fingerprint
from tests.app.engine.test_draft_model_versions import publish

ORIGINAL = "The original draft model built-in is in use"
Specchat = Callable[..., int]
Captured = pytest.CaptureFixture[str]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def specchat(data: Path) -> Specchat:
    return lambda *arguments: run([*map(str, arguments), "--data-dir", str(data)])


@pytest.fixture
def versions(data: Path) -> Versions:
    return versions_of(locate(data), fingerprint(embedded()), embedded_draft_model())


def test_without_versions_the_original_is_used(specchat: Specchat, capsys: Captured) -> None:
    assert specchat("draft", "list") == DONE
    lines = capsys.readouterr().out.splitlines()
    assert lines == [ORIGINAL, "learns from 25 new answers, 0 so far"]
    assert specchat("draft", "rollback") == FAILED
    assert "nothing to roll back" in capsys.readouterr().err
    assert specchat("draft", "reset") == DONE


def test_versions_are_listed_with_their_gain(
    specchat: Specchat, versions: Versions, capsys: Captured
) -> None:
    publish(versions)
    publish(versions)
    versions.note(Attempt(3.0, "b", 1, 0, "acceptance fell\x1b[31m\nfrom 0.8"))
    assert specchat("draft", "list") == DONE
    said = capsys.readouterr().out
    assert said.splitlines()[2].startswith("* 2 ")
    assert "0.50 → 0.75" in said
    assert "\x1b" not in said
    assert said.splitlines()[-1].startswith("last attempt: acceptance fell")
    assert specchat("draft", "list", "--json") == DONE
    report = json.loads(capsys.readouterr().out)
    assert (report["current"], len(report["versions"])) == (2, 2)


def test_rollback_and_reset(specchat: Specchat, versions: Versions, capsys: Captured) -> None:
    publish(versions)
    publish(versions)
    for expected in ("Switched to version 1", ORIGINAL):
        assert specchat("draft", "rollback") == DONE
        assert capsys.readouterr().out.strip() == expected
    assert specchat("draft", "reset") == DONE
    assert versions.all() == []


def test_a_model_without_a_draft_model_is_named(
    specchat: Specchat, tmp_path: Path, capsys: Captured
) -> None:
    copy = shutil.copy(embedded(), tmp_path / "copy.gguf")
    assert specchat("draft", "list", "--model", copy) == FAILED
    assert "copy.gguf" in capsys.readouterr().err

"""The commands on models: what they print, and what they leave behind."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from app.cli.main import run
from app.locations import Locations, ModelFolders
from app.models.discovery import embedded
from engines.llama.gguf import read_metadata
from tests.app.models.gguf_files import split_gguf, write_gguf

MEGABYTES = f"{embedded().stat().st_size / 1e6:.0f}"
MILLIONS = f"{read_metadata(embedded()).parameters / 1e6:.0f}"
pytestmark = pytest.mark.usefixtures("unhurried_close")


@pytest.fixture(autouse=True)
def no_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is piped in."""
    monkeypatch.setattr("sys.stdin", None)


@pytest.fixture(autouse=True)
def data(locations: Locations, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command here is about the test's own data directory."""
    monkeypatch.setenv("SPECCHAT_DATA_DIR", str(locations.data))


def _lines(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert run(["models", *arguments]) == 0
    return capsys.readouterr().out.splitlines()


def test_models_are_listed_and_the_one_in_use_is_marked(
    locations: Locations, capsys: pytest.CaptureFixture[str]
) -> None:
    write_gguf(locations.models / "org" / "tuned" / "tuned-Q8_0.gguf")
    title, first, second, draft = _lines(capsys)
    assert draft == "Draft model: built-in"
    assert title.split() == ["name", "size", "parameters", "quantisation", "context", "place"]
    size = [MEGABYTES, "MB", MILLIONS, "M"]
    assert first.split() == ["*", "built-in", *size, "F16", "2,048", "specchat"]
    assert second.split()[0] == "org/tuned:Q8_0"
    assert _lines(capsys, "use", "org/tuned") == ["Switched to org/tuned:Q8_0"]
    chosen, draft = _lines(capsys)[2:]
    assert chosen.startswith("* org/tuned:Q8_0")
    assert draft == "Draft model: none"
    back = _lines(capsys, "use", "built-in")
    assert "only knows shell commands" in back[1]
    assert _lines(capsys)[1].startswith("* built-in")


def test_a_file_somewhere_else_is_listed_while_it_is_in_use(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_gguf(tmp_path / "a.gguf")
    _lines(capsys, "use", str(path))
    assert "a file" in _lines(capsys)[2]
    path.unlink()
    assert run(["models"]) == 0
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 3
    assert printed.err == f"the chosen model is missing: {path}\n"


def test_unusable_models_are_listed_with_the_reason(
    others: ModelFolders, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = others.lm_studio[0] / "org" / "odd"
    write_gguf(folder / "eye.gguf", kind="mmproj")
    (folder / "half-00001-of-00002.gguf").write_bytes(b"")
    (folder / "ev\x1b[2Jil.gguf").write_bytes(b"")
    assert run(["models"]) == 0
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 3
    assert "not usable: org/odd:eye (an image projector, not a model)" in printed.err
    assert "not usable: org/odd:half (1 of its 2 parts are missing)" in printed.err
    assert "\x1b" not in printed.err


def test_a_listed_model_that_is_given_by_its_path_keeps_its_name(
    locations: Locations, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = locations.models / "org" / "copy"
    folder.mkdir(parents=True)
    shutil.copy(embedded(), folder / "copy-F16.gguf")
    link = tmp_path / "link.gguf"
    link.symlink_to(folder / "copy-F16.gguf")
    assert run(["--model", str(link), "models"]) == 0
    assert [line.split()[:2] for line in capsys.readouterr().out.splitlines()[2:-1]] == [
        ["*", "org/copy:F16"]
    ]
    assert run(["--model", str(link), "ask", "--json", "--max-tokens", "2", "hello"]) == 0
    assert json.loads(capsys.readouterr().out)["model"] == "org/copy:F16"
    assert _lines(capsys, "use", str(link)) == ["Switched to org/copy:F16"]


def test_scripts_get_everything(locations: Locations, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_gguf(locations.models / "a.gguf")
    assert run(["--model", "a", "models", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["model"], report["path"], report["skipped"]) == ("a", str(path), [])
    assert [model["name"] for model in report["models"]] == ["built-in", "a"]
    assert report["models"][1]["architecture"] == "llama"
    assert report["draft_model"] == ""


def test_one_that_does_not_fit_now_is_chosen_with_a_warning(
    locations: Locations, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("app.cli.models.available_memory", lambda: 1000)
    write_gguf(locations.models / "a.gguf")
    assert run(["models", "use", "a"]) == 0
    assert "not enough memory now: " in (said := capsys.readouterr().err)
    assert "close other programs, or choose a smaller model" in said


def test_an_unknown_name_fails_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["models", "use", "builtin"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("specchat: no model 'builtin'")
    assert said.endswith("; similar: built-in\n")


def test_a_draft_model_is_chosen_with_a_model_or_alone(
    locations: Locations, capsys: pytest.CaptureFixture[str]
) -> None:
    locations.models.mkdir(parents=True)
    shutil.copy(embedded(), locations.models / "copy-F16.gguf")
    said = _lines(capsys, "use", "copy-F16", "--draft-model", "built-in")
    assert said[1:] == ["Draft model: built-in"]
    assert run(["ask", "--json", "--max-tokens", "24", "how do I list files?"]) == 0
    assert json.loads(capsys.readouterr().out)["by_drafter"]["draft-model"] > 0
    assert _lines(capsys, "use", "--draft-model", "") == ["Draft model: none"]
    assert run(["models", "use"]) == 2
    assert "give a NAME or a --draft-model" in capsys.readouterr().err


def test_a_question_is_answered_by_the_chosen_model(
    locations: Locations, capsys: pytest.CaptureFixture[str]
) -> None:
    locations.models.mkdir(parents=True)
    shutil.copy(embedded(), locations.models / "copy-F16.gguf")
    _lines(capsys, "use", "copy-F16")
    assert run(["ask", "--json", "--max-tokens", "2", "hello"]) == 0
    assert json.loads(capsys.readouterr().out)["tokens"] == 2
    known = json.loads((locations.cache / "models.json").read_text())
    assert str(locations.models / "copy-F16.gguf") in known


def test_a_model_in_parts_is_one_model_through_the_cache_s_links(
    others: ModelFolders, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    snapshot = others.hugging_face / "models--org--parted" / "snapshots" / ("c" * 40)
    snapshot.mkdir(parents=True)
    parts = split_gguf(embedded(), tmp_path / "parted-F16.gguf", tensors=30)
    for number, part in enumerate(parts):
        blob = part.rename(tmp_path / f"blob {number}")
        (snapshot / part.name).symlink_to(blob)
    listed = _lines(capsys)[2].split()
    size = [MEGABYTES, "MB"]
    assert listed == ["org/parted:F16", *size, MILLIONS, "M", "F16", "2,048", "Hugging", "Face"]
    assert run(["ask", "--json", "--max-tokens", "2", "--model", "org/parted", "hello"]) == 0
    assert json.loads(capsys.readouterr().out)["tokens"] == 2


@pytest.mark.parametrize("arguments", [["models"], ["models", "pull", "nonsense"]])
def test_nothing_of_the_hub_is_loaded_before_it_is_needed(arguments: list[str]) -> None:
    code = (
        f"import sys\nfrom app.cli.main import run\nrun({arguments!r})\n"
        "print(sorted(set(sys.modules) & {'huggingface_hub', 'llama_cpp', 'torch', 'textual'}))"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=dict(os.environ))
    assert done.stdout.splitlines()[-1] == "[]"

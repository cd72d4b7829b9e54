"""`specchat doctor` checks every part, also if one of them fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import app.cli.doctor
from app.cli.doctor import BAD, OFF, OK, Finding, findings
from app.cli.main import run
from app.config import Options
from app.engine.engine import Engine
from app.engine.head import VersionedHead
from app.locations import locate
from app.models.discovery import embedded
from app.models.pass_costs import measured_like
from datastores.chats.history import History
from datastores.errors import ModelError
from tests.app.scripted import scripted_engine


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """A scripted engine in place of a loaded model."""
    scripted = scripted_engine(tmp_path)
    monkeypatch.setattr(app.cli.doctor, "load", lambda *_: scripted)
    monkeypatch.setattr(app.cli.doctor, "unused_gpu", lambda: "")
    monkeypatch.setattr(app.cli.doctor, "missing_features", list)
    return scripted


def _report(options: Options) -> dict[str, Finding]:
    return {finding.topic: finding for finding in findings(options)}


@pytest.mark.usefixtures("engine")
def test_a_fresh_installation_is_sound(tmp_path: Path) -> None:
    report = _report(Options(data_dir=tmp_path / "new"))
    not_ok = {topic for topic, finding in report.items() if finding.state != OK}
    assert not_ok == {"reopening"}, "a scripted target cannot be saved"
    assert report["history"].text == "no chats"
    assert "not measured yet" in report["speed"].text


def test_the_draft_model_is_named_with_what_it_waits_for(tmp_path: Path, engine: Engine) -> None:
    options = Options(data_dir=tmp_path)
    assert _report(options)["draft model"].text.startswith("none; a smaller model")
    engine.versioned_head = VersionedHead(engine.target.fingerprint, 8, 8, locate(tmp_path))
    head = _report(options)["draft head"]
    assert head.text == "none yet; learns from 25 new answers, 0 so far"
    locate(tmp_path).settings.write_text("draft_model = 'gone'\nlearn = false\n")
    engine.resources.errors.append(ModelError("no model 'gone'"))
    report = _report(options)
    assert report["draft head"].text == "none yet; learning is off"
    missing = report["draft model"]
    assert (missing.state, missing.text) == (BAD, "gone does not draft: no model 'gone'")


def test_the_embedded_draft_model_is_named_too(tmp_path: Path) -> None:
    text = _report(Options(data_dir=tmp_path, drafters=("draft-model",)))["draft model"].text
    assert text == "built-in, original version; learns from 25 new answers, 0 so far"


def test_the_speed_is_the_time_of_a_step(tmp_path: Path, engine: Engine) -> None:
    for _ in range(3):
        engine.costs.observe(1, 100, 0.010)
    assert _report(Options(data_dir=tmp_path))["speed"].text == "10 ms per step"


def test_when_drafts_pay_is_said_from_the_file_or_from_what_was_measured(
    tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = Options(data_dir=tmp_path)
    engine.path = embedded()
    assert "not measured yet" in _report(options)["verifying"].text, "too narrow a model"
    monkeypatch.setattr(app.cli.doctor, "MIN_WIDTH", 0)
    said = _report(options)["verifying"].text
    assert said.startswith("a draft of 3 tokens pays if 0.1 of them")
    assert "F16 on another CPU" in said
    engine.costs.observe(1, 100, 0.010)
    for rows in (4, 8):
        for _ in range(20):
            engine.costs.observe(rows, 100, 0.010 * rows)
    said = _report(options)["verifying"].text
    assert said.startswith("a draft of 3 tokens pays if 3.1 of them")
    assert "(measured here)" in said


@pytest.mark.parametrize(
    ("stored", "like"),
    [("BF16", "F16"), ("Q8_0", "Q8_0"), ("IQ4_NL", "Q4_0"), ("Q5_K_S", "Q4_K_M"), ("", "Q4_K_M")],
)
def test_files_are_matched_with_measured_ones(stored: str, like: str) -> None:
    assert measured_like(stored) == like


@pytest.mark.usefixtures("engine")
def test_parts_that_are_off_are_reported(tmp_path: Path) -> None:
    none = _report(Options(data_dir=tmp_path, drafters=()))["drafting"]
    assert (none.state, none.text) == (OFF, "switched off with --drafters none")
    one = _report(Options(data_dir=tmp_path, drafters=("prompt",)))["drafting"]
    assert one.state == OFF
    assert one.text.endswith("off: recycle, suffix, crest, dense, draft-model, mtp, head")


@pytest.mark.usefixtures("engine")
def test_a_build_for_another_processor_is_reported_with_the_command_to_rebuild(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app.cli.doctor, "missing_features", lambda: ["AVX512", "REPACK"])
    finding = _report(Options(data_dir=tmp_path))["processor"]
    assert finding.state == OFF
    assert "without AVX512, REPACK" in finding.text
    assert 'CMAKE_ARGS="-DGGML_NATIVE=on" pip install' in finding.text


@pytest.mark.usefixtures("engine")
def test_an_unused_gpu_is_reported_with_the_command_to_use_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app.cli.doctor, "unused_gpu", lambda: "NVIDIA L4")
    finding = _report(Options(data_dir=tmp_path))["gpu"]
    assert finding.state == OFF
    assert finding.text.startswith("NVIDIA L4 is not being used")
    assert 'CMAKE_ARGS="-DGGML_CUDA=on" pip install' in finding.text


def test_every_failing_part_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> Engine:
        raise ModelError("x.gguf is not a GGUF file")

    monkeypatch.setattr(app.cli.doctor, "load", refuse)
    (tmp_path / "history.db").write_bytes(b"not a database")
    (tmp_path / "config.toml").write_text("nonsense = 1")
    report = _report(Options(data_dir=tmp_path))
    bad = {topic: finding.text for topic, finding in report.items() if finding.state == BAD}
    assert set(bad) == {"history", "settings", "model"}
    assert "is damaged; the next start sets it aside and begins a new one" in bad["history"]
    assert "unknown setting 'nonsense'" in bad["settings"]
    assert bad["model"] == "x.gguf is not a GGUF file"
    assert (tmp_path / "history.db").read_bytes() == b"not a database"


@pytest.mark.usefixtures("engine")
def test_it_is_printed_for_people_and_for_scripts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = str(tmp_path / "a\x1b[2J")
    assert run(["doctor", "--data-dir", place]) == 0
    printed = capsys.readouterr().out
    assert "✓ specchat" in printed
    assert "\x1b" not in printed
    assert run(["doctor", "--json", "--data-dir", place]) == 0
    topics = [finding["topic"] for finding in json.loads(capsys.readouterr().out)["findings"]]
    assert topics[0] == "specchat"
    assert topics[-2:] == ["speed", "verifying"]


@pytest.mark.usefixtures("engine")
def test_a_history_in_use_is_checked_without_harm(tmp_path: Path) -> None:
    history = History.open(tmp_path / "history.db")
    chat = history.create_chat("kept")
    assert _report(Options(data_dir=tmp_path))["history"].state == OK
    assert history.chats() == [chat]
    history.close()


def test_prediction_heads_that_cannot_run_are_explained(tmp_path: Path, engine: Engine) -> None:
    assert "heads" not in _report(Options(data_dir=tmp_path))
    vars(engine.target).update(heads=None, heads_problem="llama.cpp cannot run them")
    heads = _report(Options(data_dir=tmp_path))["heads"]
    assert heads.state == OFF
    assert heads.text.endswith("llama.cpp cannot run them")
    assert "heads" not in _report(Options(data_dir=tmp_path, drafters=("prompt",)))
    vars(engine.target).update(heads=engine.target, heads_problem="")
    assert _report(Options(data_dir=tmp_path))["heads"].state == OK

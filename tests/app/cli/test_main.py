"""The `specchat` command: options in both places, exit codes, one-line errors, lazy imports."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import click
import pytest

import app.cli.main
from app.cli.main import COMMANDS, run, specchat
from app.config import DRAFTERS, Options
from datastores.errors import StoreError

HEAVY = ("textual", "torch", "transformers", "faiss", "llama_cpp")


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Options]:
    """The options that a command was called with."""
    options: list[Options] = []

    @click.command()
    @click.pass_obj
    def probe(given: Options) -> None:
        options.append(given)

    monkeypatch.setattr(app.cli.main, "probe", probe, raising=False)
    monkeypatch.setitem(COMMANDS, "probe", "app.cli.main:probe")
    return options


def _failing(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    @click.command()
    def probe() -> None:
        raise error

    monkeypatch.setattr(app.cli.main, "probe", probe, raising=False)
    monkeypatch.setitem(COMMANDS, "probe", "app.cli.main:probe")


@pytest.mark.parametrize(
    ("arguments", "chosen"),
    [
        ([], Options()),
        (["--model", "a.gguf"], Options(model="a.gguf")),
        (["--data-dir", "/x"], Options(data_dir=Path("/x"))),
        (["--drafters", "none"], Options(drafters=())),
        (["--drafters", "all"], Options(drafters=DRAFTERS)),
        (["--drafters", "recycle"], Options(drafters=("recycle",))),
        (["--drafters", "recycle,prompt,recycle"], Options(drafters=("recycle", "prompt"))),
        (["--drafters", "student,draft-model"], Options(drafters=("draft-model",))),
        (["--draft-tokens", "auto"], Options(draft_tokens=None)),
        (["--draft-tokens", "8"], Options(draft_tokens=8)),
        (["--seed", "0", "--temperature", "0"], Options(seed=0, temperature=0.0)),
        (["--max-tokens", "7", "--exact"], Options(max_tokens=7, exact=True)),
        (["--gpu-layers", "0"], Options(gpu_layers=0)),
    ],
)
def test_global_options_stand_before_or_after_the_command(
    seen: list[Options], arguments: list[str], chosen: Options
) -> None:
    assert run([*arguments, "probe"]) == 0
    assert run(["probe", *arguments]) == 0
    assert seen == [chosen, chosen]


def test_the_later_place_wins_and_the_rest_is_kept(seen: list[Options]) -> None:
    assert run(["--seed", "1", "--exact", "probe", "--seed", "2"]) == 0
    assert seen == [Options(seed=2, exact=True)]


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["--nonsense"],
        ["locate", "--nonsense"],
        ["--drafters", "prompt,guess", "locate"],
        ["--drafters", "", "locate"],
        ["--draft-tokens", "-1", "locate"],
        ["--draft-tokens", "many", "locate"],
        ["--temperature", "nan", "locate"],
        ["--temperature", "-0.1", "locate"],
        ["--temperature", "warm", "locate"],
        ["--max-tokens", "0", "locate"],
        ["--seed", "-1", "locate"],
        ["--gpu-layers", "-1", "locate"],
    ],
)
def test_wrong_usage_ends_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2
    printed = capsys.readouterr()
    assert "Error: " in printed.err
    assert not printed.out


def test_an_expected_error_is_one_clean_line_and_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _failing(monkeypatch, StoreError("file \x1b]0;x\x07\nof evil"))
    assert run(["probe"]) == 1
    assert capsys.readouterr() == ("", "specchat: file \u241b]0;x\u2407 of evil\n")


def test_an_interrupt_ends_with_130_and_without_a_trace(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _failing(monkeypatch, KeyboardInterrupt())
    assert run(["probe"]) == 130
    assert not capsys.readouterr().err.strip()


def test_unexpected_errors_are_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    _failing(monkeypatch, RuntimeError("a bug"))
    with pytest.raises(RuntimeError, match="a bug"):
        run(["probe"])


def test_a_closed_pipe_is_not_an_error(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "app", "locate", "--data-dir", str(tmp_path)]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, b"")


def test_every_path_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["locate", "--json", "--data-dir", str(tmp_path)]) == 0
    paths = json.loads(capsys.readouterr().out)
    assert paths["history"] == str(tmp_path / "history.db")
    assert run(["locate", "--data-dir", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(maxsplit=1)[1] for line in lines] == list(paths.values())


def test_a_hostile_path_does_not_reach_the_terminal_raw(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["locate", "--data-dir", str(tmp_path / "a\x1b[2Jb")]) == 0
    assert "\x1b" not in capsys.readouterr().out


def test_the_version_is_the_package_s(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"specchat {version('specchat')}\n"


def test_no_command_s_help_loads_a_screen_or_a_model_library() -> None:
    lines = [["--help"], ["locate"], *([name, "-h"] for name in COMMANDS)]
    code = (
        f"import sys\nfrom app.cli.main import run\nfor arguments in {lines!r}:\n"
        "    assert run(arguments) == 0, arguments\n"
        f"    heavy = set(sys.modules) & set({HEAVY!r})\n    assert not heavy, (arguments, heavy)"
    )
    environment = {**os.environ, "SPECCHAT_DATA_DIR": os.devnull}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert not done.returncode, done.stderr


def test_every_command_is_in_the_help() -> None:
    with click.Context(specchat) as context:
        assert specchat.list_commands(context) == sorted(COMMANDS)
        for name in COMMANDS:
            command = specchat.get_command(context, name)
            assert command is not None
            assert command.get_short_help_str(), name


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("asc", "no command 'asc': did you mean ask?"),
        ("qqqq", "no command 'qqqq': see --help for all of them"),
        ("\x1b[31m", "no command '␛[31m': see --help for all of them"),
    ],
)
def test_a_command_that_does_not_exist_is_named_with_its_neighbours(
    capsys: pytest.CaptureFixture[str], typed: str, said: str
) -> None:
    assert run([typed]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("former", "present"),
    [
        (["student"], ["draft"]),
        (["sources"], ["imports"]),
        (["bench", "replay"], ["bench", "simulate"]),
    ],
)
def test_a_command_is_found_under_its_former_name_which_no_help_shows(
    capsys: pytest.CaptureFixture[str], former: list[str], present: list[str]
) -> None:
    helped = []
    for arguments in (former, present):
        assert run([*arguments, "--help"]) == 0
        helped.append(capsys.readouterr().out)
    assert helped[0] == helped[1]
    assert run([*former[:-1], "--help"]) == 0
    assert f"  {former[-1]} " not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("path", "former", "present", "name"),
    [
        (["models", "use"], "--student", "--draft-model", "draft_model"),
        (["bench", "decode"], "--student", "--draft-model", "draft_model"),
        (["find"], "--source", "--import", "chosen"),
        (["ask"], "--source", "--import", "chosen"),
    ],
)
def test_an_option_is_taken_under_its_former_name_which_no_help_shows(
    path: list[str], former: str, present: str, name: str
) -> None:
    command: click.Command = specchat
    context = click.Context(specchat, **specchat.context_settings)
    for each in path:
        assert isinstance(command, click.Group)
        found = command.get_command(context, each)
        assert found is not None
        command = found
    for option in (former, present):
        given = command.make_context(
            None, [option, "/a"], parent=context, resilient_parsing=True
        ).params[name]
        assert given in ("/a", Path("/a"), ("/a",))
    helped = command.get_help(click.Context(command, parent=context))
    assert present in helped
    assert former not in helped

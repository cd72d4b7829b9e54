"""The process of `specchat`: file modes, closed streams, signals, deleted folders."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

import app
from datastores.chats.history import History
from tests.waiting import TIMEOUT_S

ROOT = Path(app.__file__).parents[1]
SPECCHAT = [sys.executable, "-m", "app"]
ANSWER = ("ask", "--max-tokens", "4", "--temperature", "0", "list files")


def _environment(data: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "SPECCHAT_DATA_DIR": str(data)}


def _shell(script: str, data: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a line of shell in `folder`, with the command `specchat` defined."""
    return subprocess.run(
        ["bash", "-c", f'specchat() {{ {sys.executable} -m app "$@"; }}; {script}'],
        cwd=folder,
        env=_environment(data),
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_closed_streams_are_the_null_device(tmp_path: Path, closed: str) -> None:
    done = _shell(f"specchat chats {closed}; echo $?", tmp_path / "data", tmp_path)
    assert done.stdout == "0\n"
    assert "Traceback" not in done.stderr
    with closing(History.open(tmp_path / "data" / "history.db")) as history:
        assert history.store.quarantined is None


def test_letters_survive_an_ascii_locale(tmp_path: Path) -> None:
    data, question = tmp_path / "data", "What does the café on Ærø sell?"
    (tmp_path / "Zürich.txt").write_text("The café sells bread.", "utf-8")
    ascii_locale = "export PYTHONUTF8=0 LC_ALL=C PYTHONIOENCODING="
    asked = f"ask --model built-in --max-tokens 2 -n -a Zürich.txt '{question}'"
    done = _shell(f"{ascii_locale}; specchat {asked} && specchat chats", data, tmp_path)
    assert done.returncode == 0, done.stderr
    assert question.rstrip("?") in done.stdout
    with closing(History.open(data / "history.db")) as history:
        [chat] = history.chats()
        text = history.thread(chat.id)[0].content
    assert text.endswith(question)
    assert "Zürich.txt" in text


def test_utf_8_is_chosen_although_the_interpreter_ignores_the_environment(tmp_path: Path) -> None:
    script = f"PYTHONUTF8=0 LC_ALL=C {sys.executable} -E -m app --data-dir Fähre locate"
    done = _shell(script, tmp_path / "data", tmp_path)
    assert f"{tmp_path}/Fähre" in done.stdout


def test_a_character_that_the_output_lacks_is_a_question_mark(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with closing(History.open(data / "history.db")) as history:
        chat = history.create_chat().id
        history.rename(chat, "An arrow → and é")
    script = "export PYTHONIOENCODING=latin-1; specchat chats | iconv -f latin1 -t utf-8"
    done = _shell(script, data, tmp_path)
    assert "An arrow ? and é" in done.stdout
    assert done.stderr == ""


def test_every_file_is_its_owner_s_alone_whatever_the_folder(tmp_path: Path) -> None:
    data, notes = tmp_path / "data", tmp_path / "notes"
    inner = data / "cache" / "projections" / "tokenizer"
    for folder in (data, data / "cache", data / "cache" / "projections", inner, notes):
        folder.mkdir(parents=True)
        folder.chmod(0o755)
    (notes / "ferry.md").write_text("The ferry costs eleven kroner.")
    for name in ("history.db", "cache/projections/passages.db", "unsent.json", "cache/models.json"):
        old = data / name
        old.touch(0o644)
        old.chmod(0o644)
    line = f"umask 000; specchat import --no-watch {notes} && specchat {' '.join(ANSWER[:-1])} ls"
    done = _shell(line, data, tmp_path)
    assert done.returncode == 0, done.stderr
    files = [path for path in data.rglob("*") if path.is_file()]
    assert {"history.db", "library.db", "passages.db", "crest.db"} <= {one.name for one in files}
    inside = [path for path in data.rglob("*") if stat.S_IMODE(path.stat().st_mode) & 0o077]
    assert inside == []


def test_a_deleted_working_folder_is_named_where_it_is_needed(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    script = "rmdir ../gone; specchat chats; specchat import notes; specchat chats --data-dir x"
    done = _shell(script, tmp_path / "data", gone)
    listed, imported, relative = (
        line for line in done.stderr.splitlines() if not line.startswith("shell-init")
    )
    assert listed == "No chats yet."
    assert imported == "specchat: nothing imported: no such file or folder: notes"
    assert relative == "specchat: the working folder was deleted: change to another one with cd"


STARTING = """
import os, signal, sys
class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == "app.cli.main":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupts())
from app.__main__ import main
main()
"""
"""The console script, interrupted while it imports the program."""


def test_ctrl_c_while_it_starts_leaves_no_traceback(tmp_path: Path) -> None:
    command = [sys.executable, "-c", STARTING]
    done = subprocess.run(
        command, env=_environment(tmp_path), capture_output=True, check=False, timeout=TIMEOUT_S
    )
    assert (done.returncode, done.stderr) == (-signal.SIGINT, b"")


@pytest.mark.skipif(sys.platform == "win32", reason="has no such limit")
@pytest.mark.parametrize(
    ("limit", "command", "said"),
    [
        ("ulimit -v 100000", "chats", "emory"),  # OpenBLAS says it itself, and ends
        ("ulimit -f 0", "demo", "the demo needs 500 MB"),
        ("ulimit -f 0", "chats", "writing it failed"),
    ],
)
def test_what_the_machine_denies_is_one_line(
    tmp_path: Path, limit: str, command: str, said: str
) -> None:
    done = _shell(f"{limit}; specchat {command}", tmp_path / "data", tmp_path)
    assert done.returncode == 1
    assert said in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_a_loop_keeps_its_input(tmp_path: Path) -> None:
    (tmp_path / "list").write_text("one\ntwo\nthree\n")
    # The loop calls the function that reads the question, which needs no model.
    script = (
        f"while read f; do {sys.executable} -c 'import sys;"
        " from app.cli.question import read_question;"
        ' print(read_question(["q"], [], sys.stdin))\'; done < list'
    )
    assert _shell(script, tmp_path, tmp_path).stdout == "('q', [])\n" * 3
    script = script.replace("while read f; do", "").replace("; done < list", " < list")
    assert "one\\ntwo\\nthree" in _shell(script, tmp_path, tmp_path).stdout

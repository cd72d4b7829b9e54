"""The shell as a client: key bindings in real shells, `ask -e`, `ask --command`, presets."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import termios
import time
from contextlib import closing
from pathlib import Path

import pytest

from app.cli.shell_command import CUT_OFF, NEEDS_TERMINAL, NO_COMMAND, UNSAFE, command_in
from app.cli.shell_init import SCRIPTS
from datastores.chats.history import History
from datastores.chats.presets import Presets
from datastores.errors import ModelError
from tests.app.cli.test_ask import SHORT, specchat
from tests.waiting import TIMEOUT_S

pytestmark = pytest.mark.usefixtures("unhurried_close")
ROOT = Path(__file__).parents[3]


def _as_in_a_terminal() -> None:
    """Take the terminal as the controlling one, and Ctrl+C as usual: programs in the background
    ignore it, and all that they start."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Terminal:
    """A program in a terminal of its own."""

    def __init__(self, command: list[str], environment: dict[str, str], folder: Path) -> None:
        self.shown = ""
        self._reader, inner = pty.openpty()
        self.process = subprocess.Popen(
            command,
            stdin=inner,
            stdout=inner,
            stderr=inner,
            env=environment,
            cwd=folder,
            start_new_session=True,
            preexec_fn=_as_in_a_terminal,
        )
        os.close(inner)

    def type(self, text: str) -> None:
        os.write(self._reader, text.encode())

    def wait_for(self, text: str) -> None:
        """Read until `text` is shown after what was waited for before."""
        deadline = time.monotonic() + TIMEOUT_S
        while text not in self.shown:
            assert time.monotonic() < deadline, self.shown
            self._read()
        self.shown = self.shown.partition(text)[2]

    def close(self) -> int:
        """Wait for the program's end, and return its exit code."""
        while self._read():
            pass
        os.close(self._reader)
        return self.process.wait(TIMEOUT_S)

    def _read(self) -> bool:
        if select.select([self._reader], [], [], 0.1)[0]:
            try:
                piece = os.read(self._reader, 4096)
            except OSError:  # Linux reports the closed end as an error
                return False
            self.shown += piece.decode(errors="replace")
            return bool(piece)
        return self.process.poll() is None


STARTED = {
    "bash": ["bash", "--norc", "--noprofile", "-i"],
    "zsh": ["zsh", "-f", "-i"],
    "fish": ["fish", "--no-config", "-i"],
}
LOADS = {
    "bash": 'eval "$(specchat shell-init bash)"',
    "fish": "specchat shell-init fish | source",
    "zsh": 'eval "$(specchat shell-init zsh)"',
}
"""The line of each start-up file."""


in_shells = pytest.mark.parametrize("shell", sorted(SCRIPTS))
KEY = "\x1ba"


def opened(shell: str, folder: Path, answers: str) -> Terminal:
    """A shell with the key, and with a `specchat` that does `answers` and notes what is asked."""
    if sys.platform == "win32" or shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed, or there are no pseudo-terminals")
    script = specchat(folder / "data", "shell-init", shell).stdout
    (folder / "script").write_bytes(script)
    program = folder / "bin" / "specchat"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\n[ "$1" = shell-init ] && exec cat "{folder}/script"\n'
        f'printf "%s\\n" "$@" > "{folder}/asked"\n{answers}\n'
    )
    program.chmod(0o755)
    environment = {
        **{name: value for name, value in os.environ.items() if name in ("LANG", "LC_ALL", "HOME")},
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "TERM": "xterm-256color",
        "XDG_DATA_HOME": str(folder / "share"),
        "PS1": "$ ",
    }
    terminal = Terminal(STARTED[shell], environment, folder)
    terminal.type(f"{LOADS[shell]}; echo rea''dy\r")
    terminal.wait_for("ready")
    return terminal


def press(terminal: Terminal, key: str) -> None:
    time.sleep(0.3)  # some shells take a pasted escape for the end of the paste
    terminal.type(key)


@in_shells
def test_a_key_turns_the_line_into_a_command_that_is_not_run(tmp_path: Path, shell: str) -> None:
    terminal = opened(shell, tmp_path, 'echo "touch made && echo made-\\"it\\""')
    terminal.type('make a file\'s "name"')
    press(terminal, KEY)
    terminal.wait_for("touch made")
    assert (tmp_path / "asked").read_text().splitlines() == [
        "ask", "--command", "--no-stdin", "--", "make a file's \"name\"",
    ]  # fmt: skip
    assert not (tmp_path / "made").exists(), "the command is on the line, and not run"
    terminal.type("\r")
    terminal.wait_for("made-it")
    assert (tmp_path / "made").exists()
    terminal.type("exit\r")
    assert terminal.close() == 0


@in_shells
def test_a_line_that_gets_no_command_stays(tmp_path: Path, shell: str) -> None:
    terminal = opened(shell, tmp_path, 'echo "specchat: no model" >&2; exit 1')
    press(terminal, KEY)
    terminal.type("echo emp''ty\r")
    terminal.wait_for("empty")
    assert not (tmp_path / "asked").exists(), "an empty line asks nothing"
    terminal.type("echo 'wow! it' sta''ys")
    press(terminal, KEY)
    terminal.wait_for("no model")
    assert (tmp_path / "asked").read_text().splitlines()[-1] == "echo 'wow! it' sta''ys"
    terminal.type(" here\r")
    terminal.wait_for("wow! it stays here")
    terminal.type("exit\r")
    terminal.close()


@in_shells
def test_interrupting_the_question_keeps_the_line(tmp_path: Path, shell: str) -> None:
    terminal = opened(shell, tmp_path, "echo asking >&2; exec sleep 300")
    terminal.type("echo sta''ys")
    press(terminal, KEY)
    terminal.wait_for("asking")
    press(terminal, "\x03")
    time.sleep(0.5)
    terminal.type(" here\r")
    terminal.wait_for("stays here")
    terminal.type("exit\r")
    terminal.close()


@in_shells
def test_a_command_of_several_lines_is_put_on_the_line_whole(tmp_path: Path, shell: str) -> None:
    answer = r"printf 'echo one-\\\ntwo; echo \047a !b\047\n'"
    terminal = opened(shell, tmp_path, answer)
    terminal.type("say it")
    press(terminal, KEY)
    terminal.wait_for("!b")
    terminal.type("\r")
    terminal.wait_for("one-two")
    terminal.type("exit\r")
    terminal.close()


@pytest.mark.parametrize(
    ("answer", "command"),
    [
        ("Use it:\n\n```sh\nls -l\n```\n\nor\n\n```sh\nls\n```", "ls -l"),
        ("```\n$ cd x\n$ ls\n```", "cd x\nls"),
        ("~~~bash\n  ls\n~~~", "ls"),
        ("\n`ls -a`\nlists all", "ls -a"),
        ("```sh\nls", "ls"),
    ],
)
def test_the_first_block_or_line_is_the_command(answer: str, command: str) -> None:
    assert command_in(answer, "stop") == command


@pytest.mark.parametrize(
    ("answer", "finish", "complaint"),
    [
        ("ls", "length", CUT_OFF),
        ("ls", "repetition", CUT_OFF),
        ("\n \n", "stop", NO_COMMAND),
        ("```sh\n```", "stop", NO_COMMAND),
        ("```sh\nls \x1b[8mhidden\n```", "stop", UNSAFE),
        ("ls \u202e fr-", "stop", UNSAFE),
        ("ls\u200b", "stop", UNSAFE),
    ],
)
def test_what_is_no_whole_visible_command_is_refused(
    answer: str, finish: str, complaint: str
) -> None:
    with pytest.raises(ModelError, match=re.escape(complaint)):
        command_in(answer, finish)


ANSWERING = """
import sys
from app.__main__ import main
from app.cli import ask
ask.command_in = lambda answer, finish: sys.argv.pop()
main()
"""
"""Runs the command line, whose last argument replaces the command in the answer."""


@pytest.mark.parametrize(
    ("command", "typed", "said", "code"),
    [
        ("echo to-'day'; exit 3", "y\r", "to-day", 3),
        ("echo to-'day'", "\r", "", 1),
        ("find <folder> -type f", "", "replace <folder>", 1),
    ],
)
def test_a_command_is_shown_and_run_if_the_person_agrees(
    tmp_path: Path, command: str, typed: str, said: str, code: int
) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SHELL": "/bin/sh"}
    arguments = ["--data-dir", str(tmp_path), *SHORT, "ask", "-e", "-n", "print the day", command]
    terminal = Terminal([sys.executable, "-c", ANSWERING, *arguments], environment, tmp_path)
    terminal.wait_for(command)
    if typed:
        terminal.wait_for("Run it? [y/N]:")
        terminal.type(typed)
    if said:
        terminal.wait_for(said)
    assert terminal.close() == code
    assert "to-day" not in terminal.shown
    assert "Traceback" not in terminal.shown


def test_a_command_is_asked_about_on_a_terminal_alone(tmp_path: Path) -> None:
    failed = specchat(tmp_path, "ask", "-e", "list files", code=1)
    assert failed.stderr.decode() == f"specchat: {NEEDS_TERMINAL}\n"
    failed = specchat(tmp_path, "ask", "--command", "--json", "list files", code=1)
    assert b"leave out --json" in failed.stderr


def test_a_command_is_printed_alone(tmp_path: Path) -> None:
    question = "find files larger than 10 MB"
    answer = specchat(tmp_path, "ask", question, "--temperature", "0").stdout.decode()
    printed = specchat(tmp_path, "ask", "--command", question, "--temperature", "0")
    assert printed.stdout.decode().strip() == command_in(answer, "stop")
    assert printed.stdout.count(b"\n") == 1


def test_a_preset_sets_up_the_new_chat(tmp_path: Path) -> None:
    with closing(History.open(tmp_path / "history.db")) as history:
        Presets(history).save("terse", "Be terse.", {"max_tokens": 3, "temperature": 0.0})
    asked = ("ask", "--json", "--preset", "terse", "How do I use tar?")
    for options in ((), ("--no-save",)):
        assert json.loads(specchat(tmp_path, *asked, *options).stdout)["tokens"] == 3
    specchat(tmp_path, *asked, "--system", "Be long.")
    with closing(History.open(tmp_path / "history.db")) as history:
        later, first = history.chats()
        assert (first.system, first.sampling["max_tokens"]) == ("Be terse.", 3)
        assert (later.system, later.sampling["max_tokens"]) == ("Be long.", 3)
    unknown = specchat(tmp_path, "ask", "--preset", "none", "x", code=1)
    assert b"no preset 'none'" in unknown.stderr
    continued = specchat(tmp_path, "ask", "-c", "--preset", "terse", "x", code=1)
    assert b"--preset is for a new chat" in continued.stderr

"""`specchat ask` beside a process that has the model open: the same answer, without loading."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from threading import Event as Flag
from threading import Thread

import psutil
import pytest

from app.cli.ask import BEHIND
from app.config import Options
from app.conversation.events import Event, Opened, Wrote, WroteText
from app.conversation.statistics import Piece
from app.foreground import Foreground
from app.locations import locate
from app.runtime.command_answer import mismatch
from app.runtime.engine_client import ENDED, open_engine, sockets
from app.runtime.engine_socket import CLOSED, MAX_CONNECTIONS, EngineSocket
from app.runtime.model_thread import Model, ModelThread
from app.runtime.open_model import open_model
from app.runtime.wire import Accepted, AskRequest, encode
from datastores.chats.history import History
from datastores.errors import InputError
from tests.app.cli.test_ask import UNHURRIED, Printed, specchat
from tests.engines.tiny import TinyVocabulary, write_llama
from tests.waiting import TIMEOUT_S, until

pytestmark = [
    pytest.mark.usefixtures("unhurried_close", "indexed_at_normal_priority"),
    pytest.mark.skipif(sys.platform == "win32", reason="Python has no Unix sockets there"),
]
GREEDY = ("--drafters", "none", "--temperature", "0", "--max-tokens", "24", "--seed", "7")
QUESTION = "How do I use tar?"
TIMINGS = {"seconds", "first_token_seconds", "overhead_seconds", "tokens_per_second"}
ROOT = Path(__file__).parents[3]


class Open:
    """A process that has the model open, as the interface has."""

    def __init__(self, folder: Path, options: Options) -> None:
        self.locations = locate(folder)
        self.locations.create()
        self.history = History.open(self.locations.history)
        self.commands: list[int] = []
        self.thread = ModelThread(self._open, Foreground(self.locations.foreground))
        self.socket = EngineSocket(self.locations, self.thread, self.commands.append)
        self._options = options

    def _open(self, _: str | None) -> Model:
        return open_model(self._options, self.locations, self.history, lambda *_: None)

    def close(self) -> None:
        self.socket.close()
        assert self.thread.close()
        self.history.close()


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    made = Open(tmp_path / "open", Options(drafters=()))
    made.thread.load().result()
    made.socket.open()
    with closing(made):
        yield made


@pytest.fixture
def loading(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a command say that it loads the model, instead of doing it."""

    def refuse(*_: object) -> None:
        raise InputError("the command loads the model")

    monkeypatch.setattr("app.cli.loaded_engine.open_for_one_answer", refuse)


def request_for(opened: Open, **changed: object) -> AskRequest:
    options = Options(drafters=(), data_dir=opened.locations.data, max_tokens=24)
    request = AskRequest(options, opened.locations, QUESTION)
    return replace(request, **changed)  # type: ignore[arg-type]


def connect(opened: Open) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(TIMEOUT_S)
    connection.connect(str(sockets(opened.locations)[0]))
    return connection


def reply(connection: socket.socket) -> bytes:
    with connection.makefile("rb") as stream:
        return stream.readline()


def connected() -> int:
    """Number of Unix sockets of this process, which both sides of a connection are here."""
    return len(psutil.Process().net_connections("unix"))


def asked_by_the_person(opened: Open, begun: Flag, gate: Flag) -> Future[None]:
    """An answer in progress that goes on once `gate` is set."""
    chat = opened.history.create_chat().id

    def take(event: Event) -> None:
        if isinstance(event, Wrote):
            begun.set()
            gate.wait(TIMEOUT_S)

    answer = opened.thread.ask(lambda one: one.answer(chat, None, "Give me examples."), take)
    assert begun.wait(TIMEOUT_S)
    return answer


def test_the_answer_is_that_of_a_command_alone(
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = tmp_path / "notes.md"
    notes.write_text("`frob --all` turns every knob.")
    turns = [
        (QUESTION,),
        ("And how do I list its files?", "-c"),
        ("And its size?", "-c", "--no-save"),
        ("What does frob do?", "-a", str(notes), "--system", "Be short.", "--stop", "knob"),
    ]
    alone = [specchat(tmp_path / "alone", "ask", "--json", *turn, *GREEDY) for turn in turns]
    monkeypatch.setattr("app.cli.loaded_engine.open_for_one_answer", None)
    there = opened.locations.data
    beside = [specchat(there, "ask", "--json", *turn, *GREEDY) for turn in turns]
    for one, other in zip(alone, beside, strict=True):
        assert one.stderr == other.stderr
        reports = [json.loads(printed.stdout) for printed in (one, other)]
        assert reports[0].keys() == reports[1].keys()
        for name in reports[0].keys() - TIMINGS:
            assert reports[0][name] == reports[1][name], name
    shown = specchat(there, "ask", QUESTION, *GREEDY).stdout.decode()
    assert shown == f"{json.loads(alone[0].stdout)['text']}\n"
    with closing(History.open(tmp_path / "alone" / "history.db")) as history:
        stored = [one.content for chat in history.chats() for one in history.tree(chat.id)]
    here = [one.content for chat in opened.history.chats() for one in opened.history.tree(chat.id)]
    assert here[2:] == stored
    until(lambda: opened.commands[-1] == 0)


SAMPLED = (*GREEDY, "--temperature", "0.9", "--seed", "5")


@pytest.mark.parametrize(
    ("arguments", "given", "code"),
    [
        ((QUESTION, *SAMPLED), b"", 0),
        ((QUESTION, "--raw", "--stop", r"\n", *GREEDY), b"", 0),
        (("And the piped text?", *GREEDY), b"frob --all turns every knob.", 0),
        ((*GREEDY,), QUESTION.encode(), 0),
        (("What does frob do?", "--docs", "once", *GREEDY), b"", 0),
        (("What does frob do?", "--docs", "iterative", "--json", *GREEDY), b"", 0),
        (("What does frob do?", "--import", "notes.md", *GREEDY), b"", 0),
        (("What do walruses eat?", "--docs", "once", "--json", *GREEDY), b"", 0),
        (("What does frob do?", "--docs", "off", "--json", *GREEDY), b"", 0),
        (("--command", "list the files by size", *GREEDY, "--max-tokens", "90"), b"", 0),
        (("--preset", "none of these", QUESTION, *GREEDY), b"", 1),
        (("--import", "none of these", QUESTION, *GREEDY), b"", 1),
        (("-c", QUESTION, *GREEDY), b"", 1),
        (("-a", "/nowhere", QUESTION, *GREEDY), b"", 1),
        (("Wie kopiere ich ein Verzeichnis?", *GREEDY), b"", 1),
        (("walrus " * 5000, *GREEDY), b"", 1),
        ((QUESTION, "--model", "none of these", *GREEDY), b"", 1),
    ],
    ids=lambda one: " ".join(map(str, one))[:40] if isinstance(one, tuple) else "",
)
def test_output_and_exit_code_are_those_of_a_command_alone(
    opened: Open, tmp_path: Path, arguments: tuple[str, ...], given: bytes, code: int
) -> None:
    notes = tmp_path / "notes.md"
    notes.write_text("# Frob\n\n`frob --all` turns every knob.")
    alone, beside = (
        _imported_and_asked(folder, notes, arguments, given, code)
        for folder in (tmp_path / "alone", opened.locations.data)
    )
    assert beside.stderr == alone.stderr
    assert _without_timings(beside.stdout) == _without_timings(alone.stdout)
    assert opened.commands or code, "the open model was not asked"


def _imported_and_asked(
    folder: Path, notes: Path, arguments: tuple[str, ...], given: bytes, code: int
) -> Printed:
    if {"--docs", "--import"} & {*arguments}:
        specchat(folder, "import", str(notes))
    return specchat(folder, "ask", *arguments, given=given, code=code)


def _without_timings(printed: bytes) -> object:
    """What a command printed, as far as two runs agree; how far searching was ahead of the answer
    depends on time, too."""
    if not printed.startswith(b"{"):
        return printed
    report = json.loads(printed)
    return {name: value for name, value in report.items() if name not in {*TIMINGS, "retrieval"}}


def test_exact_mode_is_the_same_where_it_is_open(tmp_path: Path) -> None:
    arguments = ("ask", "--json", QUESTION, *SAMPLED, "--exact", "--drafters", "prompt,recycle")
    alone = specchat(tmp_path / "alone", *arguments)
    opened = Open(tmp_path / "open", Options(drafters=("prompt", "recycle"), exact=True))
    opened.thread.load().result()
    opened.socket.open()
    with closing(opened):
        beside = specchat(opened.locations.data, *arguments)
        assert opened.commands, "the open model was not asked"
    assert json.loads(beside.stdout)["text"] == json.loads(alone.stdout)["text"]
    assert beside.stderr == alone.stderr


@pytest.mark.usefixtures("loading")
@pytest.mark.parametrize(
    "arguments",
    [("--exact",), ("--draft-tokens", "3"), ("--drafters", "all"), ("--gpu-layers", "0")],
)
def test_other_options_load_the_model(opened: Open, arguments: tuple[str, ...]) -> None:
    failed = specchat(opened.locations.data, "ask", QUESTION, *GREEDY, *arguments, code=1)
    assert b"the command loads the model" in failed.stderr


def test_the_open_model_is_used_only_where_it_is_the_same(opened: Open, tmp_path: Path) -> None:
    model, locations = opened.thread.model, opened.locations
    assert mismatch(model, locations, request_for(opened)) == ""
    per_answer = replace(request_for(opened).options, seed=1, temperature=0.5, max_tokens=3)
    assert mismatch(model, locations, request_for(opened, options=per_answer)) == ""
    assert mismatch(None, locations, request_for(opened)) == "no model is open"
    elsewhere = request_for(opened, locations=locate(tmp_path / "elsewhere"))
    assert mismatch(model, locations, elsewhere) == "other folders"
    tiny = write_llama(tmp_path / "tiny.gguf", TinyVocabulary(pieces=["a", "b"]))
    other = replace(per_answer, model=str(tiny))
    assert mismatch(model, locations, request_for(opened, options=other)) == "another model is open"
    for text, reason in (
        ('theme = "nord"\nmax_tokens = 9\ndocs = "off"', ""),
        ("context = 512", "the settings changed since it was opened"),
        ("threads = 1", "the settings changed since it was opened"),
    ):
        locations.settings.write_text(text)
        assert mismatch(model, locations, request_for(opened)) == reason


@pytest.mark.usefixtures("loading")
def test_a_process_of_another_version_is_not_used(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = encode(request_for(opened))
    monkeypatch.setattr("app.runtime.wire.PROTOCOL", "another")
    with connect(opened) as connection:
        connection.sendall(line)
        assert b"another version" in reply(connection)


@pytest.mark.usefixtures("loading")
def test_without_anybody_who_listens_the_model_is_loaded(tmp_path: Path) -> None:
    locations = locate(tmp_path)
    locations.sockets.mkdir(mode=0o700)
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(locations.sockets / "killed.sock"))
    dead.close()
    failed = specchat(tmp_path, "ask", QUESTION, code=1)
    assert b"the command loads the model" in failed.stderr


@pytest.mark.usefixtures("loading")
def test_errors_are_those_of_a_command_alone(opened: Open) -> None:
    failed = specchat(opened.locations.data, "ask", "walrus " * 5000, *GREEDY, code=1)
    (line,) = failed.stderr.decode().splitlines()
    assert line.startswith("specchat: ")
    assert "context" in line
    assert failed.stdout == b""
    assert opened.history.chats() == []


@pytest.mark.usefixtures("loading")
def test_a_command_waits_for_the_answer_in_progress(opened: Open) -> None:
    begun, gate = Flag(), Flag()
    answer = asked_by_the_person(opened, begun, gate)

    def go_on_once_it_waits() -> None:
        until(lambda: opened.commands)
        gate.set()

    Thread(target=go_on_once_it_waits).start()
    printed = specchat(opened.locations.data, "ask", QUESTION, *GREEDY)
    assert printed.stderr.decode() == f"{BEHIND}\n"
    assert printed.stdout.strip()
    answer.result()


@pytest.mark.usefixtures("loading")
def test_what_the_model_has_read_for_the_person_stays_read(opened: Open) -> None:
    begun, gate = Flag(), Flag()
    gate.set()
    asked_by_the_person(opened, begun, gate).result()
    assert opened.thread.model is not None
    assert opened.thread.model.engine is not None
    target = opened.thread.model.engine.target
    read = list(target.tokens)
    specchat(opened.locations.data, "ask", QUESTION, *GREEDY)
    assert list(target.tokens) != read
    assert target.cached_prefix(read) == len(read)  # type: ignore[attr-defined]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_keeps_what_was_written(opened: Open, number: signal.Signals) -> None:
    arguments = ["ask", "Give me examples of tar.", "--temperature", "0", "--drafters", "none"]
    folder = ["--data-dir", str(opened.locations.data)]
    command = [sys.executable, "-c", UNHURRIED, *folder, *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, env=environment) as process:
        assert process.stdout is not None
        seen = os.read(process.stdout.fileno(), 1)
        process.send_signal(number)
        out, err = process.communicate(timeout=TIMEOUT_S)
    until(lambda: not opened.thread.is_answering)
    answer = opened.history.thread(opened.history.last_chat().id)[-1]
    if number == signal.SIGKILL:
        assert process.returncode == -number
    else:
        assert process.returncode == 128 + number, err.decode()
        assert answer.finish == "interrupted"
        assert (seen + out).decode().strip() == answer.content.strip()
    until(lambda: opened.commands[-1] == 0)


def test_a_process_that_dies_in_mid_answer_is_one_line(tmp_path: Path) -> None:
    locations = locate(tmp_path)
    locations.sockets.mkdir(mode=0o700)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(locations.sockets / "dying.sock"))
    listening.listen()

    def die_in_mid_answer() -> None:
        connection, _ = listening.accept()
        with connection, connection.makefile("rb") as stream:
            stream.readline()
            for message in (Accepted(False), Opened("it"), WroteText((Piece("Use", 0),))):
                connection.sendall(encode(message))

    dying = Thread(target=die_in_mid_answer)
    dying.start()
    failed = specchat(tmp_path, "ask", QUESTION, code=1)
    dying.join()
    listening.close()
    assert failed.stdout == b"Use"
    assert failed.stderr.decode() == f"specchat: {ENDED}\n"


def test_closing_the_interface_ends_the_answer_to_a_command(opened: Open) -> None:
    begun, gate = Flag(), Flag()
    asked_by_the_person(opened, begun, gate)
    engine = open_engine(request_for(opened))
    assert engine is not None
    assert engine.waiting
    until(lambda: opened.commands == [1])
    opened.socket.close()
    with pytest.raises(Exception, match=CLOSED):
        list(engine.events())
    gate.set()
    until(lambda: not opened.thread.is_answering)
    assert len(opened.history.chats()) == 1, "the command's question is not asked"
    assert sockets(opened.locations) == []


def test_two_commands_at_once_get_their_answers(opened: Open) -> None:
    command = [sys.executable, "-m", "app", "--data-dir", str(opened.locations.data), "ask"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    running = [
        subprocess.Popen([*command, QUESTION, *GREEDY], stdout=subprocess.PIPE, env=environment)
        for _ in range(2)
    ]
    one, other = (process.communicate(timeout=TIMEOUT_S)[0] for process in running)
    assert [process.returncode for process in running] == [0, 0]
    assert one == other
    assert one.strip()
    assert len(opened.history.chats()) == 2


HOSTILE = [
    b"",
    b"\n",
    b"null\n",
    b"[" * 100_000 + b"\n",
    b'["", "AskRequest", {}]\n',
    b"\xff\xfe\n",
    b"{" + b'"a":1,' * 1000,
    b"9" * 5000 + b"\n",
]


def test_clients_that_vanish_or_send_anything_leave_no_state(opened: Open) -> None:
    line = encode(request_for(opened))
    sent = [*HOSTILE, line.replace(b'"text"', b'"tex"'), line.replace(b"[]", b"[[]]"), line[:-1]]
    before = connected()
    for number in range(100):
        with connect(opened) as connection:
            connection.sendall(sent[number % len(sent)])
            if number % 3 == 0:
                connection.shutdown(socket.SHUT_WR)
                assert b"Accepted" not in reply(connection)
    held = [connect(opened) for _ in range(MAX_CONNECTIONS + 4)]
    for connection in held:
        connection.close()

    def accepted() -> bool:
        with connect(opened) as connection, suppress(ConnectionError):
            connection.sendall(line)
            return b"Accepted" in reply(connection)
        return False  # there were too many others

    for _ in range(20):
        until(accepted)
    until(lambda: not opened.thread.is_answering and opened.commands[-1] == 0)
    until(lambda: opened.socket._connections == 0)
    until(lambda: connected() == before)
    assert all(chat.active is not None for chat in opened.history.chats())
    assert specchat(opened.locations.data, "ask", QUESTION, *GREEDY).stdout.strip()


def test_the_socket_is_the_user_s_own(opened: Open, tmp_path: Path) -> None:
    (path,) = sockets(opened.locations)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    other = EngineSocket(opened.locations, opened.thread)
    with closing(socket.socket(socket.AF_UNIX)) as dead:
        dead.bind(str(path.with_name("dead.sock")))
    other.open()
    assert len(sockets(opened.locations)) == 2, "the dead one is removed, the other kept"
    other.close()
    assert sockets(opened.locations) == [path]
    deep = locate(tmp_path / ("deep" * 40))
    assert len(os.fsencode(deep.sockets)) < 100
    assert deep.sockets != locate(tmp_path / ("deeq" * 40)).sockets


def test_a_command_imports_little_where_a_model_is_open(opened: Open) -> None:
    program = (
        "import sys; from app.cli.main import run;"
        f"code = run(['--data-dir', {str(opened.locations.data)!r}, 'ask', 'hi', *{GREEDY!r}]);"
        "heavy = ('asyncio', 'numpy', 'sqlite3', 'llama_cpp', 'textual', 'torch', 'tomlkit');"
        "print([name for name in heavy if name in sys.modules], code)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, env=environment
    )
    assert done.stdout.decode().splitlines()[-1] == "[] 0", done.stderr.decode()

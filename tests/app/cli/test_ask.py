"""`specchat ask` with the real model, and in a real process to test terminals, pipes, signals and
lazy imports."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import closing, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest

from app.cli.answer_printer import NOT_ENCODED, NOTHING_IMPORTED, REPEATED
from app.cli.main import run
from app.conversation import assistant, generation
from app.conversation.attachments import question_of
from app.conversation.citations import NO_PASSAGE, PASSAGE_TOO_LONG
from app.conversation.question_language import ENGLISH_ONLY
from datastores.chats.history import History
from engines.chat_template.template import BASE_MODEL, ChatTemplate
from tests.datastores.chats.test_deletion import holding
from tests.waiting import TIMEOUT_S

FIELDS = {
    "text", "finish_reason", "model", "seed", "prompt_tokens", "tokens", "steps", "drafted",
    "longest_drafted", "accepted", "tokens_per_step", "acceptance_rate", "seconds",
    "tokens_per_second", "first_token_seconds", "overhead_seconds", "by_drafter", "citations",
}  # fmt: skip
HEAVY = ("textual", "torch", "transformers", "faiss")
SHORT = ("--max-tokens", "24", "--temperature", "0")
pytestmark = pytest.mark.usefixtures("unhurried_close")


@dataclass(frozen=True)
class Printed:
    """The output of a command."""

    stdout: bytes
    stderr: bytes


def specchat(folder: Path, *arguments: str, given: bytes = b"", code: int = 0) -> Printed:
    """Run a command in this process, since starting another takes longer than a short answer."""
    stdin, out, err = (TextIOWrapper(BytesIO(text), "utf-8") for text in (given, b"", b""))
    with pytest.MonkeyPatch.context() as patched, redirect_stdout(out), redirect_stderr(err):
        patched.setattr(sys, "stdin", stdin)
        returned = run(["--data-dir", str(folder), *arguments])
    written = []
    for stream in (out, err):
        stream.flush()
        written.append(stream.buffer.getvalue())
    printed = Printed(*written)
    assert returned == code, printed.stderr.decode()
    return printed


def ask_json(folder: Path, *arguments: str) -> dict[str, object]:
    line = specchat(folder, "ask", "--json", *arguments, *SHORT).stdout
    report = json.loads(line)
    assert isinstance(report, dict)
    return report


def test_json_has_every_figure_and_they_agree(tmp_path: Path) -> None:
    report = ask_json(tmp_path, "How do I use tar?", "--draft-tokens", "4")
    assert set(report) == FIELDS
    assert report["finish_reason"] == "length"
    assert report["tokens"] == 24
    assert isinstance(report["by_drafter"], dict)
    assert sum(report["by_drafter"].values()) == report["accepted"]
    accepted, drafted = (float(str(report[name])) for name in ("accepted", "longest_drafted"))
    assert report["acceptance_rate"] == pytest.approx(accepted / drafted)
    assert report["tokens_per_step"] == pytest.approx(23 / float(str(report["steps"])))


def test_a_stop_sequence_is_typed_with_escapes(tmp_path: Path) -> None:
    report = ask_json(tmp_path, "How do I use tar?", "--stop", r"\n")
    assert report["text"]
    assert "\n" not in str(report["text"])
    assert report["finish_reason"] == "stop"


def test_restrictions_of_the_model_are_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ChatTemplate, "problem", BASE_MODEL)
    assert BASE_MODEL in specchat(tmp_path, "ask", "How do I use tar?", *SHORT).stderr.decode()


def test_what_the_embedded_model_left_out_is_said_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = 'The command leaves out "delete them": check it before you run it.'
    monkeypatch.setattr(assistant, "remark", lambda question, answer: f"{said} {question}")
    options = ("--temperature", "0")
    printed = specchat(tmp_path, "ask", "find big files", *options)
    assert printed.stderr.decode() == f"{said} find big files\n"
    report = json.loads(specchat(tmp_path, "ask", "--json", "find big files", *options).stdout)
    assert report["remark"] == f"{said} find big files"
    with closing(History.open(tmp_path / "history.db")) as history:
        answer = history.thread(history.last_chat().id)[-1]
    assert answer.statistics["remark"] == f"{said} find big files"


@pytest.mark.parametrize("options", [(), ("--no-save",)])
def test_the_embedded_model_says_that_it_knows_english_only(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    question = "Wie kopiere ich ein Verzeichnis?"
    printed = specchat(tmp_path, "ask", question, *options, code=1)
    assert printed.stdout.strip() == b""
    assert printed.stderr.decode() == f"specchat: {ENGLISH_ONLY}\n"
    with closing(History.open(tmp_path / "history.db")) as history:
        assert list(history.chats()) == []


def test_repetition_is_reported_as_the_reason_for_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generation, "is_looping", lambda tokens, start: len(tokens) - start == 9)
    printed = specchat(tmp_path, "ask", "How do I use tar?", *SHORT)
    assert REPEATED in printed.stderr.decode()
    assert ask_json(tmp_path, "How do I use tar?")["finish_reason"] == "repetition"


def test_drafting_changes_nothing_and_the_chat_continues(tmp_path: Path) -> None:
    texts = []
    for drafters in ("none", "all"):
        folder = tmp_path / drafters
        options = ("--drafters", drafters, "--draft-tokens", "6", "--exact")
        first = ask_json(folder, "How do I use tar?", *options)
        second = ask_json(folder, "-c", "And how do I list its files?", *options)
        assert int(str(second["prompt_tokens"])) > int(str(first["prompt_tokens"])) + 24
        texts.append((first["text"], second["text"]))
    assert texts[0] == texts[1]
    with closing(History.open(tmp_path / "all" / "history.db")) as history:
        chat = history.last_chat()
        assert [message.role for message in history.thread(chat.id)] == [
            "user", "assistant", "user", "assistant",
        ]  # fmt: skip


def test_the_question_may_come_from_standard_input_with_files(tmp_path: Path) -> None:
    notes = tmp_path / "notes.md"
    notes.write_text("# frob\n\n`frob --all`\n")
    answer = specchat(tmp_path, "ask", "-f", str(notes), *SHORT, given=b"What is frob?").stdout
    assert answer.strip()
    with closing(History.open(tmp_path / "history.db")) as history:
        question = history.thread(history.last_chat().id)[0].content
    assert "frob --all" in question
    assert question.endswith("What is frob?")


def test_a_folder_and_piped_text_are_attached(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "a.md").write_text("alpha\n")
    (folder / "b.png").write_bytes(b"\x89PNG\0\0")
    options = ("ask", "--attach", str(folder), "What is this?", *SHORT)
    specchat(tmp_path, *options, given=b"beta\n")
    with closing(History.open(tmp_path / "history.db")) as history:
        question = history.thread(history.last_chat().id)[0]
    assert [one.name for one in question.attachments] == ["project/", "standard input"]
    assert question_of(question) == "What is this?"
    assert "alpha" in question.content
    assert "beta" in question.content


@pytest.mark.parametrize(
    ("arguments", "given", "complaint"),
    [
        (["ask"], b" \n", "no question"),
        (["ask", "-f", "/nowhere/notes.md", "x"], b"", "/nowhere/notes.md"),
        (["--model", "/nowhere/model.gguf", "ask", "x"], b"", "model.gguf"),
        (["ask", "word " * 5000], b"", "context"),
        (["--data-dir", "/dev/null/no", "ask", "x"], b"", "/dev/null/no"),
        (["ask"], b"\x7fELF\xff\x00", "standard input is not text: binary"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_1(
    tmp_path: Path, arguments: list[str], given: bytes, complaint: str
) -> None:
    failed = specchat(tmp_path, *arguments, given=given, code=1)
    (line,) = failed.stderr.decode().splitlines()
    assert line.startswith("specchat: ")
    assert complaint in line
    assert failed.stdout == b""


@pytest.mark.parametrize(
    "arguments",
    [
        ("--model", "/nowhere/model.gguf", "ask", "x"),
        ("ask", "walrus " * 5000),
        ("ask", "x", "-c", "--system", "y"),
    ],
)
def test_a_failed_question_leaves_no_chat(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    specchat(tmp_path, *arguments, code=1)
    with closing(History.open(tmp_path / "history.db")) as history:
        assert history.chats() == []
    assert holding(tmp_path, "walrus") == []


def test_words_need_no_quotes_and_piped_text_goes_before_them(tmp_path: Path) -> None:
    specchat(tmp_path, "ask", "what", "does", "frob", "turn?", *SHORT, given=b"frob turns knobs\n")
    with closing(History.open(tmp_path / "history.db")) as history:
        chat = history.last_chat()
        question = history.thread(chat.id)[0].content
    assert question == "File standard input:\n\nfrob turns knobs\n\nwhat does frob turn?"
    assert chat.title == "what does frob turn"


def test_a_new_chat_has_the_system_prompt(tmp_path: Path) -> None:
    specchat(tmp_path, "ask", "ls", "--system", "Answer in one word.", *SHORT)
    with closing(History.open(tmp_path / "history.db")) as history:
        assert history.last_chat().system == "Answer in one word."


def test_an_unsaved_answer_is_in_no_file(tmp_path: Path) -> None:
    specchat(tmp_path, "ask", "What is tar?", *SHORT)
    with closing(History.open(tmp_path / "history.db")) as history:
        before = history.tree(history.last_chat().id)
    for arguments in (("--no-save",), ("--no-save", "-c"), ("--no-save", "--system", "walrus")):
        done = specchat(tmp_path, "ask", "walrus telescopes", *arguments, *SHORT, given=b"walrus")
        assert done.stdout.strip()
    with closing(History.open(tmp_path / "history.db")) as history:
        assert [history.tree(chat.id) for chat in history.chats()] == [before]
    assert holding(tmp_path, "walrus", "telescopes") == []


def test_an_unsaved_answer_continues_the_last_chat(tmp_path: Path) -> None:
    specchat(tmp_path, "ask", "How do I use tar?", *SHORT)
    question = ("And how do I list its files?", "-c")
    unsaved = ask_json(tmp_path, *question, "--no-save", "--drafters", "none")
    assert unsaved["text"] == ask_json(tmp_path, *question, "--drafters", "none")["text"]


@pytest.mark.parametrize(("raw", "formatted"), [((), True), (("--raw",), False)])
def test_markdown_is_formatted_on_a_terminal(
    tmp_path: Path, raw: tuple[str, ...], formatted: bool
) -> None:
    question = "How do I list the files in a tar archive?"
    plain = specchat(tmp_path, "ask", question, *SHORT).stdout.decode()
    reader, terminal = os.openpty()
    command = [sys.executable, "-m", "app", "--data-dir", str(tmp_path), "ask", question, *raw]
    environment = {**os.environ, "TERM": "xterm-256color"}
    subprocess.run(
        [*command, *SHORT], stdin=subprocess.DEVNULL, stdout=terminal, env=environment, check=True
    )
    os.close(terminal)
    shown = b""
    with suppress(OSError):  # Linux reports the closed end as an error.
        while piece := os.read(reader, 4096):
            shown += piece
    os.close(reader)
    assert "```" in plain
    assert (b"```" not in shown) is formatted
    assert (b"\x1b[" in shown) is formatted


def test_a_terminal_shows_how_much_of_a_long_prompt_is_read(tmp_path: Path) -> None:
    reader, terminal = os.openpty()
    command = [sys.executable, "-m", "app", "--data-dir", str(tmp_path), "ask", *SHORT]
    text = b"How do I list the files in a tar archive? " * 120
    subprocess.run(command, input=text, stdout=subprocess.PIPE, stderr=terminal, check=True)
    os.close(terminal)
    shown = os.read(reader, 1 << 16).decode()
    os.close(reader)
    assert re.search(r"reading [\d,]+ of 1,\d+ tokens…", shown)
    assert shown.rstrip().endswith("\x1b[K"), "the line is gone when the answer is there"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is full")
def test_output_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "app", "--data-dir", str(tmp_path), "ask", "ls", *SHORT]
    with Path("/dev/full").open("w") as full:
        failed = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)
    said = failed.stderr.decode().splitlines()
    assert said == ["specchat: cannot write the output: No space left on device"]
    assert failed.returncode == 1


def test_folders_in_place_of_caches_prevent_no_answer(tmp_path: Path) -> None:
    ask_json(tmp_path, "ls")
    (store,) = (tmp_path / "cache").glob("projections/*/crest.db")
    for path in (store, tmp_path / "cache" / "costs.json"):
        path.unlink()
        path.mkdir()
    done = specchat(tmp_path, "ask", "--json", "ls", *SHORT)
    assert json.loads(done.stdout)["text"]
    said = done.stderr.decode().splitlines()
    assert sum("crest.db is a folder" in line for line in said) == 1
    assert sum("costs.json" in line for line in said) == len(said) - 1


UNHURRIED = """
import signal
from app.__main__ import main
from app.cli import answer_printer
from tests.waiting import until

class Unhurried(answer_printer.StreamCleaner):
    def clean(self, text):
        if printed:
            until(lambda: signal.getsignal(signal.SIGINT) is signal.default_int_handler)
        printed.append(text)
        return super().clean(text)

printed, answer_printer.StreamCleaner = [], Unhurried
main()
"""
"""Runs the command, and waits for a signal after the first fragment of an answer."""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_keeps_what_was_written_and_is_the_exit_code(
    tmp_path: Path, number: signal.Signals
) -> None:
    arguments = ["ask", "Give me examples of tar.", "--temperature", "0"]
    command = [sys.executable, "-c", UNHURRIED, "--data-dir", str(tmp_path), *arguments]
    pipe, root = subprocess.PIPE, Path(__file__).parents[3]
    with subprocess.Popen(command, cwd=root, stdout=pipe, stderr=pipe) as process:
        assert process.stdout is not None
        seen = os.read(process.stdout.fileno(), 1)
        process.send_signal(number)
        out, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 128 + number, err.decode()
    with closing(History.open(tmp_path / "history.db")) as history:
        answer = history.thread(history.last_chat().id)[-1]
    assert answer.finish == "interrupted"
    assert (seen + out).decode().strip() == answer.content.strip()


def test_a_killed_answer_leaves_its_question_and_a_sound_history(tmp_path: Path) -> None:
    arguments = ["ask", "Give me examples of tar.", "--temperature", "0"]
    command = [sys.executable, "-c", UNHURRIED, "--data-dir", str(tmp_path), *arguments]
    pipe, root = subprocess.PIPE, Path(__file__).parents[3]
    for number in range(1, 3):
        with subprocess.Popen(command, cwd=root, stdout=pipe, stderr=pipe) as process:
            assert process.stdout is not None
            os.read(process.stdout.fileno(), 1)
            process.kill()
        with closing(History.open(tmp_path / "history.db")) as history:
            assert history.store.quarantined is None
            assert len(history.chats()) == number
            question, answer = history.thread(history.last_chat().id)
            assert question.content == "Give me examples of tar."
            assert answer.finish == "interrupted"


def test_ask_loads_nothing_heavy(tmp_path: Path) -> None:
    program = (
        "import sys; from app.cli.main import run;"
        f"code = run(['--data-dir', {str(tmp_path)!r}, 'ask', 'hello', '--max-tokens', '3']);"
        f"print([name for name in {HEAVY!r} if name in sys.modules], code)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout.decode().splitlines()[-1] == "[] 0"


def test_imported_texts_answer_and_are_cited(tmp_path: Path) -> None:
    page = "# knobctl\n\n> Turn knobs.\n\n- Turn the blue knob:\n\n`knobctl --blue`\n"
    (tmp_path / "knobctl.md").write_text(page)
    data = tmp_path / "data"
    specchat(data, "import", str(tmp_path / "knobctl.md"))
    question = "How do I turn the blue knob with knobctl?"
    report = json.loads(specchat(data, "ask", "--json", question).stdout)
    (cited,) = report["citations"]
    assert (cited["import_path"], cited["file"]) == (str(tmp_path / "knobctl.md"), "knobctl.md")
    assert (cited["first_line"], cited["last_line"]) == (1, 7)
    assert "knobctl --blue" in str(report["text"])
    assert report["search"] == {
        "read": 1,
        "rejected": 0,
        "too_long": False,
        "unindexed": 0,
        "texts": 1,
    }
    without = ask_json(data, question, "--docs", "off")
    assert (without["citations"], "search" in without) == ([], False)
    assert ask_json(data, "Which planet is the largest?")["citations"] == []
    printed = specchat(data, "ask", question)
    assert printed.stderr.decode().splitlines() == ["1 passage used", "[1] knobctl.md:1-7"]
    iterative = ask_json(data, question, "--docs", "iterative")
    assert str(report["text"]).startswith(str(iterative["text"])), "there is one passage"
    figures = iterative["retrieval"]
    assert isinstance(figures, dict)
    assert figures["strides"] > 0
    assert iterative["citations"] == report["citations"]
    uncovered = specchat(data, "ask", "Which planet is the largest?", *SHORT)
    assert uncovered.stderr.decode().splitlines() == [NO_PASSAGE]
    assert not specchat(data, "ask", "hello", *SHORT).stderr


def test_what_kept_an_answer_from_its_passage_or_from_being_learned_is_said(tmp_path: Path) -> None:
    data = tmp_path / "data"
    (tmp_path / "frobnicate.md").write_text("Turn the blue knob of frobnicate. " * 30)
    specchat(data, "import", str(tmp_path / "frobnicate.md"))
    question = "How do I turn the blue knob of frobnicate?"
    (data / "config.toml").write_text("context = 256")
    assert specchat(data, "ask", question, *SHORT).stderr.decode().splitlines() == [
        PASSAGE_TOO_LONG
    ]
    (buffer,) = (data / "replay").glob("*.db")
    buffer.write_bytes(b"x" * 8192)
    stderr = specchat(data, "ask", question, "--docs", "off", *SHORT).stderr.decode()
    assert stderr.splitlines() == [
        f"{buffer} was damaged and is deleted: what draft models learn from is collected again"
    ]


def test_one_import_alone_is_searched(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for name, knob in (("one", "blue"), ("two", "red")):
        (tmp_path / f"{name}.md").write_text(f"# frobnicate\n\nTurn the {knob} knob of it.\n")
        specchat(data, "import", str(tmp_path / f"{name}.md"))
    question = "How do I turn a knob with frobnicate?"
    chosen = str(tmp_path / "two.md")
    cited = ask_json(data, question, "--import", chosen)["citations"]
    assert isinstance(cited, list)
    assert [one["import_path"] for one in cited] == [chosen]
    both = ["--import", "one.md", "--import", "two.md", "--docs", "iterative"]
    for options, known in ((["--import", "two.md"], {"two.md"}), (both, {"one.md", "two.md"})):
        report = ask_json(data, question, *options)
        cited, search = report["citations"], report["search"]
        assert isinstance(cited, list)
        assert isinstance(search, dict)
        assert {one["import_name"] for one in cited} <= known
        assert search["read"]
    unknown = specchat(data, "ask", question, "--import", "/nowhere", code=1)
    assert b"no import '/nowhere'" in unknown.stderr
    off = specchat(data, "ask", question, "--import", chosen, "--docs", "off", code=1)
    assert b"--import needs --docs once, iterative or knn" in off.stderr


def test_missing_imports_are_reported(tmp_path: Path) -> None:
    printed = specchat(tmp_path, "ask", "--docs", "once", "hello", *SHORT)
    assert printed.stderr.decode().splitlines() == [NOTHING_IMPORTED]
    assert specchat(tmp_path, "ask", "hello", *SHORT).stderr == b""
    worded = specchat(tmp_path, "ask", "--json", "--docs", "knn", "hello", *SHORT)
    assert worded.stderr.decode().splitlines() == [NOT_ENCODED]
    assert json.loads(worded.stdout)["worded_from"] == 0

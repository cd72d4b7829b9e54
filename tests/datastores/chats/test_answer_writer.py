"""A growing answer on its way to the disk: through kills, full disks and other windows."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from datastores.chats.answer_writer import WRITE_INTERVAL_S, AnswerWriter
from datastores.chats.history import History
from datastores.chats.records import ASSISTANT, INTERRUPTED, STREAMING, USER, WHOLE, StoredMessage
from datastores.errors import InputError, StoreError
from tests.datastores.conftest import fill
from tests.waiting import until

_STREAM = """
import sys, time
from pathlib import Path
from datastores.chats.history import History
from datastores.chats.answer_writer import AnswerWriter

class ReportingWriter(AnswerWriter):
    def _write(self, history):
        shown = len(self.tokens)
        super()._write(history)
        if self.error is None:
            print(shown, flush=True)

history = History.open(Path(sys.argv[1]))
chat = history.create_chat().id
question = history.add_message(chat, None, "user", "question")
answer = history.add_message(chat, question.id, "assistant", "", finish="")
writer = ReportingWriter(history, answer.id, lambda: {"tokens": number})
for number in range(10_000_000):
    writer.append(f"{number} ", [number])
    time.sleep(0.01)
"""


@pytest.fixture
def stream(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process in mid-answer: after each write, it prints how much was shown before it."""
    command = [sys.executable, "-c", _STREAM, str(tmp_path / "history.db")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def _begun(history: History) -> StoredMessage:
    chat = history.create_chat().id
    question = history.add_message(chat, None, USER, "question")
    return history.add_message(chat, question.id, ASSISTANT, "", finish=STREAMING)


def _no_figures() -> Mapping[str, object]:
    return {}


def test_an_answer_reaches_the_disk_while_it_grows_and_at_its_end(history: History) -> None:
    answer = _begun(history)
    tokens: list[int] = []
    writer = AnswerWriter(history, answer.id, lambda: {"tokens": len(tokens)})
    tokens.append(5)
    writer.append("first ", [5])
    until(lambda: history.message(answer.id).content == "first ")
    partial = history.message(answer.id)
    assert (partial.tokens, partial.finish) == ((5,), STREAMING)
    assert partial.statistics == {"tokens": 1}
    tokens += [6, 7]
    writer.append("second", [6, 7])
    writer.close("length")
    whole = history.message(answer.id)
    assert (whole.content, whole.tokens, whole.finish) == ("first second", (5, 6, 7), "length")
    assert whole.statistics == {"tokens": 3}


def test_what_was_shown_before_the_last_write_survives_a_kill(
    tmp_path: Path, stream: subprocess.Popen[str]
) -> None:
    assert stream.stdout is not None
    written = [0]
    while written[-1] < 50:  # more than one write's
        written.append(int(stream.stdout.readline()))
    stream.send_signal(signal.SIGKILL)
    written += map(int, stream.stdout.readlines())
    stream.wait()  # its pipe may close before the lock that tells a living writer from a dead one
    history = History.open(tmp_path / "history.db")
    answer = history.thread(history.last_chat().id)[-1]
    assert answer.tokens[: written[-1]] == tuple(range(written[-1]))
    assert WRITE_INTERVAL_S < 1, "the next write begins within the second that may be lost"
    assert answer.content == "".join(f"{number} " for number in answer.tokens)
    assert answer.finish == INTERRUPTED
    history.close()


def test_an_answer_which_another_process_is_writing_is_left_alone(
    tmp_path: Path, stream: subprocess.Popen[str]
) -> None:
    assert stream.stdout is not None
    stream.stdout.readline()
    history = History.open(tmp_path / "history.db")
    assert history.thread(history.last_chat().id)[-1].finish == STREAMING
    stream.kill()
    stream.wait()
    assert history.mark_interrupted() == 1
    assert history.mark_interrupted() == 0
    assert history.thread(history.last_chat().id)[-1].finish == INTERRUPTED
    history.close()


def test_a_process_number_used_again_does_not_keep_an_answer_alive(history: History) -> None:
    answer = _begun(history)
    with history.store.writing() as db:
        db.conn.execute("UPDATE messages SET writer = replace(writer, ':', ':1') WHERE finish = ''")
    assert history.mark_interrupted() == 1
    assert history.message(answer.id).finish == INTERRUPTED


def test_an_answer_taken_for_dead_is_whole_again_when_its_writer_closes(history: History) -> None:
    answer = _begun(history)
    writer = AnswerWriter(history, answer.id, _no_figures)
    writer.append("alive", [1])
    with history.store.writing() as db:
        db.conn.execute("UPDATE messages SET finish = 'interrupted', writer = ''")
    writer.close(WHOLE)
    assert (history.message(answer.id).content, history.message(answer.id).finish) == (
        "alive",
        WHOLE,
    )


def test_a_full_disk_costs_nothing_of_the_answer(small_disk: Path) -> None:
    history = History.open(small_disk / "history.db")
    answer = _begun(history)
    writer = AnswerWriter(history, answer.id, _no_figures)
    ballast = fill(small_disk)
    text, tokens = "word " * 100_000, list(range(100_000))
    writer.append(text, tokens)
    until(lambda: writer.error)
    with pytest.raises(StoreError):
        writer.close(WHOLE)
    assert (writer.text, writer.tokens) == (text, tuple(tokens))
    assert history.message(answer.id).finish == STREAMING
    ballast.unlink()
    writer.close(WHOLE)
    assert history.message(answer.id).content == text
    assert writer.error is None
    history.close()


def test_writing_recovers_when_there_is_room_again(small_disk: Path) -> None:
    history = History.open(small_disk / "history.db")
    answer = _begun(history)
    writer = AnswerWriter(history, answer.id, _no_figures)
    ballast = fill(small_disk)
    writer.append("x" * 400_000, [1])
    until(lambda: writer.error)
    ballast.unlink()
    until(lambda: not writer.error)
    assert history.message(answer.id).tokens == (1,)
    writer.close(WHOLE)
    history.close()


def test_a_chat_deleted_in_another_window_is_named_at_the_end(history: History) -> None:
    answer = _begun(history)
    writer = AnswerWriter(history, answer.id, _no_figures)
    writer.append("lost", [1])
    with history.store.writing() as db:
        db.conn.execute("DELETE FROM chats")
    with pytest.raises(InputError, match="its chat may have been deleted"):
        writer.close(WHOLE)
    assert writer.text == "lost"


def test_nothing_is_written_while_nothing_is_new(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("datastores.chats.answer_writer.WRITE_INTERVAL_S", WRITE_INTERVAL_S / 30)
    answer = _begun(history)
    writer = AnswerWriter(history, answer.id, _no_figures)
    writer.append("once", [1])
    until(lambda: history.message(answer.id).content)
    with history.store.writing() as db:
        db.conn.execute("UPDATE messages SET content = 'untouched' WHERE id = ?", (answer.id,))
    time.sleep(WRITE_INTERVAL_S)
    assert history.message(answer.id).content == "untouched"
    writer.close(WHOLE)
    assert history.message(answer.id).content == "once"

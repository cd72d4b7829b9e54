"""The writer: whole answers, only those that are kept, and none of a chat that is gone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from datastores.errors import StoreError
from datastores.replay_buffer import writer as module
from datastores.replay_buffer.record import question_key, top_of
from datastores.replay_buffer.store import ReplayBuffer
from datastores.replay_buffer.writer import AnswerDetails, AnswerRecording, LogitsPool, ReplayWriter
from tests.datastores.conftest import fill
from tests.datastores.replay_buffer.records import VOCABULARY, open_buffer

NO_STATES = np.empty((1, 0), np.float32)
KEY = question_key("why?")
ORIGIN = AnswerDetails("chat:h:1", 1, KEY, KEY)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "replay.db"


@pytest.fixture
def writer(path: Path) -> Iterator[ReplayWriter]:
    opened = ReplayWriter(VOCABULARY, lambda: open_buffer(path))
    yield opened
    opened.close()


def logits_of(rows: int, seed: int = 0) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    return np.random.default_rng(seed).normal(0, 3, (rows, VOCABULARY)).astype(np.float32)


def say(writer: ReplayWriter, steps: int) -> tuple[AnswerRecording, list[int], list[int]]:
    """An answer of so many steps of three tokens, two of which are kept; tokens and positions."""
    recording, tokens, positions = writer.recording(), [1, 2, 3], list[int]()
    recording.begin(tokens)
    for step in range(steps):
        logits, kept = logits_of(2, step), [0, 2]
        new = [int(logits[0].argmax()), 5, int(logits[1].argmax())]
        memory = writer.memory(recording, len(kept))
        if memory is None:
            kept = []
        else:
            memory[:] = logits
        recording.append(new, kept, np.full((3, 2), step, np.float32))
        positions += [len(tokens) + index for index in kept]
        tokens += new
    return recording, tokens, positions


@pytest.mark.parametrize(("block_rows", "limit"), [(1, 151), (2, 151), (7, 80), (1024, 151)])
def test_an_answer_is_written_whole(
    path: Path, monkeypatch: pytest.MonkeyPatch, block_rows: int, limit: int
) -> None:
    """Its states are the first `limit` ones."""
    monkeypatch.setattr(module, "MAX_BLOCK_ROWS", block_rows)
    monkeypatch.setattr(module, "MAX_ANSWER_STATES", limit)
    writer = ReplayWriter(VOCABULARY, lambda: open_buffer(path))
    for _ in range(2):
        recording, tokens, positions = say(writer, 50)
        recording.append([9], (), np.zeros((1, 2), np.float32))
        writer.keep(recording, ORIGIN)
        writer.flush()
        with closing(open_buffer(path)) as buffer:
            *_, found = buffer.records(with_states=True)
        assert found.tokens.tolist() == [*tokens, 9]
        assert (found.prompt_length, found.chat, found.question) == (3, 1, KEY)
        assert found.positions.tolist() == positions
        expected_states = [*(step for step in range(50) for _ in range(3)), 0]
        np.testing.assert_allclose(found.states.decoded()[:, 0], expected_states[:limit], rtol=1e-6)
        steps = [position // 3 - 1 for position in positions[::2]]
        expected = [top_of(logits_of(2, step)) for step in steps]
        if block_rows > 1:
            assert expected, "some positions are kept, however little memory there is"
            tops = np.concatenate([top[0] for top in expected])
            np.testing.assert_array_equal(found.top_tokens, tops)
    if block_rows == 1024:
        assert len(positions) == 100
    writer.close()


def test_memory_is_bounded_and_used_again(
    path: Path, writer: ReplayWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_BLOCK_ROWS", 4)
    pool = LogitsPool(VOCABULARY)
    blocks = [pool.take() for _ in range(module.BLOCKS)]
    assert pool.take() is None
    assert blocks[0] is not None
    pool.give_back(blocks[0])
    assert pool.take() is blocks[0]
    for _ in range(2 * module.BLOCKS):
        recording, *_ = say(writer, 3)
        recording.release()
    assert say(writer, 3)[2], "what was dropped gave its memory back"


def test_an_answer_without_kept_positions_is_written_too(path: Path, writer: ReplayWriter) -> None:
    recording = writer.recording()
    recording.begin([1])
    recording.append([2], (), NO_STATES)
    writer.keep(recording, ORIGIN)
    writer.flush()
    with closing(open_buffer(path)) as buffer:
        [found] = buffer.records()
        assert found.top_tokens.shape == (0, 64)


def test_nothing_is_made_before_something_is_kept(path: Path, writer: ReplayWriter) -> None:
    say(writer, 3)
    writer.flush()
    assert not path.exists()


def test_a_chat_that_is_deleted_meanwhile_leaves_nothing(path: Path, writer: ReplayWriter) -> None:
    recording, tokens, _ = say(writer, 30)
    details = AnswerDetails("chat:h:2", 2, KEY, KEY, lambda: False)
    writer.keep(say(writer, 3)[0], ORIGIN)
    writer.keep(recording, details)
    writer.flush()
    trace = np.array(tokens[-9:], "<i4").tobytes()
    assert not any(trace in file.read_bytes() for file in path.parent.glob("replay.db*"))
    with closing(open_buffer(path)) as buffer:
        assert buffer.size == 1


def test_an_answer_that_no_target_can_have_given_is_refused(
    path: Path, writer: ReplayWriter
) -> None:
    for token, logit in ((VOCABULARY + 1, 0.0), (1, np.nan)):
        recording = writer.recording()
        recording.begin([1])
        memory = writer.memory(recording, 1)
        assert memory is not None
        memory[:] = logit
        recording.append([token], (0,), NO_STATES)
        writer.keep(recording, ORIGIN)
        writer.flush()
        assert isinstance(writer.error, StoreError)
        assert str(path) in str(writer.error)
    writer.keep(say(writer, 1)[0], ORIGIN)
    writer.flush()
    assert writer.error is None


def test_a_full_disk_is_reported_and_recovered_from(small_disk: Path) -> None:
    path = small_disk / "replay.db"
    with closing(open_buffer(path)):
        pass
    writer = ReplayWriter(VOCABULARY, lambda: open_buffer(path))
    ballast = fill(small_disk)
    for _ in range(3):
        writer.keep(say(writer, 500)[0], ORIGIN)
    writer.flush()
    assert "full" in str(writer.error)
    ballast.unlink()
    writer.keep(say(writer, 5)[0], ORIGIN)
    writer.close()
    assert writer.error is None
    with closing(open_buffer(path)) as buffer:
        assert [len(record.tokens) for record in buffer.records()][-1] == 18


def test_a_buffer_that_cannot_be_opened_is_reported_and_tried_again(path: Path) -> None:
    attempts: list[int] = []

    def open_late() -> ReplayBuffer:
        attempts.append(1)
        if len(attempts) == 1:
            raise StoreError("not now")
        return open_buffer(path)

    writer = ReplayWriter(VOCABULARY, open_late)
    writer.keep(say(writer, 1)[0], ORIGIN)
    writer.flush()
    assert str(writer.error) == "not now"
    writer.keep(say(writer, 1)[0], ORIGIN)
    writer.close()
    assert writer.error is None
    with closing(open_buffer(path)) as buffer:
        assert buffer.size == 1

"""Killed while it reads or reads again: no token is lost, and no key is of another state."""

from __future__ import annotations

import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from datastores.dense.projection import Projection
from datastores.dense.recorder import DenseRecorder
from datastores.dense.store import DenseStore
from datastores.dense.worker import DenseWorker
from engines.state_encoding import encode_backlog
from tests.engines.drafters.test_dense import states_after
from tests.engines.scripted import VOCABULARY, WIDTH, ScriptedTarget

ROOT = Path(__file__).parents[3]
TEXTS = [
    np.random.default_rng(number).integers(0, VOCABULARY, 400).tolist() for number in range(30)
]
CHILD = """
import sys
from pathlib import Path
from tests.engines.drafters.test_dense_kill import opened, turned
from engines.state_encoding import encode_backlog
from tests.engines.scripted import ScriptedTarget
keeper = opened(Path(sys.argv[1]))
for round in range(1000):
    for number, _ in enumerate(encode_backlog(ScriptedTarget(), keeper)):
        print(round, number, flush=True)
    keeper.ask(turned)
"""


def opened(folder: Path) -> DenseWorker:
    return DenseWorker(DenseStore.open(folder / "dense.db", "scripted", WIDTH), VOCABULARY)


def turned(book: DenseRecorder) -> None:
    """Begin a generation whose keys are those of the one that serves, read backwards."""
    serving = book._store.generations.all()[0].projection
    other = Projection(
        serving.offset[::-1].copy(), serving.weights[:, ::-1].copy(), serving.scale, serving.unit
    )
    book._store.generations.begin(other, 10_000, 1.0)


def check(folder: Path) -> None:
    """All texts stand there; every key is its own state's, in every generation."""
    store = DenseStore.open(folder / "dense.db", "scripted", WIDTH)
    assert store.store.quarantined is None
    texts = {document: tokens.tolist() for document, tokens in store.streams()}
    assert texts == dict(enumerate(TEXTS, start=1))
    generations = store.generations.all()
    serving = [generation.serving for generation in generations]
    assert serving in ([], [True], [True, False])
    for generation in generations:
        for batch in store.keys(generation):
            before = [
                TEXTS[document - 1][position - 1]
                for document, position in zip(batch.documents, batch.positions, strict=True)
            ]
            expected = generation.projection.encode(states_after(before))
            np.testing.assert_array_equal(batch.codes, expected)
    store.close()


@pytest.mark.parametrize("steps", [3, 60, 200])
def test_killed_while_it_reads_or_reads_again(tmp_path: Path, steps: int) -> None:
    keeper = opened(tmp_path)
    for text in TEXTS:
        keeper.ask(partial(DenseRecorder.add_document, source="import", tokens=text))
    keeper.close()
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    with child, child.stdout as lines:
        for _ in range(steps):
            assert next(lines)
        child.send_signal(signal.SIGKILL)
    check(tmp_path)
    again = opened(tmp_path)
    for _ in encode_backlog(ScriptedTarget(), again):
        pass
    status = again.ask(DenseRecorder.status)
    assert (status.keys, status.rebuilt) == (status.positions, None)
    assert len(again.memory) == status.keys == 30 * 399
    again.close()
    check(tmp_path)


def test_a_generation_half_built_does_not_serve_after_a_restart(tmp_path: Path) -> None:
    keeper = opened(tmp_path)
    for text in TEXTS:
        keeper.ask(partial(DenseRecorder.add_document, source="import", tokens=text))
    list(encode_backlog(ScriptedTarget(), keeper))
    keeper.ask(turned)
    work = encode_backlog(ScriptedTarget(), keeper)
    for _ in range(40):
        next(work)
    work.close()
    keeper.close()
    again = opened(tmp_path)
    status = again.ask(DenseRecorder.status)
    assert status.rebuilt is not None
    assert 0 < status.rebuilt < status.keys == len(again.memory)
    text = TEXTS[0]
    recall = again.memory.recall(states_after(text[99:100])[0], text[100], text[:100], 30, 4)
    assert recall is not None
    assert max(recall.similarities) > 0.99, "asked as the old generation asks"
    again.close()

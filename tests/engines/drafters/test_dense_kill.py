"""Killed while texts are encoded: no token is lost, and no key is of another state."""

from __future__ import annotations

import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from datastores.dense.index import DenseIndex
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
from tests.engines.drafters.test_dense_kill import drop_keys, opened
from engines.state_encoding import encode_backlog
from tests.engines.scripted import ScriptedTarget
worker = opened(Path(sys.argv[1]))
for round in range(1000):
    for number, _ in enumerate(encode_backlog(ScriptedTarget(), worker)):
        print(round, number, flush=True)
    worker.ask(drop_keys)
"""


def opened(folder: Path) -> DenseWorker:
    return DenseWorker(DenseStore.open(folder / "dense.db", "scripted", WIDTH), VOCABULARY)


def drop_keys(index: DenseIndex) -> None:
    """As if nothing had been encoded."""
    with index._store.store.writing() as db:
        db.conn.execute("DELETE FROM keys")
        db.conn.execute("UPDATE documents SET keys = 0")


def check(folder: Path) -> None:
    """All texts are stored; every key is its own state's."""
    store = DenseStore.open(folder / "dense.db", "scripted", WIDTH)
    assert store.store.quarantined is None
    texts = {text: tokens.tolist() for text, tokens in store.token_streams()}
    assert texts == dict(enumerate(TEXTS, start=1))
    projection = store.projection()
    for batch in store.keys(projection.dimensions) if projection else ():
        before = [
            TEXTS[text - 1][position - 1]
            for text, position in zip(batch.texts, batch.positions, strict=True)
        ]
        assert projection is not None
        expected = projection.encode(states_after(before))
        np.testing.assert_array_equal(batch.codes, expected)
    store.close()


@pytest.mark.parametrize("steps", [3, 60, 200])
def test_killed_while_texts_are_encoded(tmp_path: Path, steps: int) -> None:
    worker = opened(tmp_path)
    for text in TEXTS:
        worker.ask(partial(DenseIndex.add_text, owner="import", tokens=text))
    worker.close()
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
    status = again.ask(DenseIndex.status)
    assert status.keys == status.positions
    assert len(again.memory) == status.keys == 30 * 399
    again.close()
    check(tmp_path)

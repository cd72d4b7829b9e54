"""Killed while an answer is recorded: what was committed is there, and is what was said."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.datastores.dense.test_worker import open_store, state_of, word

CHILD = """
import sys
from pathlib import Path
from tests.datastores.dense.test_worker import SAMPLE, VOCABULARY, open_store, said, word
from datastores.dense import index
from datastores.dense.index import DenseIndex
from datastores.dense.worker import DenseWorker
index.SAMPLE = SAMPLE
worker = DenseWorker(open_store(Path(sys.argv[1])), VOCABULARY)
worker.begin("chat", [word(position) for position in range(5)])
for first in range(5, 100_000, 3):
    worker.observe(first, *said(first, first + 3))
    if first % 7 == 0:
        worker.ask(DenseIndex.flush)
        print(first + 3, flush=True)
"""


@pytest.mark.parametrize("patience", [0.0, 0.2])
def test_a_killed_process_loses_no_token_that_was_committed(
    tmp_path: Path, patience: float
) -> None:
    root = Path(__file__).parents[3]
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path)], cwd=root, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    with child, child.stdout as lines:
        committed = [int(next(lines)) for _ in range(16)]
        time.sleep(patience)
        child.send_signal(signal.SIGKILL)
        committed += [int(line) for line in lines]
    store = open_store(tmp_path)
    assert store.store.quarantined is None
    tokens = store.tokens(1)
    assert len(tokens) >= committed[-1]
    assert list(tokens) == [word(position) for position in range(len(tokens))]
    projection = store.projection()
    assert projection is not None
    assert store.missing_keys(1).tolist() == [1, 2, 3, 4]
    for batch in store.keys(projection.dimensions):
        states = np.array([state_of(int(position)) for position in batch.positions])
        codes = projection.encode(states)
        # A product's last bits depend on its number of rows, and a code may round the other way.
        np.testing.assert_allclose(batch.codes.astype(int), codes.astype(int), rtol=0, atol=1)
    store.close()

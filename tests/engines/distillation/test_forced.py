"""Probabilities over a given answer are those of the decoding that gave it."""

from pathlib import Path

import numpy as np

from datastores.replay_buffer.record import require_valid
from engines.distillation.forced import answer_greedily, force
from engines.llama.model import load
from tests.engines.tiny import TinyVocabulary, write_llama

PROMPT = [1, 20, 30, 40]


def test_an_answer_read_at_once_has_the_logits_of_its_decoding(tmp_path: Path) -> None:
    path = write_llama(tmp_path / "tiny.gguf", TinyVocabulary())
    target = load(path, threads=1, gpu_layers=0, context_length=256).target
    written = answer_greedily(target, PROMPT, frozenset(), 70)
    read = force(target, PROMPT, written.answer)
    assert len(written.answer) == 70
    assert np.abs(written.logits - read.logits).max() < 0.03
    record = read.record(3, "How?", "What?")
    require_valid(record, target.vocabulary_size)
    assert record.tokens.tolist() == [*PROMPT, *written.answer]
    assert record.question != record.topic
    likeliest = record.top_tokens[:, 0] == record.tokens[record.positions]
    assert likeliest.mean() > 0.95


def test_a_greedy_answer_ends_at_a_stop_token(tmp_path: Path) -> None:
    path = write_llama(tmp_path / "tiny.gguf", TinyVocabulary())
    target = load(path, threads=1, gpu_layers=0, context_length=256).target
    free = answer_greedily(target, PROMPT, frozenset(), 10).answer
    stopped = answer_greedily(target, PROMPT, frozenset({free[4]}), 10).answer
    assert list(stopped) == list(free[: list(free).index(free[4]) + 1])

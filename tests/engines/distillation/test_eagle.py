"""An EAGLE-3 drafter's copy learns from recorded answers, and llama.cpp runs what was learned."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch

from datastores.errors import ModelError
from datastores.replay_buffer.record import ReplayRecord, thinned
from datastores.replay_buffer.store import ReplayBuffer
from engines.distillation import eagle_trainee
from engines.distillation.acceptance import PREFERRED
from engines.distillation.eagle_block import TextBatch, unroll
from engines.distillation.eagle_file import OPTIONS, read_eagle, write_eagle
from engines.distillation.eagle_trainee import EAGLE, EagleTrainee
from engines.distillation.forced import answer_greedily
from engines.distillation.round import RoundResult, run_round
from engines.distillation.trainee import TrainingSplit
from engines.distillation.weights import copy_entries
from engines.llama.heads_loading import open_version
from engines.llama.model import load
from engines.llama.prediction_heads import PredictionHeads
from engines.llama.target import LlamaTarget
from engines.target import Floats
from tests.engines.tiny import TinyVocabulary
from tests.engines.tiny_heads import write_eagle as write_tiny

DRAFTED, ANSWER = range(5, 205), 48
SETTINGS = replace(EAGLE, epochs=4)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("eagle"), TinyVocabulary(), drafted=len(DRAFTED))


@pytest.fixture(scope="module")
def original(model: Path) -> Path:
    return model.with_name("llama-eagle3.gguf")


@pytest.fixture(scope="module")
def target(model: Path) -> LlamaTarget:
    return load(model, threads=1, gpu_layers=0, context_length=512, heads=True).target


@pytest.fixture(scope="module")
def heads(target: LlamaTarget) -> PredictionHeads:
    assert target.heads is not None
    return target.heads


@pytest.fixture(scope="module")
def records(target: LlamaTarget) -> list[ReplayRecord]:
    """Answers, with probabilities at every other position."""
    generator = np.random.default_rng(1)
    found = []
    for number in range(80):
        prompt = [1, *generator.integers(5, 45, 3 + number % 4).tolist()]
        answer = answer_greedily(target, prompt, frozenset(), ANSWER)
        record = answer.record(number + 1, f"question {number}", f"question {number}")
        found.append(thinned(record, np.arange(ANSWER) % 2 == 0))
    return found


@pytest.fixture
def trainee(
    model: Path, original: Path, target: LlamaTarget, heads: PredictionHeads
) -> EagleTrainee:
    target.heads = open_version(heads, original)
    return EagleTrainee(original, [model], partial(target.heads.states, target), PREFERRED)


@pytest.fixture
def buffer(
    tmp_path: Path, target: LlamaTarget, records: list[ReplayRecord]
) -> Iterator[ReplayBuffer]:
    path, size = tmp_path / "replay.db", target.vocabulary_size
    with closing(ReplayBuffer.open(path, target.fingerprint, size)) as opened:
        for record in records:
            opened.add(f"chat:{record.chat}", record)
        yield opened


def split(held_out: list[ReplayRecord]) -> TrainingSplit:
    return TrainingSplit([], [], [], held_out, [], 0, 0, 0)


@torch.no_grad()
def logits_after(path: Path, model: Path, states: Floats, text: list[int]) -> Floats:
    """In torch, what the drafter at `path` says of the token after a text."""
    file, prompt = read_eagle(path, [model]), len(text) - 1
    inputs = np.vstack([states, np.zeros((1, states.shape[1]))])
    batch = TextBatch.of([np.array([*text, 0])], [prompt], [inputs], 1)
    [found] = unroll(file.block, batch, file.embed, 1)
    said: Floats = file.block.said(found[0, 0], file.output).numpy()
    return said


def test_llama_cpp_drafts_what_the_file_says_in_training(
    model: Path, original: Path, target: LlamaTarget, heads: PredictionHeads, tmp_path: Path
) -> None:
    """The original, and a version, which takes its place."""
    text = [1, *range(20, 50)]
    block, version = read_eagle(original, [model]).block, tmp_path / "version.gguf"
    with torch.no_grad():
        for weight in block.parameters():
            weight.mul_(1.2)
    write_eagle(original, block, version)
    given = []
    for path in (version, original):
        opened = open_version(heads, path)
        target.heads = opened
        states = opened.states(target, text[:-1])
        assert opened.begin(text) == len(text) - 1
        given.append(opened.next_rows(text, 1)[0, DRAFTED.start : DRAFTED.stop].copy())
        assert np.allclose(given[-1], logits_after(path, model, states, text), atol=0.02)
    assert not np.allclose(given[0], given[1], atol=0.2)


def test_states_do_not_depend_on_what_was_read_before(
    target: LlamaTarget, heads: PredictionHeads, original: Path
) -> None:
    target.heads = open_version(heads, original)
    texts = [[1, *range(30, 50)], [1, *range(30, 40), *range(60, 80)], [1, 99]]
    together = [target.heads.states(target, text) for text in texts]
    for text, states in zip(texts, together, strict=True):
        target.rewind(0)
        assert np.allclose(target.heads.states(target, text), states, atol=1e-3)
        assert states.shape == (len(text), 3 * target.width)


def test_a_file_is_written_as_it_was_read(model: Path, original: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.gguf"
    write_eagle(original, read_eagle(original, [model]).block, copy)
    ours, theirs = (
        {tensor.name: tensor.data for tensor in gguf.GGUFReader(path).tensors}
        for path in (copy, original)
    )
    assert ours.keys() == theirs.keys()
    assert all(np.array_equal(values, theirs[name]) for name, values in ours.items())


def test_a_round_publishes_a_better_copy_and_keeps_the_file(
    trainee: EagleTrainee, buffer: ReplayBuffer, original: Path, tmp_path: Path
) -> None:
    before = original.read_bytes()
    *steps, result = run_round(buffer, trainee, tmp_path / "versions", settings=SETTINGS)
    assert isinstance(result, RoundResult)
    assert result.version is not None, result.reason
    assert steps
    figures = result.version.figures
    assert figures["acceptance"] > figures["acceptance_before"]
    assert figures["tokens_per_step"] > figures["tokens_per_step_before"]
    assert original.read_bytes() == before
    # The next one has nothing to learn from.
    *_, again = run_round(buffer, trainee, tmp_path / "versions", settings=SETTINGS)
    assert isinstance(again, RoundResult)
    assert "too few" in again.reason


def test_training_begins_from_the_version_that_drafts(
    trainee: EagleTrainee, records: list[ReplayRecord], tmp_path: Path
) -> None:
    """Whose inputs are scaled, so that nothing changes before the first update."""
    known = replace(split(records[:6]), new=records[6:30])
    trainer = trainee.trainer(None, known, SETTINGS)
    start = trainee.measure(None, known)
    for weights in trainee.candidates(None, trainer.model.state_dict()):
        path = tmp_path / "same.gguf"
        trainee.write(weights, path)
        assert trainee.measure(path, known).tokens_per_step == start.tokens_per_step


def test_emitted_tokens_teach_where_no_probabilities_were_recorded(
    trainee: EagleTrainee, records: list[ReplayRecord]
) -> None:
    bare = [thinned(record, np.zeros(len(record.positions), bool)) for record in records[:20]]
    losses = list(trainee.trainer(None, replace(split([]), new=bare), SETTINGS).run())
    assert losses[-1] < losses[0]


def test_a_chain_takes_as_many_steps_as_its_drafts_are_wrong(
    trainee: EagleTrainee, records: list[ReplayRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With all tokens right, each step emits the chain and one more."""
    monkeypatch.setattr(eagle_trainee, "_columns", lambda file: np.full(file.size, 7))
    monkeypatch.setattr(
        eagle_trainee.EagleTrainee,
        "_drafted",
        lambda self, file, record: [
            torch.nn.functional.one_hot(
                torch.full((ANSWER - 1 - depth,), 7), len(file.drafted)
            ).float()
            for depth in range(3)
        ],
    )
    found = trainee.measure(None, split(records[:1])).tokens_per_step
    assert (found.totals, found.counts) == ((47.0,), (12.0,))


def test_few_answers_are_kept_in_memory(
    trainee: EagleTrainee, records: list[ReplayRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eagle_trainee, "MAX_STATE_BYTES", 2 * 3 * 64 * 160)
    known = replace(split([]), new=records[:30], older=records[30:60])
    trainer = trainee.trainer(None, known, replace(SETTINGS, epochs=1, older=0.0))
    assert trainer.steps == 1, "three answers fit"


def test_too_long_texts_are_left_out(
    trainee: EagleTrainee, buffer: ReplayBuffer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(list(trainee.records(buffer))) == 80
    monkeypatch.setattr(eagle_trainee, "MAX_TOKENS", 53)
    assert 0 < len(list(trainee.records(buffer))) < 80


@pytest.mark.parametrize("option", OPTIONS)
def test_what_training_does_not_know_is_refused(
    model: Path, original: Path, tmp_path: Path, option: str
) -> None:
    copy = tmp_path / "copy.gguf"
    reader = gguf.GGUFReader(original)
    writer = gguf.GGUFWriter(copy, "eagle3")
    copy_entries(reader, writer, "")
    writer.add_bool(f"eagle3.{option}", True)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(ModelError, match=f"copy.gguf cannot be trained: it uses {option}"):
        read_eagle(copy, [model])


def test_a_file_without_a_tensor_is_refused(model: Path) -> None:
    with pytest.raises(ModelError, match="cannot be trained"):
        read_eagle(model, [model])

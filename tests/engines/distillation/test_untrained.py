"""A draft model that knows nothing has the target's vocabulary, costs little beside it, and
runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from datastores.errors import InputError, ModelError, StoreError
from engines.distillation import untrained
from engines.distillation.family import LLAMA
from engines.distillation.untrained import (
    BYTES_PER_WEIGHT,
    MAX_COST,
    MAX_WEIGHTS,
    MIN_WIDTH,
    pass_bytes,
    pruned_shape,
    write_untrained,
)
from engines.distillation.weights import open_gguf, read_llama_file
from engines.draft_tree import chain
from engines.drafters.draft_model import require_same_vocabulary
from engines.llama.model import load
from engines.llama.vocabulary import load_vocabulary
from tests.engines.distillation.test_pruning import shape_of
from tests.engines.distillation.test_weights import write_grouped
from tests.engines.tiny import (
    CONTEXT,
    TinyVocabulary,
    write_gemma,
    write_llama,
    write_mixture,
    write_relative,
)


def test_it_runs_with_the_vocabulary_of_a_target_of_any_architecture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(untrained, "MAX_COST", 10.0)
    target = write_gemma(tmp_path / "target.gguf", TinyVocabulary(), 8)
    path = tmp_path / "draft-models" / "new.gguf"
    write_untrained(path, 1, target)
    file, model = read_llama_file(path), load(path, threads=1, gpu_layers=0, context_length=256)
    assert (file.shape.width, file.shape.context) == (MIN_WIDTH, CONTEXT)
    require_same_vocabulary(model.vocabulary, load_vocabulary(target))
    list(model.target.prefill([1, 5]))
    row = model.target.verify(chain(7, [], 1)).logits[0]
    with torch.no_grad():
        torch_model = file.model()
        wanted = torch_model.logits(torch_model(torch.tensor([[1, 5, 7]])))[0, -1].numpy()
    assert (row - wanted).std() < 0.02 * wanted.std()
    write_untrained(tmp_path / "again.gguf", 1, target)
    assert (tmp_path / "again.gguf").read_bytes() == path.read_bytes()
    assert [each.name for each in path.parent.iterdir()] == ["new.gguf"]


@pytest.mark.parametrize(
    ("vocabulary", "read"), [(49_152, 97e6), (151_936, 392e6), (128_256, 4.4e9)]
)
def test_it_reads_little_beside_a_target_of_whatever_size(vocabulary: int, read: float) -> None:
    width = 4096 if read > 1e9 else 896
    target = replace(
        shape_of(layers=32, family=LLAMA), width=width, hidden=3 * width, vocabulary=vocabulary
    )
    found = pruned_shape(target, MAX_COST * read)
    stack = found.layers * (2 * (9 + 3) * 64 + 3 * found.hidden)
    reads = BYTES_PER_WEIGHT * found.width * (vocabulary + stack)
    assert MIN_WIDTH <= found.width < width
    assert reads <= MAX_COST * read
    assert found.width * (2 * vocabulary + stack) <= MAX_WEIGHTS


def test_where_the_vocabulary_alone_costs_too_much_none_is_made(tmp_path: Path) -> None:
    words = TinyVocabulary(pieces=[f"word{number}" for number in range(4000)])
    for target in (
        write_relative(tmp_path / "pruned.gguf", words, "gemma3"),
        write_gemma(tmp_path / "random.gguf", words, 8),
    ):
        with pytest.raises(
            InputError, match=r"no draft model is made for .* vocabulary alone"
        ) as e:
            write_untrained(tmp_path / "new.gguf", 1, target)
        assert "\n" not in str(e.value)
        assert not (tmp_path / "new.gguf").exists()


def test_a_pass_reads_the_output_matrix_and_the_experts_in_use(tmp_path: Path) -> None:
    tied = write_llama(tmp_path / "tied.gguf", TinyVocabulary())
    assert pass_bytes([open_gguf(tied)]) == sum(t.n_bytes for t in open_gguf(tied).tensors)
    grouped = open_gguf(write_grouped(tmp_path / "grouped.gguf"))
    rows = next(t.n_bytes for t in grouped.tensors if t.name == "token_embd.weight")
    assert pass_bytes([grouped]) == sum(t.n_bytes for t in grouped.tensors) - rows
    mixture = open_gguf(write_mixture(tmp_path / "mixture.gguf", TinyVocabulary(), experts=4))
    experts = sum(t.n_bytes for t in mixture.tensors if "_exps." in t.name)
    assert pass_bytes([mixture]) == sum(t.n_bytes for t in mixture.tensors) - experts / 2


def test_what_cannot_be_read_or_written_is_said_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(untrained, "MAX_COST", 10.0)
    target = write_gemma(tmp_path / "target.gguf", TinyVocabulary(), 8)
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot write"):
        write_untrained(tmp_path / "file" / "new.gguf", 1, target)
    with pytest.raises(ModelError, match="cannot be read as a GGUF file"):
        write_untrained(tmp_path / "new.gguf", 1, tmp_path / "file")
    assert not (tmp_path / "new.gguf").exists()

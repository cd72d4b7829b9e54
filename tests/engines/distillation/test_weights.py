"""The draft model's file in torch and in llama.cpp: the same logits, and the same bytes but the
weights."""

from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter
from gguf.quants import quantize

from datastores.errors import ModelError, StoreError
from engines.distillation.weights import deinterleave, interleave, read_llama_file, write_llama_file
from engines.draft_tree import chain
from engines.llama.model import load
from engines.target import Floats
from tests.engines.tiny import (
    CONTEXT,
    FORWARD,
    HEADS,
    WIDTH,
    TinyVocabulary,
    transformer_shapes,
    write_gemma,
    write_llama,
    write_tensors,
    write_vocabulary,
)

DRAFT_MODEL = Path(__file__).parents[3] / "assets" / "draft-model-f16.gguf"
PROMPT, DRAFT = [1, *range(200, 240)], [5, 6, 7, 8]
ROUNDED = 0.03
"""llama.cpp rounds activations to 16 bits where weights have 16 bits; logits are up to 20."""


def llama_cpp_logits(path: Path) -> Floats:
    """Of the tokens in `DRAFT` behind `PROMPT`."""
    target = load(path, threads=1, gpu_layers=0, context_length=256).target
    list(target.prefill(PROMPT))
    return target.verify(chain(DRAFT[0], DRAFT[1:], 1)).logits.copy()


def torch_logits(path: Path) -> Floats:
    """The same."""
    model = read_llama_file(path).model()
    with torch.no_grad():
        hidden = model(torch.tensor([[*PROMPT, *DRAFT]]))[0, len(PROMPT) :]
        logits: Floats = model.logits(hidden).numpy()
    return logits


def write_grouped(path: Path) -> Path:
    """A Llama as the larger ones are: shared key heads, an output matrix, scaled frequencies."""
    vocabulary = TinyVocabulary()
    writer = GGUFWriter(path, "llama")
    writer.add_block_count(2)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(50000.0)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    write_vocabulary(writer, vocabulary)
    shapes = transformer_shapes(vocabulary, 2, ("attn", "ffn"))
    shapes |= {
        f"blk.{block}.attn_{part}": (WIDTH // HEADS, WIDTH) for block in (0, 1) for part in "kv"
    }
    shapes["output"] = (len(vocabulary.tokens), WIDTH)
    writer.add_tensor("rope_freqs.weight", np.linspace(1, 8, WIDTH // HEADS // 2, dtype=np.float32))
    return write_tensors(writer, path, shapes)


def write_q8(path: Path, source: Path) -> Path:
    """A copy of `source` with its matrices in Q8_0."""
    reader = GGUFReader(source)
    writer = GGUFWriter(path, "llama")
    for field in reader.fields.values():
        if not field.name.startswith("GGUF.") and field.name != "general.architecture":
            kind = field.types[0]
            inner = field.types[-1] if kind == GGUFValueType.ARRAY else None
            writer.add_key_value(field.name, field.contents(), kind, sub_type=inner)
    for tensor in reader.tensors:
        if len(tensor.shape) == 2:
            raw = quantize(np.array(tensor.data, np.float32), GGMLQuantizationType.Q8_0)
            writer.add_tensor(tensor.name, raw, raw_dtype=GGMLQuantizationType.Q8_0)
        else:
            writer.add_tensor(tensor.name, tensor.data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("kind", ["shipped", "one block", "grouped heads", "q8_0"])
def test_torch_computes_the_logits_of_llama_cpp(tmp_path: Path, kind: str) -> None:
    path = {
        "shipped": lambda: DRAFT_MODEL,
        "one block": lambda: write_llama(tmp_path / "tiny.gguf", TinyVocabulary()),
        "grouped heads": lambda: write_grouped(tmp_path / "grouped.gguf"),
        "q8_0": lambda: write_q8(tmp_path / "q8.gguf", DRAFT_MODEL),
    }[kind]()
    ours, theirs = torch_logits(path), llama_cpp_logits(path)
    if kind == "q8_0":  # llama.cpp rounds the activations to 8 bits, too
        assert (ours - theirs).std() < 0.05 * theirs.std()
    else:
        assert np.abs(ours - theirs).max() < ROUNDED
    assert (ours.argmax(axis=1) == theirs.argmax(axis=1)).all()


@pytest.mark.parametrize("kind", ["shipped", "grouped heads", "q8_0"])
def test_writing_unchanged_weights_gives_the_same_bytes(tmp_path: Path, kind: str) -> None:
    path = {
        "shipped": lambda: DRAFT_MODEL,
        "grouped heads": lambda: write_grouped(tmp_path / "grouped.gguf"),
        "q8_0": lambda: write_q8(tmp_path / "q8.gguf", DRAFT_MODEL),
    }[kind]()
    write_llama_file(path, read_llama_file(path).weights, tmp_path / "out.gguf")
    assert (tmp_path / "out.gguf").read_bytes() == path.read_bytes()


def test_changed_weights_are_what_llama_cpp_runs(tmp_path: Path) -> None:
    file = read_llama_file(DRAFT_MODEL)
    changed = {name: each * 1.25 for name, each in file.weights.items()}
    write_llama_file(DRAFT_MODEL, changed, tmp_path / "out.gguf")
    again = read_llama_file(tmp_path / "out.gguf")
    for name, each in changed.items():
        torch.testing.assert_close(again.weights[name], each, rtol=1e-3, atol=1e-4)
    ours, theirs = torch_logits(tmp_path / "out.gguf"), llama_cpp_logits(tmp_path / "out.gguf")
    assert np.abs(ours - theirs).max() < 2 * ROUNDED
    assert np.abs(ours - torch_logits(DRAFT_MODEL)).max() > 1


@pytest.mark.parametrize("kind", ["f16", "q8_0"])
def test_a_grown_draft_model_says_the_same_until_its_new_neurons_learn(
    tmp_path: Path, kind: str
) -> None:
    source = DRAFT_MODEL if kind == "f16" else write_q8(tmp_path / "q8.gguf", DRAFT_MODEL)
    old = read_llama_file(source)
    grown = old.grown(old.shape.hidden + 64)
    write_llama_file(source, grown.weights, tmp_path / "grown.gguf")
    again = read_llama_file(tmp_path / "grown.gguf")
    assert again.shape == grown.shape
    for name, each in grown.weights.items():
        torch.testing.assert_close(again.weights[name], each, rtol=0.02, atol=0.02)
    ours, theirs = llama_cpp_logits(tmp_path / "grown.gguf"), llama_cpp_logits(source)
    assert np.abs(ours - theirs).max() < ROUNDED
    assert old.grown(old.shape.hidden) is old
    assert grown.grown(old.shape.hidden + 64) is grown


def test_deinterleaving_is_the_inverse_of_pairing_the_two_halves_of_a_head() -> None:
    rows = torch.arange(8.0).reshape(8, 1)
    assert interleave(rows, heads=2).flatten().tolist() == [0, 2, 1, 3, 4, 6, 5, 7]
    torch.testing.assert_close(deinterleave(interleave(rows, heads=2), heads=2), rows)


def test_another_architecture_is_refused_in_one_line(tmp_path: Path) -> None:
    path = write_gemma(tmp_path / "gemma.gguf", TinyVocabulary(), 8)
    with pytest.raises(
        ModelError, match="its architecture is gemma2, which is none of llama, qwen2"
    ) as error:
        read_llama_file(path)
    assert "\n" not in str(error.value)


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    for content in (b"", b"not a model", DRAFT_MODEL.read_bytes()[:2000]):
        path.write_bytes(content)
        with pytest.raises(ModelError, match="cannot be read as a GGUF file"):
            read_llama_file(path)


def test_a_failed_write_leaves_no_file(tmp_path: Path) -> None:
    weights = read_llama_file(DRAFT_MODEL).weights
    with pytest.raises(StoreError, match="cannot write"):
        write_llama_file(DRAFT_MODEL, weights, tmp_path / "missing" / "out.gguf")
    full = Path("/dev/full")
    if full.exists():
        (tmp_path / "full.gguf").symlink_to(full)
        with pytest.raises(StoreError, match="No space left"):
            write_llama_file(DRAFT_MODEL, weights, tmp_path / "full.gguf")
        assert not (tmp_path / "full.gguf").exists()
    assert not (tmp_path / "missing").exists()

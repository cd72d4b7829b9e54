"""Enlarged copies, wider, deeper or both, keep the logits and the tokens of their source."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from datastores.errors import ModelError
from engines.budget.acceptance_model import AcceptanceModel
from engines.budget.cost_model import CostModel
from engines.budget.fixed import FixedBudget
from engines.decode import StopCriteria, decode
from engines.draft_tree import chain, root_only
from engines.drafters.mtp import Heads, MtpDrafter
from engines.llama import context
from engines.llama.enlarge import Enlargement, enlarge
from engines.llama.gguf import read_metadata
from engines.llama.model import LlamaModel, load
from engines.sampler import Sampling, make_sampler
from engines.target import Floats, Target
from tests.engines.conftest import EMBEDDED, THREADS
from tests.engines.tiny import TinyVocabulary
from tests.engines.tiny_heads import write_depth_heads

PROMPT = [1, *range(300, 330)]
ANSWER_TOKENS = 24
DRAFT_MODEL = EMBEDDED.with_name("draft-model-f16.gguf")
EXACT, ROUNDED = 1e-4, 0.05
"""Largest differences of logits up to 20: activations, rounded to 16 bits for matrices of 16-bit
floats, fall to either side where a norm's √wider is no power of two, or long rows are summed in
another order."""

Entry = tuple[str, Any, Any]
"""A tensor's name, data and type."""


def _open(path: Path) -> LlamaModel:
    return load(path, threads=THREADS, gpu_layers=0, context_length=1024)


@pytest.fixture(autouse=True)
def fused_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the width, since plain attention rounds differently."""
    monkeypatch.setattr(context, "MIN_PLAIN_WIDTH", 1 << 20)


def _logits(target: Target) -> Floats:
    """Logits of a chain of three after the prompt."""
    target.rewind(0)
    list(target.prefill(PROMPT))
    return target.verify(chain(5, [6, 7], 1)).logits.copy()


def _greedy(target: Target) -> Iterator[int]:
    target.rewind(0)
    list(target.prefill(PROMPT))
    token = int(target.last_row.logits[0].argmax())
    for _ in range(ANSWER_TOKENS):
        yield token
        logits = target.verify(root_only(token)).logits[0]
        target.commit([0])
        token = int(logits.argmax())


def _assert_same(source: LlamaModel, larger: LlamaModel, tolerance: float) -> None:
    assert np.abs(_logits(source.target) - _logits(larger.target)).max() < tolerance
    assert list(_greedy(source.target)) == list(_greedy(larger.target))


@pytest.mark.parametrize(("wider", "deeper"), [(2, 0), (3, 0), (1, 3), (4, 2)])
def test_an_enlarged_model_gives_the_same_tokens(
    model: LlamaModel, tmp_path: Path, wider: int, deeper: int
) -> None:
    path = tmp_path / "new" / "large.gguf"
    enlarge(EMBEDDED, Enlargement(wider, deeper), path)
    large, header, original = _open(path), read_metadata(path), read_metadata(EMBEDDED)
    assert large.layers == model.layers + deeper
    for name in ("embedding_length", "feed_forward_length", "attention.head_count"):
        assert header.number(name) == wider * original.number(name)
    assert header.parameters > wider**2 * original.parameters * 0.7
    _assert_same(model, large, EXACT if wider == 1 else ROUNDED)
    assert large.target.fingerprint != model.target.fingerprint
    assert large.vocabulary.fingerprint == model.vocabulary.fingerprint
    assert [entry.name for entry in path.parent.iterdir()] == ["large.gguf"]


def test_a_narrow_model_four_times_as_wide_rounds_nothing(tmp_path: Path) -> None:
    enlarge(DRAFT_MODEL, Enlargement(4, 2), tmp_path / "large.gguf")
    _assert_same(_open(DRAFT_MODEL), _open(tmp_path / "large.gguf"), EXACT)


def test_a_deeper_model_gives_bitwise_the_same_logits(model: LlamaModel, tmp_path: Path) -> None:
    enlarge(EMBEDDED, Enlargement(deeper=2), tmp_path / "deep.gguf")
    deep = _open(tmp_path / "deep.gguf")
    assert np.array_equal(_logits(model.target), _logits(deep.target))


def _variant(path: Path) -> Path:
    """The embedded model in Q8_0 with half the key-value heads, biases and an output matrix."""
    reader = gguf.GGUFReader(EMBEDDED)
    entries = [one for tensor in reader.tensors for one in _changed(tensor)]
    heads = read_metadata(EMBEDDED).number("attention.head_count")
    _write(path, reader, entries, {"llama.attention.head_count_kv": heads // 2})
    return path


def _changed(tensor: Any) -> Iterator[Entry]:
    kind, data = gguf.GGMLQuantizationType.Q8_0, tensor.data
    if data.ndim == 1:
        yield tensor.name, data, tensor.tensor_type
        return
    if any(name in tensor.name for name in ("attn_k", "attn_v")):
        data = data[: len(data) // 2]
    quantised = gguf.quants.quantize(np.asarray(data, np.float32), kind)
    yield tensor.name, quantised, kind
    if tensor.name == "token_embd.weight":
        yield "output.weight", quantised, kind
    if "attn_q" in tensor.name:
        bias = np.random.default_rng(5).normal(size=len(data)).astype(np.float32)
        yield tensor.name.replace("weight", "bias"), bias, gguf.GGMLQuantizationType.F32


def _write(path: Path, reader: Any, entries: list[Entry], changes: dict[str, Any]) -> None:
    writer = gguf.GGUFWriter(path, changes.pop("general.architecture", "llama"))
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        inner = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        value = changes.get(field.name, field.contents())
        writer.add_key_value(field.name, value, field.types[0], sub_type=inner)
    for name, data, kind in entries:
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_blocks_of_quantised_weights_grouped_heads_and_biases_are_padded(tmp_path: Path) -> None:
    source = _variant(tmp_path / "variant.gguf")
    # Four times as wide rounds nothing, although some processors quantise activations to 8 bits.
    enlarge(source, Enlargement(4, 1), tmp_path / "large.gguf")
    _assert_same(_open(source), _open(tmp_path / "large.gguf"), EXACT)


def test_what_is_not_a_model_is_not_enlarged(tmp_path: Path) -> None:
    source = tmp_path / "notes.gguf"
    source.write_bytes(b"GGUF but not really" * 10)
    with pytest.raises(ModelError, match=r"notes\.gguf cannot be enlarged"):
        enlarge(source, Enlargement(2), tmp_path / "large.gguf")
    assert list(tmp_path.iterdir()) == [source]


@pytest.mark.parametrize(
    ("names", "changes", "complaint"),
    [
        (["blk.0.attn_q.weight"], {}, "its blocks have no attn_output.weight"),
        (["blk.0.attn_q_norm.weight"], {}, "it has a tensor blk.0.attn_q_norm.weight"),
        ([], {"general.architecture": "gemma"}, "its architecture is gemma, not llama"),
    ],
)
def test_a_model_that_would_give_other_tokens_is_refused(
    tmp_path: Path, names: list[str], changes: dict[str, Any], complaint: str
) -> None:
    outputs = [] if "attn_output" in complaint else ["attn_output", "ffn_down"]
    names = [*names, *(f"blk.0.{name}.weight" for name in outputs)]
    kind, data = gguf.GGMLQuantizationType.F32, np.zeros((2, 2), np.float32)
    source = tmp_path / "other.gguf"
    entries: list[Entry] = [(name, data, kind) for name in names]
    _write(source, gguf.GGUFReader(EMBEDDED), entries, changes)
    with pytest.raises(ModelError, match=complaint):
        enlarge(source, Enlargement(wider=2), tmp_path / "large.gguf")
    assert list(tmp_path.iterdir()) == [source]


def test_a_prediction_head_is_widened_with_its_model(tmp_path: Path) -> None:
    words = TinyVocabulary()
    source, large = write_depth_heads(tmp_path / "head.gguf", words, 1), tmp_path / "large.gguf"
    enlarge(source, Enlargement(4), large)
    drafts = [_greedy_drafts(path) for path in (source, large)]
    assert drafts[0] == drafts[1]
    assert len(set(drafts[0][1])) > 4
    with pytest.raises(ModelError, match="its last block is a prediction head"):
        enlarge(source, Enlargement(deeper=1), tmp_path / "deep.gguf")


def _greedy_drafts(path: Path) -> tuple[list[int], list[int]]:
    """The answer of the model in `path`, and its head's drafts."""
    target = load(path, threads=1, context_length=512, heads=True).target
    assert target.heads is not None
    drafter = MtpDrafter(Heads(target.heads, frozenset()))
    ending = StopCriteria(frozenset(), ANSWER_TOKENS)
    list(target.prefill([5 + index * 7 % 240 for index in range(40)]))
    budget = FixedBudget(3, CostModel(), AcceptanceModel())
    steps = list(decode(target, [drafter], budget, make_sampler(Sampling(0.0)), ending))
    drafted = [t for step in steps for each in step.proposals for t in each.tree.tokens]
    return [token for step in steps for token in step.tokens], drafted


def test_nothing_shrinks() -> None:
    for wider, deeper in ((0, 0), (1, -1)):
        with pytest.raises(ValueError, match="not larger"):
            Enlargement(wider, deeper)
    assert not Enlargement()
    assert str(Enlargement(4, 8)) == ", 4 times as wide, 8 layers added"
    assert str(Enlargement(deeper=1)) == ", 1 layers added"

"""Prediction heads draft in every mode, follow their target, and change no answer."""

from __future__ import annotations

import gc
import json
import signal
import subprocess
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from llama_cpp import llama_cpp as lib

from datastores.errors import ModelError
from engines.decode import StopCriteria, decode
from engines.draft_tree import MTP
from engines.drafters import model_drafter
from engines.drafters.draft_model import DraftModel, DraftModelDrafter
from engines.drafters.mtp import Heads, MtpDrafter
from engines.drafters.prompt_lookup import PromptLookup
from engines.drafters.protocol import Drafter
from engines.llama import heads_loading, native, prediction_heads, probe, probe_process
from engines.llama.context import Weights
from engines.llama.gguf import heads_file
from engines.llama.model import load
from engines.llama.prediction_heads import PredictionHeads
from engines.llama.target import LlamaTarget
from engines.sampler import Sampling, make_sampler
from engines.step import Step
from tests.engines.test_decode import NEVER, fixed, tokens
from tests.engines.tiny import TinyVocabulary, write_llama
from tests.engines.tiny_heads import (
    write_depth_heads,
    write_dflash,
    write_eagle,
    write_hybrid,
    write_mixture,
    write_sharing,
)

WORDS = TinyVocabulary()
PROMPT = [5 + index * 7 % 240 for index in range(40)]
ANSWER = 16
NOISY = Sampling(2.5, top_k=0, top_p=1.0, min_p=0.0, seed=6)
"""Mostly noise, which heads share with their target, so that random weights often agree."""
WRITERS: dict[str, Callable[[Path], Path]] = {
    "chained": lambda folder: write_depth_heads(folder / "chained.gguf", WORDS, 1),
    "depth": lambda folder: write_depth_heads(folder / "depth.gguf", WORDS, 3),
    "mixture": lambda folder: write_mixture(folder / "mixture.gguf", WORDS),
    "hybrid": lambda folder: write_hybrid(folder / "hybrid.gguf", WORDS),
    "sharing": lambda folder: write_sharing(folder, WORDS),
    "eagle": lambda folder: write_eagle(folder, WORDS),
    "few": lambda folder: write_eagle(folder, WORDS, drafted=200),
    "dflash": lambda folder: write_dflash(folder, WORDS),
    "dspark": lambda folder: write_dflash(folder, WORDS, drafted=200, markov=True),
}
EAGLES = ("eagle", "few")
EXACT = ("chained", "depth", "mixture", "sharing", *EAGLES, "dflash", "dspark")
"""Kinds tested in exact mode; the hybrid's answers have no near-ties."""
Open = Callable[[str, bool], LlamaTarget]


@pytest.fixture(autouse=True)
def deep_drafts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let random weights draft although they are unsure."""
    monkeypatch.setattr(model_drafter.DraftCosts, "price", 0.0)
    monkeypatch.setattr(model_drafter, "MIN_PATH_PROBABILITY", 0.0)
    monkeypatch.setattr(model_drafter, "MAX_CHILDREN", 2)


@pytest.fixture(scope="module")
def open_target(tmp_path_factory: pytest.TempPathFactory) -> Open:
    folder = tmp_path_factory.mktemp("heads")

    @cache
    def written(kind: str) -> Path:
        (folder / kind).mkdir()
        return WRITERS[kind](folder / kind)

    @cache
    def opened(kind: str, exact: bool) -> LlamaTarget:
        path = written(kind)
        return load(path, threads=1, context_length=1536, exact=exact, heads=True).target

    def empty(kind: str, exact: bool) -> LlamaTarget:
        target = opened(kind, exact)
        target.rewind(0)
        return target

    return empty


def heads_of(target: LlamaTarget) -> PredictionHeads:
    assert target.heads is not None
    return target.heads


def drafter(target: LlamaTarget) -> MtpDrafter:
    return MtpDrafter(Heads(heads_of(target), NEVER))


def answer(
    target: LlamaTarget,
    prompt: Sequence[int],
    drafters: Sequence[Drafter],
    sampling: Sampling = NOISY,
    count: int = 8,
) -> list[Step]:
    list(target.prefill(prompt))
    draw, ending = make_sampler(sampling), StopCriteria(NEVER, ANSWER)
    budget = fixed(count if drafters else 0)
    return list(decode(target, drafters, budget, draw, ending, temperature=sampling.temperature))


def turns(target: LlamaTarget, drafters: Sequence[Drafter], sampling: Sampling) -> list[list[int]]:
    """Two questions, the second one again, then the first one edited."""
    first = tokens(answer(target, PROMPT, drafters, sampling))
    longer = [*PROMPT, *first, *PROMPT[:7]]
    rest = (longer, longer, [*PROMPT[:30], 9, 9, 9])
    return [first, *(tokens(answer(target, prompt, drafters, sampling)) for prompt in rest)]


@pytest.mark.parametrize("sampling", [Sampling(0.0), NOISY], ids=["greedy", "noisy"])
@pytest.mark.parametrize("kind", WRITERS)
def test_answers_are_those_of_plain_decoding(
    open_target: Open, kind: str, sampling: Sampling
) -> None:
    target = open_target(kind, kind in EXACT)
    plain = turns(target, [], sampling)
    assert turns(target, [drafter(target)], sampling) == plain
    if sampling is NOISY:
        assert turns(target, [drafter(target), PromptLookup()], sampling) == plain


def test_heads_and_a_draft_model_draft_together(open_target: Open, tmp_path: Path) -> None:
    target = open_target("chained", True)
    small = load(write_llama(tmp_path / "small.gguf", WORDS), threads=1, context_length=512)
    plain = turns(target, [], NOISY)
    both = [drafter(target), DraftModelDrafter(DraftModel(small.target, NEVER))]
    assert turns(target, both, NOISY) == plain


@pytest.mark.parametrize("kind", WRITERS)
def test_drafts_are_proposed_and_accepted(open_target: Open, kind: str) -> None:
    target = open_target(kind, False)
    steps = answer(target, PROMPT, [drafter(target)])
    drafts = [proposal.tree for step in steps for proposal in step.proposals]
    assert 1 < max(max(tree.depths()) for tree in drafts) <= heads_of(target).max_depth
    assert sum(step.accepted for step in steps) > 2
    assert {origin for step in steps for origin in step.origins} == {0, MTP}
    assert target.chains_only or not all(step.tree.is_chain() for step in steps)


@pytest.mark.parametrize("kind", WRITERS)
def test_the_heads_have_read_what_was_accepted(open_target: Open, kind: str) -> None:
    """As if they had read the text at once, up to the cache's half precision."""
    target = open_target(kind, False)
    steps = answer(target, PROMPT, [drafter(target)])
    text = [*PROMPT, *tokens(steps)]
    heads = heads_of(target)
    assert 0 < heads.begin(text) < len(PROMPT)
    followed = heads.next_rows(text, 1).copy()
    target.rewind(0)
    list(target.prefill(text[:-1]))
    unread = len(text) - (kind in EAGLES)  # these begin with the second token
    assert heads.begin(text) == (1 if kind == "sharing" else unread)
    assert np.allclose(heads.next_rows(text, 1), followed, atol=1e-2)


def test_a_chat_that_is_loaded_is_drafted_from_its_next_token_on(open_target: Open) -> None:
    target = open_target("depth", True)
    plain = tokens(answer(target, PROMPT, []))
    list(target.prefill(PROMPT[:-1]))
    state = target.save_state(0, len(PROMPT) - 1)
    target.rewind(0)
    target.load_state(PROMPT[:-1], state)
    steps = answer(target, PROMPT, [drafter(target)])
    assert tokens(steps) == plain
    assert any(step.accepted for step in steps)


def test_of_a_long_text_only_the_end_is_read(open_target: Open) -> None:
    target = open_target("chained", False)
    text = (PROMPT * 40)[: prediction_heads.MAX_UNREAD + 300]
    list(target.prefill(text))
    unread = heads_of(target).begin([*text, 7])
    assert 0 <= prediction_heads.MAX_UNREAD - unread < prediction_heads.DROPPED
    assert any(step.accepted for step in answer(target, text, [drafter(target)]))


def test_nothing_is_drafted_after_another_text(open_target: Open) -> None:
    target = open_target("chained", False)
    list(target.prefill(PROMPT))
    heads = heads_of(target)
    assert heads.begin([*PROMPT, 7]) == len(PROMPT) + 1
    assert heads.begin([*PROMPT, 7, 8]) == 0
    assert heads.begin(PROMPT) == 0


def test_heads_run_on_as_many_threads_as_their_target(open_target: Open) -> None:
    target = open_target("chained", False)
    heads = heads_of(target)
    list(target.prefill(PROMPT))
    lib.llama_set_n_threads(heads._target.handle, 2, 2)  # as its tuner does before a pass
    heads.begin([*PROMPT, 7])
    heads.next_rows([*PROMPT, 7], 1)
    assert lib.llama_n_threads(heads._context) == 2
    lib.llama_set_n_threads(heads._target.handle, 1, 1)


def _note_call(calls: list[str], name: str, call: Callable[..., object], *given: object) -> object:
    calls.append(name)
    return call(*given)


@pytest.mark.parametrize("on_device", [False, True])
def test_on_a_device_heads_are_waited_for_before_their_outputs_are_read(
    open_target: Open, monkeypatch: pytest.MonkeyPatch, on_device: bool
) -> None:
    """Reading an output would wait too, but with the interpreter lock held."""
    target, calls = open_target("chained", False), list[str]()
    list(target.prefill(PROMPT))
    heads = heads_of(target)
    for name in ("decode", "synchronize", "get_logits"):
        call = partial(_note_call, calls, name, getattr(native, name))
        monkeypatch.setattr(native, name, call)
    monkeypatch.setattr(heads, "_on_device", on_device)
    heads.begin([*PROMPT, 7])
    heads.next_rows([*PROMPT, 7], 1)
    one = ["decode", *["synchronize"] * on_device]
    assert calls == [*one, *one, "get_logits"]


def test_a_failing_head_ends_its_drafts_not_the_answer(
    open_target: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = open_target("chained", True)
    plain = tokens(answer(target, PROMPT, []))
    one = drafter(target)

    def refuse(*_arguments: object, **_names: object) -> None:
        raise ModelError("out of memory")

    monkeypatch.setattr(heads_of(target), "_evaluate", refuse)
    assert tokens(answer(target, PROMPT, [one])) == plain
    assert "without the model's prediction heads" in str(one.error)


def test_heads_that_llama_cpp_cannot_run_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = write_mixture(tmp_path / "two.gguf", WORDS, heads=2)
    target = load(two, threads=1, context_length=256, heads=True).target
    assert target.heads is None
    assert "one prediction head of glm4moe, not 2" in target.heads_problem
    one = write_mixture(tmp_path / "one.gguf", WORDS)
    monkeypatch.setattr(heads_loading, "UNAVAILABLE", "no such function")
    target = load(one, threads=1, context_length=256, heads=True).target
    assert (target.heads, target.heads_problem) == (None, "no such function")
    plain = write_llama(tmp_path / "plain.gguf", WORDS)
    target = load(plain, threads=1, context_length=256, heads=True).target
    assert (target.heads, target.heads_problem) == (None, "")


def test_heads_are_probed_once_by_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, cache = write_mixture(tmp_path / "model.gguf", WORDS), tmp_path / "probed.json"
    kinds = []

    def crash(_path: Path, _timeout_s: float, kind: str) -> None:
        kinds.append(kind)
        if kind == probe.HEADS:
            raise ModelError("crashes llama.cpp")

    monkeypatch.setattr(probe, "_probe", crash)
    for _ in range(2):
        target = load(path, threads=1, context_length=256, heads=True, probe_cache=cache).target
        assert (target.heads, target.heads_problem) == (None, "crashes llama.cpp")
    assert kinds == ["", probe.HEADS]
    assert len(json.loads(cache.read_text())) == 2


def test_heads_whose_probe_did_not_end_are_probed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, cache = write_mixture(tmp_path / "model.gguf", WORDS), tmp_path / "probed.json"
    killed = subprocess.CompletedProcess[bytes]([], -signal.SIGKILL, b"", b"")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: killed)
    assert probe.probe_heads(path, cache, "build") == "running them ran out of memory"
    refused = subprocess.CompletedProcess[bytes]([], probe.REFUSED, b"no heads", b"")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: refused)
    assert probe.probe_heads(path, cache, "build") == "no heads"
    monkeypatch.undo()
    assert probe.probe_heads(path, cache, "build") == "no heads"


def test_a_crash_of_the_heads_does_not_reject_their_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its message does not ask for another file."""
    path, cache = write_mixture(tmp_path / "model.gguf", WORDS), tmp_path / "probed.json"
    crashed = subprocess.CompletedProcess[bytes](
        [], -signal.SIGABRT, b"", b"a.c:1: GGML_ASSERT(x) failed"
    )
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: crashed)
    problem = "running them crashes llama.cpp (GGML_ASSERT(x) failed)"
    assert probe.probe_heads(path, cache, "build") == problem


def test_heads_that_do_not_fit_into_memory_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, layers: int, *, heads: bool = False, **others: Any) -> Weights:
        if heads:
            raise ModelError("out of memory")
        return Weights(path, layers, **others)

    monkeypatch.setattr(heads_loading, "Weights", refuse)
    path = write_mixture(tmp_path / "model.gguf", WORDS)
    target = load(path, threads=1, context_length=256, heads=True).target
    assert target.heads is None
    assert "do not fit" in target.heads_problem


def test_contexts_are_freed_before_their_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    freed: list[tuple[Callable[[object], None], object]] = []
    for name in ("llama_free", "llama_model_free"):
        free = getattr(lib, name)
        monkeypatch.setattr(lib, name, lambda handle, free=free: freed.append((free, handle)))
    path = write_mixture(tmp_path / "model.gguf", WORDS)
    target = load(path, threads=1, context_length=256, heads=True).target
    heads, context = heads_of(target)._context, heads_of(target)._target.handle
    model = heads_of(target)._target.weights.handle
    del target
    gc.collect()
    assert [handle for _, handle in freed] == [heads, context, model]
    for free, handle in freed:
        free(handle)


@pytest.mark.parametrize("kind", ["mixture", "sharing", "few", "dflash"])
def test_the_probe_runs_heads(tmp_path: Path, kind: str) -> None:
    probe_process._run(WRITERS[kind](tmp_path), probe.HEADS)


def test_of_several_files_of_heads_the_one_named_like_the_model_is_taken(tmp_path: Path) -> None:
    model = write_llama(tmp_path / "large-Q8_0.gguf", WORDS)
    assert heads_file(model, "llama") is None
    for name in ("mtp-other.gguf", "mtp-large-Q8_0.gguf", "mtp-large.gguf"):
        write_llama(tmp_path / name, WORDS)
    (tmp_path / "mtp-large-Q8_0-damaged.gguf").write_bytes(b"")
    found = heads_file(model, "llama")
    assert found is not None
    assert found.name == "mtp-large-Q8_0.gguf"
    assert heads_file(model, "gemma4") is None

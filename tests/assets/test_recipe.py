"""The recipe from end to end on the tiny setting; every reader agrees on what it writes."""

import json
from pathlib import Path

import llama_cpp
import numpy as np
import pytest
import torch
from click.testing import CliRunner

from assets.recipe.export import DRAFT_MODEL_FILE, FILES, TARGET_FILE, copy_tokenizer
from assets.recipe.settings import TINY
from assets.recipe.steps import Recipe, main
from assets.recipe.tokens import CHAT_TEMPLATE, load_tokenizer
from assets.recipe.training import load_weights
from engines.distillation.model import Llama

TEXT = "<|im_start|>user\nextract `a.tar.gz` {{path/to/file1}}, please<|im_end|>\n"


@pytest.fixture(scope="module")
def work(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The working folder of one tiny run; results lie in its ``out``."""
    work = tmp_path_factory.mktemp("recipe")
    folders = ["--work", str(work), "--out", str(work / "out")]
    arguments = ["all", "--setting", "tiny", "--pages", str(checkout), *folders]
    result = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return work


def _trained(work: Path, role: str) -> Llama:
    model = Llama(TINY.shapes[role].llama)
    model.load_state_dict(load_weights(work / role))
    return model


def _llama_logits(path: Path, ids: list[int]) -> np.ndarray:
    model = llama_cpp.Llama(str(path), n_ctx=256, logits_all=True, verbose=False)
    assert model.tokenize(TEXT.encode(), add_bos=False, special=True) == ids
    assert model.metadata["tokenizer.chat_template"] == CHAT_TEMPLATE
    model.eval(ids)
    logits = np.array(model.scores[: len(ids)])
    model.close()
    return logits


@pytest.mark.parametrize(
    ("role", "file"), [("target", TARGET_FILE), ("draft-model", DRAFT_MODEL_FILE)]
)
def test_trainer_llama_cpp_and_transformers_agree(work: Path, role: str, file: str) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    path = work / "out" / file
    ids = load_tokenizer(work / "tokenizer.json").encode(TEXT).ids
    with torch.no_grad():
        model = _trained(work, role)
        ours = model.logits(model(torch.tensor([ids])))[0].numpy()
        reader = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name)
        theirs = reader(torch.tensor([ids])).logits[0].float().numpy()
    tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    assert tokenizer(TEXT, add_special_tokens=False)["input_ids"] == ids
    np.testing.assert_allclose(ours, theirs, atol=0.02)
    np.testing.assert_allclose(ours, _llama_logits(path, ids), atol=0.03)


@pytest.mark.parametrize("role", list(FILES))
def test_a_run_goes_on_from_exported_weights_until_it_has_a_checkpoint(
    work: Path, checkout: Path, tmp_path: Path, role: str
) -> None:
    run = Recipe(TINY, checkout, tmp_path, tmp_path, 1, start=work / "out").run(role)
    for name, weight in _trained(work, role).state_dict().items():
        given = run.optimiser.state[f"master.{name}"]
        torch.testing.assert_close(given, weight, atol=1e-2, rtol=1e-3)
    resumed = Recipe(TINY, checkout, work, tmp_path, 1, start=work / "out").run(role)
    assert resumed.progress.tokens > 0


def test_a_run_that_goes_on_keeps_the_tokenizer(work: Path, tmp_path: Path) -> None:
    copied = tmp_path / "tokenizer.json"
    copy_tokenizer(work / "out" / TARGET_FILE, copied)
    original = load_tokenizer(work / "tokenizer.json")
    assert load_tokenizer(copied).encode(TEXT).ids == original.encode(TEXT).ids


def test_figures_are_shares(work: Path) -> None:
    figures = json.loads((work / "out" / "figures.json").read_text(encoding="utf-8"))
    expected = {
        "noted_exact",
        "misled_not_copied",
        "recall_name",
        "well_formed",
        "draft_model_overlap",
    }
    expected |= {"outside_without_command", "values_carried", "follow_ups_right"}
    assert expected <= figures.keys()
    assert all(0 <= share <= 1 for share in figures.values())


def test_a_missing_checkout_is_named(tmp_path: Path) -> None:
    folders = ["--work", str(tmp_path), "--out", str(tmp_path)]
    arguments = ["prepare", "--setting", "tiny", "--pages", str(tmp_path / "nowhere"), *folders]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 1
    assert "nowhere" in result.output


def test_training_before_preparing_says_what_to_run(checkout: Path, tmp_path: Path) -> None:
    folders = ["--work", str(tmp_path), "--out", str(tmp_path)]
    result = CliRunner().invoke(
        main, ["train", "--setting", "tiny", "--pages", str(checkout), *folders]
    )
    assert result.exit_code == 1
    assert "prepare" in result.output

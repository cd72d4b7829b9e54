"""The files that are shipped: their size, what they say about themselves, and one answer."""

import tomllib
from pathlib import Path

import gguf
import pytest

from assets.recipe.export import DRAFT_MODEL_FILE, FILES, TARGET_FILE
from assets.recipe.reader import AnswerReader, command_of, well_formed
from assets.recipe.settings import BRIEFLY
from assets.recipe.tokens import CHAT_TEMPLATE, SPECIALS
from assets.recipe.turns import ChatTurn
from engines.distillation.model import Llama
from engines.distillation.weights import read_llama_file

ASSETS = Path(__file__).parents[2] / "assets"


def _weights(file: str) -> int:
    return sum(int(tensor.n_elements) for tensor in gguf.GGUFReader(ASSETS / file).tensors)


def test_what_the_program_reads_is_packaged() -> None:
    settings = tomllib.loads((ASSETS.parent / "pyproject.toml").read_text())
    patterns = settings["tool"]["setuptools"]["package-data"]["assets"]
    packaged = {path for pattern in patterns for path in ASSETS.glob(pattern)}
    read = {
        path
        for folder in (ASSETS, ASSETS / "demo", ASSETS / "answerability")
        for path in folder.glob("*")
        if path.is_file() and path.suffix != ".py"
    }
    assert read - packaged == {ASSETS / "session.svg"}, "the README's picture"


def test_the_models_are_small_enough_to_ship() -> None:
    assert sum((ASSETS / file).stat().st_size for file in FILES.values()) < 64 * 2**20


def test_the_draft_model_costs_a_tenth_of_the_target() -> None:
    assert _weights(DRAFT_MODEL_FILE) <= 0.1 * _weights(TARGET_FILE)


@pytest.mark.parametrize("file", FILES.values())
def test_a_file_says_what_it_is(file: str) -> None:
    fields = gguf.GGUFReader(ASSETS / file).fields
    assert fields["general.architecture"].contents() == "llama"
    assert fields["general.license"].contents() == "cc-by-4.0"
    assert fields["tokenizer.chat_template"].contents() == CHAT_TEMPLATE
    assert fields["tokenizer.ggml.tokens"].contents()[: len(SPECIALS)] == list(SPECIALS)
    heads = fields["llama.attention.head_count"].contents()
    assert fields["llama.embedding_length"].contents() == 64 * heads


@pytest.mark.parametrize(("role", "file"), FILES.items())
def test_training_goes_on_from_a_shipped_file(role: str, file: str) -> None:
    Llama(BRIEFLY.shapes[role].llama).load_state_dict(read_llama_file(ASSETS / file).weights)


def test_all_speak_the_same_tokens() -> None:
    target, *others = (
        gguf.GGUFReader(ASSETS / file).fields["tokenizer.ggml.tokens"].contents()
        for file in FILES.values()
    )
    assert others == [target, target]


def test_the_first_question_of_a_fresh_install_is_answered() -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(ASSETS, gguf_file=TARGET_FILE).backend_tokenizer
    reader = AnswerReader(ASSETS / TARGET_FILE, tokenizer)
    answer = reader.answers([(ChatTurn("user", "how do I extract a tar.gz archive?"),)])[0]
    assert well_formed(answer)
    assert command_of(answer).startswith(("tar xf", "tar xvf", "tar xzf"))

"""Writes a trained model as one GGUF file, with the shared vocabulary and chat template.

`engines.distillation.export` determines the layout of the weights.
"""

from __future__ import annotations

import json
from pathlib import Path

import gguf
from tokenizers import Tokenizer

from assets.recipe.retrieval import QUESTION_MODEL_FILE
from assets.recipe.settings import Shape
from assets.recipe.tokens import CHAT_TEMPLATE, END_OF_TEXT, IM_END, SPECIALS
from assets.recipe.training import load_weights
from engines.distillation.export import write_llama

TARGET_FILE = "target-f16.gguf"
DRAFT_MODEL_FILE = "draft-model-f16.gguf"
FILES = {
    "target": TARGET_FILE,
    "draft-model": DRAFT_MODEL_FILE,
    "question-model": QUESTION_MODEL_FILE,
}


def export(checkpoint: Path, tokenizer: Path, shape: Shape, name: str, path: Path) -> None:
    """Write the model in ``checkpoint`` to ``path``, replacing the file atomically."""

    def describe(writer: gguf.GGUFWriter) -> None:
        writer.add_license("cc-by-4.0")
        writer.add_author("tldr-pages contributors (text), specchat (recipe)")
        _add_tokenizer(writer, tokenizer)

    write_llama(path, name, shape.llama, load_weights(checkpoint), describe)


def _add_tokenizer(writer: gguf.GGUFWriter, path: Path) -> None:
    model = json.loads(path.read_text(encoding="utf-8"))["model"]
    tokens = sorted(model["vocab"], key=lambda token: int(model["vocab"][token]))
    control, normal = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([control if token in SPECIALS else normal for token in tokens])
    writer.add_token_merges(merges)
    writer.add_bos_token_id(END_OF_TEXT)
    writer.add_eos_token_id(IM_END)
    writer.add_pad_token_id(END_OF_TEXT)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)


def read_tokenizer(model: Path) -> Tokenizer:
    """The tokenizer in the GGUF file ``model``."""
    from transformers import AutoTokenizer

    loaded = AutoTokenizer.from_pretrained(model.parent, gguf_file=model.name)
    tokenizer: Tokenizer = loaded.backend_tokenizer
    return tokenizer


def copy_tokenizer(model: Path, path: Path) -> None:
    """Write the tokenizer of the GGUF file ``model`` to ``path``, unless that exists."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        read_tokenizer(model).save(str(path))

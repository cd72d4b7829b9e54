"""A model loaded through transformers, ready for chats: target, vocabulary and template.

Owns the order of loading. A GGUF file brings its tokenizer and template along, which llama.cpp
reads; a folder has them in files of its own. Refuses to know how the parts work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers

from datastores.errors import ModelError
from engines.chat_message import Message
from engines.chat_template.template import ChatTemplate
from engines.hf.target import UNREADABLE, HfTarget, load
from engines.hf.vocabulary import HfVocabulary
from engines.llama.context import Weights
from engines.llama.vocabulary import LlamaVocabulary
from engines.target import Vocabulary


@dataclass(frozen=True, slots=True)
class HfModel:
    """What `load_model` returns; the same names as `engines.llama.model.LlamaModel`.

    Attributes:
        name: of the file or folder.
        build: versions, device and type of numbers: what measured costs are filed under.
        limits: what is off for this model and why, a sentence each; for people.
    """

    name: str
    build: str
    target: HfTarget
    vocabulary: Vocabulary
    template: ChatTemplate
    limits: tuple[str, ...]

    def render(self, messages: Sequence[Message]) -> list[int]:
        """The prompt's token ids; ends where the assistant's answer begins."""
        return self.template.render(messages)


def load_model(
    path: Path, *, device: str = "auto", dtype: str = "auto", context_length: int | None = None
) -> HfModel:
    """Open a GGUF file or a safetensors folder; see `engines.hf.target.load`.

    Raises:
        ModelError: missing, damaged, or not to be run by this engine.
    """
    target = load(path, device=device, dtype=dtype, context_length=context_length)
    vocabulary, template = _of_folder(path) if path.is_dir() else _of_gguf(path)
    return HfModel(
        name=path.stem if path.is_file() else path.name,
        build=f"transformers {transformers.__version__} torch {torch.__version__} {target.place}",
        target=target,
        vocabulary=vocabulary,
        template=template,
        limits=(template.problem,) if template.problem else (),
    )


def _of_gguf(path: Path) -> tuple[Vocabulary, ChatTemplate]:
    weights = Weights(path, gpu_layers=0)
    vocabulary = LlamaVocabulary(weights.vocabulary, weights)
    return vocabulary, ChatTemplate(weights.metadata("tokenizer.chat_template"), vocabulary)


def _of_folder(path: Path) -> tuple[Vocabulary, ChatTemplate]:
    try:
        tokenizer: Any = transformers.AutoTokenizer.from_pretrained(
            path, local_files_only=True, trust_remote_code=False
        )
        settings = transformers.GenerationConfig.from_pretrained(path, local_files_only=True)
    except UNREADABLE as error:
        raise ModelError(f"{path} has no tokenizer that transformers can load: {error}") from error
    ends = settings.eos_token_id
    numbers = ends if isinstance(ends, list) else [ends]
    vocabulary = HfVocabulary(
        tokenizer, frozenset(int(number) for number in numbers if number is not None)
    )
    source = tokenizer.chat_template
    return vocabulary, ChatTemplate(source if isinstance(source, str) else "", vocabulary)

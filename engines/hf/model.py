"""A model loaded through transformers, ready for chats: target, vocabulary and chat template.

Owns the order of loading. A GGUF file's tokenizer and template are read by llama.cpp; a folder has
them in files of its own. Refuses to know how the parts work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers

from datastores.errors import ModelError
from engines.chat_template.prompt_builder import Message
from engines.chat_template.template import ChatTemplate
from engines.hf.target import LOAD_ERRORS, HfTarget, load_target
from engines.hf.vocabulary import HfVocabulary
from engines.llama.context import Weights
from engines.llama.vocabulary import LlamaVocabulary
from engines.target import Vocabulary


@dataclass(frozen=True, slots=True)
class HfModel:
    """What `load` returns; the same names as in `engines.llama.model.LlamaModel`.

    Attributes:
        name: of the file or folder.
        build: versions, device and type of numbers: the key under which measured costs are stored.
        restrictions: what does not work with this model and why, a sentence each, for the user.
    """

    name: str
    build: str
    target: HfTarget
    vocabulary: Vocabulary
    template: ChatTemplate
    restrictions: tuple[str, ...]

    def render(self, messages: Sequence[Message]) -> list[int]:
        """The prompt's token ids, up to where the assistant's answer begins."""
        return self.template.render(messages)


def load(
    path: Path, *, device: str = "auto", dtype: str = "auto", context_length: int | None = None
) -> HfModel:
    """Open a GGUF file or a safetensors folder; see `engines.hf.target.load_target`.

    Raises:
        ModelError: missing, damaged, or of a kind that this engine cannot run.
    """
    target = load_target(path, device=device, dtype=dtype, context_length=context_length)
    vocabulary, template = _from_folder(path) if path.is_dir() else _from_gguf(path)
    versions = f"transformers {transformers.__version__} torch {torch.__version__}"
    return HfModel(
        name=path.stem if path.is_file() else path.name,
        build=f"{versions} {target.device_and_dtype}",
        target=target,
        vocabulary=vocabulary,
        template=template,
        restrictions=(template.problem,) if template.problem else (),
    )


def _from_gguf(path: Path) -> tuple[Vocabulary, ChatTemplate]:
    weights = Weights(path, vocabulary_only=True)
    vocabulary = LlamaVocabulary(weights)
    return vocabulary, ChatTemplate(weights.metadata("tokenizer.chat_template"), vocabulary)


def _from_folder(path: Path) -> tuple[Vocabulary, ChatTemplate]:
    try:
        tokenizer: Any = transformers.AutoTokenizer.from_pretrained(
            path, local_files_only=True, trust_remote_code=False
        )
        settings = transformers.GenerationConfig.from_pretrained(path, local_files_only=True)
    except LOAD_ERRORS as error:
        raise ModelError(f"{path} has no tokenizer that transformers can load: {error}") from error
    eos = settings.eos_token_id
    stops = eos if isinstance(eos, list) else [eos]
    vocabulary = HfVocabulary(tokenizer, frozenset(int(one) for one in stops if one is not None))
    source = tokenizer.chat_template
    return vocabulary, ChatTemplate(source if isinstance(source, str) else "", vocabulary)

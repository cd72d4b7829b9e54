"""The tokenizer of a GGUF file alone: what background work needs, without the weights."""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import Any

from llama_cpp import llama_cpp as lib

from datastores.errors import ModelError
from engines.llama import native
from engines.llama.header import check_header
from engines.llama.vocabulary import LlamaVocabulary


class _Tokenizer:
    """An open file of which only the vocabulary was read."""

    def __init__(self, path: Path) -> None:
        parameters = lib.llama_model_default_params()
        parameters.vocab_only = True
        native.forget_errors()
        self.handle: Any = lib.llama_model_load_from_file(str(path).encode(), parameters)
        if not self.handle:
            raise ModelError(
                f"the tokenizer of {path} cannot be loaded"
                f" ({native.first_error() or 'llama.cpp gives no reason'}): choose another file"
            )
        weakref.finalize(self, lib.llama_model_free, self.handle).atexit = False
        self.vocabulary: Any = lib.llama_model_get_vocab(self.handle)
        if lib.llama_vocab_type(self.vocabulary) == lib.LLAMA_VOCAB_TYPE_NONE:
            raise ModelError(f"{path} holds no tokenizer: choose another file")


def load_vocabulary(path: Path) -> LlamaVocabulary:
    """The vocabulary in a GGUF file; takes a tenth of a second to a second.

    Raises:
        ModelError: missing, damaged, or without a tokenizer.
    """
    check_header(path)
    opened = _Tokenizer(path)
    return LlamaVocabulary(opened.vocabulary, opened)

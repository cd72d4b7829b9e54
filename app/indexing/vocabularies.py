"""The tokenizer of a model file or folder, without its weights."""

from __future__ import annotations

from pathlib import Path

from engines.target import Vocabulary


def open_vocabulary(path: Path) -> Vocabulary:
    """The vocabulary of a GGUF file, through llama.cpp, or of a safetensors folder, through torch.

    Raises:
        ModelError: missing, damaged, or without a tokenizer.
    """
    if path.is_dir():
        from engines.hf.model import load_vocabulary as load_folder_vocabulary

        return load_folder_vocabulary(path)
    from engines.llama.vocabulary import load_vocabulary

    return load_vocabulary(path)

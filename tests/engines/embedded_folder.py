"""The embedded model as a safetensors folder, with a tokenizer and generation settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.engines.conftest import EMBEDDED

if TYPE_CHECKING:
    from engines.hf.target import HfTarget


def write_embedded_folder(path: Path, loaded: HfTarget) -> Path:
    """Write the weights of `loaded`, the embedded model."""
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig

    home, name = EMBEDDED.parent, EMBEDDED.name
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(home, gguf_file=name))
    model.load_state_dict(loaded._model.state_dict())
    model.save_pretrained(path)
    AutoTokenizer.from_pretrained(home, gguf_file=name).save_pretrained(path)
    GenerationConfig(eos_token_id=[0, 2]).save_pretrained(path)
    return path

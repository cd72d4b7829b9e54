"""Loads a model through transformers, ready for chats: target, vocabulary and chat template.

A safetensors folder is tokenized by transformers. A GGUF file's tokenizer and template are read by
llama.cpp (`engines.llama.vocabulary`).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers.convert_slow_tokenizer import bytes_to_unicode

from datastores.errors import InputError, ModelError
from engines.chat_template.prompt_builder import STRIPS_AFTER, STRIPS_BEFORE, Message, Tool
from engines.chat_template.template import ChatTemplate
from engines.fingerprint import digest_of_norm
from engines.hf.layer_states import HfLayerStates
from engines.hf.target import HfTarget, load_target, translate_load_errors
from engines.llama.context import Weights
from engines.llama.vocabulary import LlamaVocabulary
from engines.target import Vocabulary


@dataclass(frozen=True, slots=True)
class HfModel:
    """A loaded model, with the same names as in `engines.llama.model.LlamaModel`.

    Attributes:
        name: name of the file or folder.
        build: versions, device and dtype, the key under which measured costs are stored.
        trained_context: context length, in tokens, that the model was trained for.
    """

    name: str
    build: str
    target: HfTarget
    vocabulary: Vocabulary
    template: ChatTemplate
    trained_context: int
    json_form = call_form = None  # transformers has no grammars

    @property
    def layers(self) -> int:
        """Transformer blocks."""
        return self.target.layers

    @property
    def reads_layers(self) -> bool:
        """Whether `layer_states` can read them."""
        return self.layers > 1

    @property
    def norm_digest(self) -> str:
        """As for a GGUF file, with which it is shared, except for Gemma, of which GGUF files store
        other scales; the fingerprint of a model whose final norm has another name than most."""
        scales = self.target.norm_scales
        return digest_of_norm(scales.tobytes()) if len(scales) else self.target.fingerprint

    def layer_states(self, layers: Sequence[int]) -> HfLayerStates:
        """Reads the states after some of its layers, without the last.

        Raises:
            ModelError: there is no such layer.
        """
        return HfLayerStates(self.target.model, layers)

    def render(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> list[int]:
        """Token ids of the prompt, up to the beginning of the answer."""
        return self.template.render(messages, tools)

    @property
    def restrictions(self) -> tuple[str, ...]:
        """What does not work with this model and why, as sentences for the user."""
        return (self.template.problem,) if self.template.problem else ()


def load(
    path: Path,
    *,
    device: str = "auto",
    dtype: str = "auto",
    context_length: int | None = None,
    threads: int = 0,
) -> HfModel:
    """Open a GGUF file or a safetensors folder; see `engines.hf.target.load_target`.

    Args:
        threads: number of CPU threads; 0 for torch's default.

    Raises:
        ModelError: missing, damaged, or not supported by this engine.
    """
    if threads:
        torch.set_num_threads(threads)
    target = load_target(path, device=device, dtype=dtype, context_length=context_length)
    vocabulary, template = _from_folder(path) if path.is_dir() else _from_gguf(path)
    versions = f"transformers {transformers.__version__} torch {torch.__version__}"
    return HfModel(
        name=path.stem if path.is_file() else path.name,
        build=f"{versions} {target.device_and_dtype}",
        target=target,
        vocabulary=vocabulary,
        template=template,
        trained_context=target.trained_length,
    )


def load_vocabulary(folder: Path) -> Vocabulary:
    """The vocabulary of a safetensors folder, without its weights.

    Raises:
        ModelError: its tokenizer is missing or cannot be loaded.
    """
    return _from_folder(folder)[0]


def _from_gguf(path: Path) -> tuple[Vocabulary, ChatTemplate]:
    weights = Weights(path, vocabulary_only=True)
    vocabulary = LlamaVocabulary(weights)
    return vocabulary, ChatTemplate(weights.metadata("tokenizer.chat_template"), vocabulary)


def _from_folder(path: Path) -> tuple[Vocabulary, ChatTemplate]:
    with translate_load_errors(f"{path} has no tokenizer that transformers can load"):
        tokenizer: Any = transformers.AutoTokenizer.from_pretrained(
            path, local_files_only=True, trust_remote_code=False
        )
        eos = _generation_settings(path).eos_token_id
        stops = eos if isinstance(eos, list) else [eos]
        ends = frozenset(int(one) for one in stops if one is not None)
        vocabulary = HfVocabulary(tokenizer, ends)
    source = tokenizer.chat_template or ""
    if isinstance(source, dict):  # several: for chats, tools, retrieval
        source = source.get("default") or next(iter(source.values()))
    return vocabulary, ChatTemplate(source, vocabulary)


_BYTE = re.compile(r"<0x([0-9A-F]{2})>")
"""SentencePiece's text of a single-byte token."""


class HfVocabulary:
    """Implements `engines.target.Vocabulary`, and what else a `ChatTemplate` needs.

    Args:
        tokenizer: a fast tokenizer of transformers.
        stops: token ids that end an answer, from the model's generation settings.

    Raises:
        ModelError: the tokenizer has no fast form.
    """

    def __init__(self, tokenizer: Any, stops: frozenset[int]) -> None:
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise ModelError(
                f"{tokenizer.name_or_path}: its tokenizer has no fast form; use a GGUF version"
            )
        self._tokenizer = tokenizer
        self._backend = backend
        self._stops = stops
        self._byte_level = '"ByteLevel"' in json.dumps(json.loads(backend.to_str())["decoder"])
        self._bytes = {letter: byte for byte, letter in bytes_to_unicode().items()}

    @property
    def size(self) -> int:
        """Number of token ids."""
        return len(self._tokenizer)

    @cached_property
    def fingerprint(self) -> str:
        """32 hexadecimal digits of a hash over all tokens' texts and the merge rules."""
        return hashlib.sha256(self._backend.to_str().encode()).hexdigest()[:32]

    @cached_property
    def stops(self) -> frozenset[int]:
        """The model's stop tokens and the tokenizer's EOS."""
        return self._stops | ({self.eos} if self.eos >= 0 else frozenset())

    @cached_property
    def control_tokens(self) -> dict[str, int]:
        """Text → id of every token that `encode` produces only with `special`."""
        added = self._tokenizer.added_tokens_decoder.items()
        return {token.content: number for number, token in added if token.special}

    @cached_property
    def prompt_prefix(self) -> tuple[int, ...]:
        """The tokens that begin every prompt: BOS if the tokenizer adds it."""
        ids = self._backend.encode("", add_special_tokens=True).ids
        return (self.bos,) if ids[:1] == [self.bos] else ()

    @property
    def bos(self) -> int:
        """The token that begins a text; -1 if there is none."""
        return _id(self._tokenizer.bos_token_id)

    @property
    def eos(self) -> int:
        """The token that ends a text; -1 if there is none."""
        return _id(self._tokenizer.eos_token_id)

    def text(self, token: int) -> str:
        """See `Vocabulary.text`; empty for no token (-1)."""
        return "" if token < 0 else str(self._tokenizer.convert_ids_to_tokens(token) or "")

    def attributes(self, token: int) -> int:
        """Whether a control token strips whitespace around it, as llama.cpp's attribute bits."""
        added = self._tokenizer.added_tokens_decoder.get(token)
        if added is None:
            return 0
        return STRIPS_BEFORE * bool(added.lstrip) | STRIPS_AFTER * bool(added.rstrip)

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """See `Vocabulary.encode`; lone surrogates become question marks."""
        self._backend.encode_special_tokens = not special
        clean = text.encode("utf-8", "replace").decode()
        ids: list[int] = self._backend.encode(clean, add_special_tokens=False).ids
        return ids

    def piece(self, token: int) -> bytes:
        """See `Vocabulary.piece`.

        Raises:
            InputError: no such token.
        """
        if not 0 <= token < self.size:
            raise InputError(f"token {token} is not in this vocabulary of {self.size}")
        text = self.text(token)
        if text in self.control_tokens:
            return b""
        if self._byte_level:
            return bytes(self._bytes[letter] for letter in text if letter in self._bytes)
        byte = _BYTE.fullmatch(text)
        return bytes([int(byte[1], 16)]) if byte else text.replace("▁", " ").encode()


def _id(token: int | None) -> int:
    return -1 if token is None else int(token)


def _generation_settings(path: Path) -> Any:
    """The model's generation settings, by its configuration if it has no file of them."""
    if (path / transformers.utils.GENERATION_CONFIG_NAME).is_file():
        return transformers.GenerationConfig.from_pretrained(path, local_files_only=True)
    config = transformers.AutoConfig.from_pretrained(path, local_files_only=True)
    return transformers.GenerationConfig.from_model_config(config.get_text_config())

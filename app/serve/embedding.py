"""Embeddings for programs, with the model that searches the imports.

It is loaded with the first request, and runs on a thread of its own, next to the answers.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.config import load_config
from app.locations import Locations
from app.models.selection import choose_embedder
from app.serve.errors import RequestError
from app.serve.schema import EmbeddingRequest
from engines.target import Floats

if TYPE_CHECKING:
    from engines.llama.embedding import EmbeddingModel

NONE = "no embedding model: choose one with `embedding` in the settings"

TOKEN_IDS = (
    "input: token ids are not supported, since clients make them for OpenAI's models: send texts"
    " (in LangChain, check_embedding_ctx_length=False)"
)


class Embeddings:
    """Embeds texts with the embedding model of the settings.

    Attributes:
        name: the model's name; empty if there is none.
    """

    def __init__(self, locations: Locations) -> None:
        self._locations = locations
        self._path = choose_embedder(locations, load_config(locations.settings).embedding)
        self._model: EmbeddingModel | None = None
        self._thread = ThreadPoolExecutor(1, "embeddings")
        self.name = self._path.stem if self._path is not None else ""

    def close(self) -> None:
        """Wait for the texts that are being embedded."""
        self._thread.shutdown(cancel_futures=True)

    async def respond(self, request: EmbeddingRequest) -> dict[str, Any]:
        """The response to `request`, in OpenAI's form.

        Raises:
            RequestError: a text is too long, or the model cannot do what is asked for.
            ModelError: the model cannot be loaded or used.
        """
        path = self._path
        if path is None:
            raise RequestError(NONE, 404, param="model", code="model_not_found")
        given = [request.input] if isinstance(request.input, str) else request.input
        texts = [text for text in given if isinstance(text, str)]
        if len(texts) < len(given):
            raise RequestError(TOKEN_IDS, param="input")
        loop = asyncio.get_running_loop()
        vectors, tokens = await loop.run_in_executor(
            self._thread, self._embed, path, texts, request.dimensions
        )
        encode = _in_base64 if request.encoding_format == "base64" else _as_list
        data = [
            {"object": "embedding", "index": index, "embedding": encode(vector)}
            for index, vector in enumerate(vectors)
        ]
        counts = {"prompt_tokens": tokens, "total_tokens": tokens}
        return {"object": "list", "data": data, "model": self.name, "usage": counts}

    def _embed(self, path: Path, texts: Sequence[str], width: int | None) -> tuple[Floats, int]:
        """The vectors of `texts` and the number of their tokens."""
        from engines.llama.embedding import EmbeddingModel

        if self._model is None:
            self._model = EmbeddingModel(path, probe_cache=self._locations.probes)
        model = self._model
        if width not in (None, model.width):
            raise RequestError(f"dimensions: this model has {model.width}", param="dimensions")
        counts = [model.count(text) for text in texts]
        for index, count in enumerate(counts):
            if count > model.max_tokens:
                raise RequestError(
                    f"input[{index}] has {count} tokens, and {model.max_tokens} fit: shorten it",
                    param="input",
                    code="context_length_exceeded",
                )
        return model.encode(texts), sum(counts)


def _as_list(vector: Floats) -> object:
    return [float(value) for value in vector]


def _in_base64(vector: Floats) -> object:
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()

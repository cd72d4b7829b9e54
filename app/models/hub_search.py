"""Searches Hugging Face's hub by words, and tells what fits this machine.

It selects models that write text, suggests a quantisation, and has suggestions that need no
connection. The interface asks the hub in a child process (`python -m app.models.hub_search`), so
that it never waits for a connection.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from app.models.download import stream
from app.models.gguf_files import quantisation
from app.models.hub import (
    DEFAULT_QUANTISATION,
    RemoteModel,
    hub_errors,
    is_model_name,
    repository_models,
)
from app.models.memory import OTHER_BYTES, MemoryEstimate, estimate
from app.models.speed import MIN_TOKENS_PER_S, active_bytes, estimated_speed
from datastores.errors import InputError, ModelError
from engines.child_process import AsyncChildProcess, emit, run_child
from engines.llama.devices import free_gpu_memory
from engines.llama.gguf import Metadata, read_metadata_from

MAX_FOUND = 20
"""Most repositories that a search returns."""
OVERFETCH = 3
"""Repositories requested for each one returned: some have no model that writes text."""
MAX_SUGGESTED = 3
SEARCH_TIMEOUT_S = 10.0
_WRITES_TEXT = (None, "text-generation", "image-text-to-text", "any-to-any", "text2text-generation")
"""Tasks of repositories that may hold a chat model; many name none."""


@dataclass(frozen=True, slots=True)
class HubRepository:
    """A repository with GGUF models.

    Attributes:
        name: `ORG/REPO`.
        downloads: number in the last 30 days.
        parameters: 0 if unknown.
        gated: whether its terms have to be accepted first.
    """

    name: str
    downloads: int
    parameters: int = 0
    gated: bool = False


@dataclass(frozen=True, slots=True)
class HubOffer:
    """A model that can be downloaded.

    Attributes:
        name: `ORG/REPO:QUANTISATION`.
        size: size of its files in bytes.
        needed: memory in bytes.
        speed: estimated tokens per second on this machine.
    """

    name: str
    size: int
    needed: int
    speed: float

    def fits(self, free: int) -> bool:
        """Whether it fits into `free` bytes of memory."""
        return self.needed <= free

    def usable(self, free: int) -> bool:
        """Whether it fits and is fast enough."""
        return self.fits(free) and self.speed >= MIN_TOKENS_PER_S


def search_hub(words: str) -> list[HubRepository]:
    """Repositories for `words` with GGUF models that write text, the most downloaded first.

    Raises:
        InputError: there are no words.
        ModelError: the hub cannot be reached.
    """
    from huggingface_hub import HfApi, get_session, hf_raise_for_status
    from huggingface_hub.utils._headers import build_hf_headers

    if not words.strip():
        raise InputError("nothing to search for: type part of a model's name")
    # Its hints, such as to log in, would overwrite the screen.
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    query: dict[str, str | int | list[str]] = {
        "search": " ".join(words.split()),
        "filter": "gguf",
        "sort": "downloads",
        "limit": MAX_FOUND * OVERFETCH,
        "expand": ["downloads", "gated", "gguf", "pipeline_tag"],
    }
    with hub_errors("the search"):
        # Without a network, `HfApi.list_models` retries for half a minute.
        response = get_session().get(
            f"{HfApi().endpoint}/api/models",
            params=query,
            headers=build_hf_headers(),
            timeout=SEARCH_TIMEOUT_S,
        )
        hf_raise_for_status(response)
        listed = [
            HubRepository(
                entry["id"],
                _count(entry.get("downloads")),
                _count((entry.get("gguf") or {}).get("total")),
                bool(entry.get("gated")),
            )
            for entry in response.json()
            if is_model_name(entry["id"]) and entry.get("pipeline_tag") in _WRITES_TEXT
        ]
    return sorted(listed, key=lambda one: -one.downloads)[:MAX_FOUND]


def offers(repository: str, context: int) -> list[HubOffer]:
    """The models of a repository, with the memory each takes with a context of `context` tokens.

    They differ only in quantisation, so one header, a few megabytes, is read for all.

    Raises:
        ModelError: the hub cannot be reached, or has no GGUF model there.
    """
    models = repository_models(repository)
    if not models:
        raise ModelError(
            f"{repository} holds no GGUF model: look for a repository with GGUF in its name"
        )
    header = _remote_header(min(models, key=lambda model: model.size))
    cards = free_gpu_memory()
    return [_offer(model, header, context, cards) for model in models]


def suggested(offered: Sequence[HubOffer], free: int) -> HubOffer | None:
    """The model to download with `free` bytes of memory; None if none is usable.

    It is the largest usable one up to the default quantisation: beyond that, quality hardly
    improves, while every token takes longer.
    """
    default = [one.size for one in offered if quantisation(one.name) == DEFAULT_QUANTISATION]
    small = [one for one in offered if not default or one.size <= max(default)]
    usable = [one for one in small if one.usable(free)]
    return max(usable, key=lambda one: one.size, default=None)


def ranked(offered: Sequence[HubOffer], free: int) -> list[HubOffer]:
    """The suggested model, then those that fit, largest first, then the others, smallest first."""
    best = suggested(offered, free)

    def rank(offer: HubOffer) -> tuple[bool, bool, int]:
        fits = offer.fits(free)
        return offer != best, not fits, -offer.size if fits else offer.size

    return sorted(offered, key=rank)


_KNOWN = (
    ("bartowski/Llama-3.2-1B-Instruct-GGUF", 0.81, 16 * 512),
    ("bartowski/Llama-3.2-3B-Instruct-GGUF", 2.02, 28 * 1024),
    ("Qwen/Qwen3-4B-GGUF", 2.50, 36 * 1024),
    ("Qwen/Qwen3-8B-GGUF", 5.03, 36 * 1024),
    ("Qwen/Qwen3-14B-GGUF", 9.00, 40 * 1024),
    ("Qwen/Qwen3-32B-GGUF", 19.76, 64 * 1024),
    ("bartowski/Llama-3.3-70B-Instruct-GGUF", 42.52, 80 * 1024),
)
"""Well-known models by size: GB of the Q4_K_M file, and layers times width of the keys."""


def known_offers(context: int, free: int) -> list[HubOffer]:
    """Well-known models that are usable with `free` bytes of memory, largest first, else the
    smallest that fits. Needs no connection."""
    known, cards = [], free_gpu_memory()
    for name, gigabytes, keys in _KNOWN:
        size = int(gigabytes * 1e9)
        # Keys and values, of two bytes each.
        need = MemoryEstimate(size, OTHER_BYTES + size // 20, 2 * 2 * keys)
        needed = need.total(context)
        speed = estimated_speed(size, needed, cards)
        known.append(HubOffer(f"{name}:{DEFAULT_QUANTISATION}", size, needed, speed))
    fitting = [one for one in reversed(known) if one.fits(free)]
    return [one for one in fitting if one.usable(free)][:MAX_SUGGESTED] or fitting[-1:]


def _offer(model: RemoteModel, header: Metadata | None, context: int, cards: int) -> HubOffer:
    active = size = model.size
    if header is None:
        needed = MemoryEstimate(size, OTHER_BYTES + size // 5, 0).total(0)
    else:
        length = min(context, header.number("context_length", context))
        needed, active = estimate(header, size).total(length), active_bytes(header, size)
    return HubOffer(model.name, size, needed, estimated_speed(active, needed, cards))


class _RemoteBytes:
    """The beginning of a file on the hub, transferred as it is read."""

    def __init__(self, pieces: Iterator[tuple[bytes, int]]) -> None:
        self._pieces = pieces

    def read(self, _size: int, /) -> bytes:
        return next(self._pieces, (b"", 0))[0]


def _remote_header(model: RemoteModel) -> Metadata | None:
    """The header of a model on the hub; None if it is invalid, which downloading will report.

    Raises:
        ModelError: the hub cannot be reached.
    """
    with hub_errors(model.repository), closing(stream(model, model.files[0], 0)) as pieces:
        try:
            return read_metadata_from(_RemoteBytes(pieces), Path(model.files[0].path))
        except ModelError:
            return None


def _count(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0


async def search_in_child(words: str) -> list[HubRepository]:
    """`search_hub` in a child process, which is killed if this is cancelled."""
    return [HubRepository(**one) async for one in _ask("search", words)]


async def offers_in_child(repository: str, context: int) -> list[HubOffer]:
    """`offers` in a child process, which is killed if this is cancelled."""
    return [HubOffer(**one) async for one in _ask("offers", repository, context)]


async def _ask(*arguments: object) -> AsyncGenerator[dict[str, Any]]:
    async with AsyncChildProcess("app.models.hub_search", *arguments) as child:
        answered = False
        async for message in child:
            answered = True
            for one in message:
                yield one
        if not answered:
            raise ModelError(
                f"searching Hugging Face failed (exit code {await child.code()}): try again"
            )


def answer(arguments: Sequence[str]) -> None:
    """In the child: emit the answer to `search WORDS` or `offers REPOSITORY CONTEXT`."""
    what, asked, *context = arguments
    found = search_hub(asked) if what == "search" else offers(asked, int(context[0]))
    emit([asdict(one) for one in found])


if __name__ == "__main__":
    run_child(answer)

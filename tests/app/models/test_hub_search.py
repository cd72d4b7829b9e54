"""Searching the hub: what is found, what fits this machine, and what is offered without the hub."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from app.cli.main import run
from app.models import hub_search, speed
from app.models.hub_search import (
    MAX_SUGGESTED,
    HubOffer,
    HubRepository,
    known_offers,
    offers,
    offers_in_child,
    ranked,
    search_hub,
    search_in_child,
    suggested,
)
from app.models.memory import memory_estimate
from app.models.speed import MIN_TOKENS_PER_S, active_bytes
from datastores.errors import InputError, ModelError
from engines.llama.gguf import Metadata, Value
from tests.app.models.gguf_files import write_gguf
from tests.app.models.hub import REPOSITORY, Hub

CONTEXT = 4096
LISTED = [
    {"id": "org/small-GGUF", "downloads": 5, "gguf": {"total": 10**9}, "gated": False},
    {"id": "org/large-GGUF", "downloads": 900, "gguf": {"total": "many"}, "gated": "manual"},
    {"id": "org/speaks-GGUF", "downloads": 9000, "pipeline_tag": "text-to-speech"},
    {"id": "org/ev\x1b[2Jil-GGUF", "downloads": 9000},
]
FOUND = [
    HubRepository("org/large-GGUF", 900, gated=True),
    HubRepository("org/small-GGUF", 5, 10**9),
]
FEW, MANY = 3_250_000_000, 10**12


def offer(tag: str, size: int, speed: float = 20.0) -> HubOffer:
    return HubOffer(f"org/repo:{tag}", size, 2 * size, speed)


@pytest.fixture
def real(hub: Hub, tmp_path: Path) -> Path:
    """A repository on the hub whose file has a header; the same file here."""
    path = write_gguf(tmp_path / "real-Q4_K_M.gguf")
    hub.files["org/real-GGUF/real-Q4_K_M.gguf"] = path.read_bytes()
    hub.files["org/real-GGUF/real-Q8_0.gguf"] = path.read_bytes() + bytes(10**6)
    return path


def test_words_find_what_writes_text_the_most_downloaded_first(hub: Hub) -> None:
    hub.listed = LISTED
    assert search_hub("  qwen   coder ") == FOUND
    asked = parse_qs(urlsplit(hub.requests[-1][1]).query)
    assert (asked["search"], asked["filter"], asked["sort"]) == (
        ["qwen coder"],
        ["gguf"],
        ["downloads"],
    )
    with pytest.raises(InputError, match="nothing to search"):
        search_hub(" ")


def test_memory_is_estimated_from_the_header_as_for_a_model_on_this_machine(
    hub: Hub, real: Path
) -> None:
    four, eight = sorted(offers("org/real-GGUF", CONTEXT), key=lambda one: one.size)
    need, context = memory_estimate(real, CONTEXT)
    assert (four.name, four.needed) == ("org/real-GGUF:Q4_K_M", need.total(context))
    assert (eight.size, eight.needed) == (four.size + 10**6, four.needed + 10**6)
    assert len(hub.fetches()) == 1, "one header for all"


@pytest.mark.usefixtures("hub")
def test_a_header_that_cannot_be_read_leaves_the_size() -> None:
    for one in offers(REPOSITORY, CONTEXT):
        assert one.size < one.needed
    with pytest.raises(ModelError, match="holds no GGUF model"):
        offers("org/weights", CONTEXT)


def test_the_largest_that_fits_is_suggested_up_to_the_default() -> None:
    two, four, eight = offer("Q2_K", 1), offer("Q4_K_M", 2), offer("Q8_0", 4)
    assert suggested([eight, four, two], 100) == four
    assert ranked([two, eight, four], 100) == [four, eight, two]
    assert ranked([eight, four, two], 3) == [two, four, eight]
    assert suggested([eight], 100) == eight
    assert suggested([eight], 3) is None


def test_what_is_too_slow_is_not_suggested() -> None:
    two, four = offer("Q2_K", 1, MIN_TOKENS_PER_S), offer("Q4_K_M", 2, MIN_TOKENS_PER_S - 0.1)
    assert suggested([two, four], 100) == two
    assert suggested([four], 100) is None


@pytest.mark.parametrize(
    ("cores", "cards", "best"),
    [(1, 0, "1B"), (2, 0, "4B"), (4, 0, "8B"), (64, 0, "14B"), (2, 24 * 10**9, "32B")],
)
def test_well_known_models_suit_the_cores_and_the_cards(
    monkeypatch: pytest.MonkeyPatch, cores: int, cards: int, best: str
) -> None:
    monkeypatch.setattr(speed, "default_threads", lambda: cores)
    monkeypatch.setattr(hub_search, "free_gpu_memory", lambda: cards)
    assert best in known_offers(CONTEXT, MANY)[0].name


def test_a_machine_too_slow_for_all_gets_the_smallest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "CORE_BYTES_PER_S", 1e6)
    (only,) = known_offers(CONTEXT, MANY)
    assert "1B" in only.name
    assert suggested([only], MANY) is None


def test_of_experts_only_those_in_use_take_time() -> None:
    header: dict[str, Value] = {
        "general.architecture": "qwen3moe",
        "qwen3moe.embedding_length": 2048,
        "qwen3moe.block_count": 48,
        "qwen3moe.expert_feed_forward_length": 768,
        "qwen3moe.expert_count": 128,
        "qwen3moe.expert_used_count": 8,
        "qwen3moe.vocab_size": 151_936,
    }
    size = 18_600_000_000
    active = active_bytes(Metadata(header, {}), size)
    assert active / size == pytest.approx(3.3 / 30.5, rel=0.1), "30.5 billion, 3.3 at work"
    del header["qwen3moe.expert_count"]
    assert active_bytes(Metadata(header, {}), size) == size


def test_well_known_models_that_fit_need_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "default_threads", lambda: 8)
    assert known_offers(CONTEXT, 10**8) == []
    few, many = known_offers(CONTEXT, FEW), known_offers(CONTEXT, MANY)
    assert [one.name for one in few] == [
        "bartowski/Llama-3.2-3B-Instruct-GGUF:Q4_K_M",
        "bartowski/Llama-3.2-1B-Instruct-GGUF:Q4_K_M",
    ]
    assert len(many) == MAX_SUGGESTED
    assert all(one.fits(FEW) for one in few)
    assert many[0].size > many[1].size


async def test_the_interface_asks_in_a_process_of_its_own(hub: Hub, real: Path) -> None:
    hub.listed = LISTED
    assert await search_in_child("qwen") == FOUND
    assert await offers_in_child("org/real-GGUF", CONTEXT) == offers("org/real-GGUF", CONTEXT)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine with little memory and two cores, and nothing piped in."""
    monkeypatch.setattr("app.cli.models.available_memory", lambda: FEW)
    monkeypatch.setattr(speed, "default_threads", lambda: 2)
    monkeypatch.setattr("sys.stdin", None)
    monkeypatch.setenv("SPECCHAT_DATA_DIR", str(tmp_path / "data"))


@pytest.mark.usefixtures("machine", "real")
def test_the_command_lists_repositories_and_what_one_offers(
    hub: Hub, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.listed = LISTED
    assert run(["models", "search", "qwen", "coder"]) == 0
    title, first, second = capsys.readouterr().out.splitlines()
    assert title.split() == ["name", "parameters", "downloads"]
    assert first.split() == ["org/large-GGUF", "900", "accept", "its", "terms", "first"]
    assert second.split() == ["org/small-GGUF", "1.0", "B", "5"]
    assert run(["models", "search", "org/real-GGUF"]) == 0
    printed = capsys.readouterr()
    assert [line.split()[:2] for line in printed.out.splitlines()[1:]] == [
        ["*", "org/real-GGUF:Q4_K_M"],
        ["org/real-GGUF:Q8_0", "1"],
    ]
    assert "specchat models pull org/real-GGUF:Q4_K_M" in printed.err
    assert run(["models", "search", "--json", "qwen"]) == 0
    assert len(json.loads(capsys.readouterr().out)["repositories"]) == 2
    hub.listed = []
    assert run(["models", "search", "qwen"]) == 1
    assert "no match on Hugging Face" in capsys.readouterr().err


@pytest.mark.usefixtures("machine")
def test_without_the_hub_suggestions_remain(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    assert run(["models", "search", "qwen"]) == 1
    suggestions, error = capsys.readouterr().err.splitlines()
    assert suggestions.startswith("fitting this machine: bartowski/Llama-3.2-3B-Instruct-GGUF")
    assert error.startswith("specchat: cannot reach http://127.0.0.1:9")
    assert run(["models", "search"]) == 0
    assert "* bartowski/Llama-3.2-3B-Instruct-GGUF:Q4_K_M  2.0 GB" in capsys.readouterr().out
    assert hub.requests == []

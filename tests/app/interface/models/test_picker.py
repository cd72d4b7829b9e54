"""The model picker: what it lists, and what Enter does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event as Flag

import pytest
from textual.pilot import Pilot
from textual.widgets import Input, OptionList, Static

from app.interface.models import hub_pages
from app.interface.models import picker as picker_module
from app.interface.models.hub_pages import ASKING, NOTHING_FOUND, OFFERED
from app.interface.models.picker import LOOKING, SMALL
from app.interface.screen import ChatScreen
from app.locations import Locations, ModelFolders
from app.models import speed
from app.models.description import FoundModel
from app.models.discovery import BUILT_IN, embedded
from app.models.download import ModelDownload
from app.models.hub_search import MAX_SUGGESTED, HubOffer, HubRepository
from app.models.selection import Catalogue, ListedModel
from datastores.errors import InputError, ModelError
from tests.app.interface.conftest import SIZES, Compare, Make, Stage, notices, ready, until
from tests.app.interface.models.picking import download_task, lines, open_picker, picker, type_name
from tests.app.models.gguf_files import write_gguf
from tests.app.models.hub import REPOSITORY, WANTED, Hub
from tests.waiting import TIMEOUT_S

ROOM = 17 * 10**9


def model(name: str, place: str, size: float, parameters: float, **fields: str) -> FoundModel:
    return FoundModel(
        name,
        place,
        Path(name),
        int(size),
        parameters=int(parameters),
        context_length=32768,
        **fields,
    )


HELPER = ListedModel(
    FoundModel(BUILT_IN, "specchat", embedded(), 14 * 10**6, "F16", "llama", 7 * 10**6, 2048),
    in_use=True,
)
LISTED = (
    HELPER,
    ListedModel(
        model("org/small-GGUF:Q4_K_M", "Hugging Face", 1.9e9, 3.2e9, quantisation="Q4_K_M"),
        needed=3 * 10**9,
    ),
    ListedModel(
        model("qwen:14b", "Ollama", 8.9e9, 14.8e9, quantisation="Q4_K_M"), needed=12 * 10**9
    ),
    ListedModel(
        model(
            "publisher/a-model-with-a-very-long-name-that-goes-on-GGUF:UD-Q6_K_XL",
            "LM Studio",
            57.9e9,
            70.6e9,
            quantisation="UD-Q6_K_XL",
        ),
        needed=61 * 10**9,
    ),
    ListedModel(
        model("org/eye:F16", "LM Studio", 8e8, 4e8, problem="an image projector, not a model")
    ),
)


@pytest.fixture
def shelf(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Sets the models that are found, on a machine with eight cores."""
    monkeypatch.setattr(speed, "default_threads", lambda: 8)

    def found(*listed: ListedModel) -> None:
        monkeypatch.setattr(
            picker_module, "catalogue", lambda *places: iter([Catalogue(listed, ROOM)])
        )

    return found


def note(made: Stage) -> str:
    """The note below the list."""
    return str(picker(made).query_one(Static).content)


async def test_the_hub_is_searched_and_the_best_that_fits_is_downloaded(
    stage: Make, shelf: Callable[..., None], hub: Hub, tmp_path: Path
) -> None:
    shelf(HELPER)
    real = write_gguf(tmp_path / "real-Q4_K_M.gguf").read_bytes()
    hub.files = {
        "org/real-GGUF/real-Q4_K_M.gguf": real,
        "org/real-GGUF/real-Q8_0.gguf": real + bytes(1000),
    }
    hub.listed = [{"id": "org/real-GGUF", "downloads": 1234, "gguf": {"total": 10**9}}]
    made = stage()
    async with made.app.run_test(size=(100, 40)) as pilot:
        await open_picker(pilot, made)
        await pilot.press(*"real [/x]")
        assert lines(made) == ["Search Hugging Face for real [/x]"]
        assert hub.requests == [], "nothing is sent while it is typed"
        await pilot.press("enter")
        await until(pilot, lambda: lines(made) == ["org/real-GGUF 1,234 downloads"])
        await pilot.press("enter")
        await until(pilot, lambda: note(made) == OFFERED)
        assert lines(made) == ["org/real-GGUF:Q4_K_M suggested", "org/real-GGUF:Q8_0"]
        await pilot.press("escape")
        assert lines(made) == ["org/real-GGUF 1,234 downloads"]
        await pilot.press("enter")
        await until(pilot, lambda: note(made) == OFFERED)
        await pilot.press("enter")
        await until(pilot, lambda: download_task(made).fetch.path)  # type: ignore[union-attr]
        assert picker(made).query_one(Input).value == ""
    assert download_task(made).fetch.path.read_bytes() == real  # type: ignore[union-attr]


async def test_without_the_hub_one_line_says_so_and_suggestions_remain(
    stage: Make, shelf: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def offline(words: str) -> list[HubRepository]:
        raise ModelError("cannot reach the hub: check\x1b[2J the connection")

    shelf(*LISTED)
    monkeypatch.setattr(hub_pages, "search_in_child", offline)
    made = stage()
    async with made.app.run_test(size=(100, 40)) as pilot:
        await open_picker(pilot, made)
        await pilot.press(*"words", "enter")
        await until(pilot, lambda: note(made).startswith("cannot reach the hub"))
        assert "\x1b" not in note(made)
        assert lines(made)[0] == "Qwen/Qwen3-14B-GGUF:Q4_K_M suggested"
        assert notices(made) == []
        await pilot.press("escape")
        assert lines(made) == ["Search Hugging Face for words"]
        await pilot.press("escape")
        assert isinstance(made.app.screen, ChatScreen)


async def test_typing_leaves_an_answer_of_the_hub_that_still_comes(
    stage: Make, shelf: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = asyncio.Event()

    async def slow(words: str) -> list[HubRepository]:
        await answers.wait()
        return []

    shelf(*LISTED)
    monkeypatch.setattr(hub_pages, "search_in_child", slow)
    made = stage()
    async with made.app.run_test(size=(100, 40)) as pilot:
        await open_picker(pilot, made)
        await pilot.press(*"words", "enter")
        assert (lines(made), note(made)) == ([], ASKING)
        await pilot.press("x")
        answers.set()
        await pilot.pause()
        assert lines(made) == ["Search Hugging Face for wordsx"]
        await pilot.press("enter")
        await until(pilot, lambda: note(made) == NOTHING_FOUND)


async def test_what_is_on_the_machine_is_listed_and_filtered(
    stage: Make, others: ModelFolders
) -> None:
    for name in ("one", "two"):
        write_gguf(others.lm_studio[0] / "org" / name / f"{name}-Q8_0.gguf")
    made = stage()
    async with made.app.run_test(size=(100, 40)) as pilot:
        await open_picker(pilot, made)
        assert lines(made)[:3] == ["built-in open", "org/one:Q8_0", "org/two:Q8_0"]
        await pilot.press(*"q8 tw")
        assert lines(made) == ["org/two:Q8_0", "Search Hugging Face for q8 tw"]
        await pilot.press(*"xyz")
        assert lines(made) == ["Search Hugging Face for q8 twxyz"]
        assert note(made) == ""
        await pilot.press("escape")
        assert isinstance(made.app.screen, ChatScreen)
    assert made.opened == [None]


async def test_the_picker_is_usable_while_it_searches(
    stage: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Flag()

    def slow(locations: Locations, in_use: Path) -> Iterator[Catalogue]:
        yield Catalogue(LISTED[:1], ROOM, whole=False)
        gate.wait(TIMEOUT_S)
        yield Catalogue(LISTED, ROOM)

    monkeypatch.setattr(picker_module, "catalogue", slow)
    made = stage()
    async with made.app.run_test() as pilot:
        await ready(pilot, made)
        await pilot.press("f5")
        await until(pilot, lambda: lines(made) == ["built-in open"])
        await pilot.press(*"eye")
        assert str(picker(made).query_one(Static).content) == LOOKING
        gate.set()
        await until(pilot, lambda: not picker(made)._searching)
        assert lines(made) == ["org/eye:F16 cannot be used", "Search Hugging Face for eye"]


async def test_a_machine_without_models_explains_how_to_fetch_one(stage: Make) -> None:
    made = stage()
    async with made.app.run_test() as pilot:
        await open_picker(pilot, made)
        first, *suggestions = lines(made)
        assert first == "built-in open"
        assert 0 < len(suggestions) <= MAX_SUGGESTED
        assert suggestions[0].endswith(":Q4_K_M suggested")
        assert note(made) == SMALL


async def test_suggestions_are_listed_while_all_models_here_are_smaller(
    stage: Make, shelf: Callable[..., None]
) -> None:
    shelf(HELPER, ListedModel(model("tiny", "Python package", 9e7, 1.3e8)), LISTED[-1])
    made = stage()
    async with made.app.run_test(size=(120, 40)) as pilot:
        await open_picker(pilot, made)
        assert [line for line in lines(made) if line.endswith("suggested")]
        assert note(made) == SMALL


async def test_what_does_not_fit_says_why(stage: Make, shelf: Callable[..., None]) -> None:
    shelf(*LISTED)
    made = stage()
    async with made.app.run_test(size=(120, 40)) as pilot:
        await open_picker(pilot, made)
        row = picker(made).query_one(OptionList).get_option_at_index(3).prompt
        assert "does not fit\nneeds 61.0 GB of memory, 17.0 GB free" in str(row)


async def test_enter_on_what_cannot_be_used_does_nothing(
    stage: Make, shelf: Callable[..., None]
) -> None:
    shelf(*LISTED)
    made = stage()
    async with made.app.run_test() as pilot:
        await open_picker(pilot, made)
        await pilot.press("up", "enter")
        assert lines(made)[-1] == "org/eye:F16 cannot be used"
        assert "Enter" not in str(picker(made).query_one("Vertical").border_subtitle)
        await pilot.press("down", "enter")
        await until(pilot, lambda: isinstance(made.app.screen, ChatScreen))
    assert made.opened == [None], "the one that is open is not loaded again"


async def test_invalid_settings_are_reported(stage: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(locations: Locations, in_use: Path) -> Iterator[Catalogue]:
        raise InputError("config.toml: unknown setting 'x'")

    monkeypatch.setattr(picker_module, "catalogue", fails)
    made = stage()
    async with made.app.run_test() as pilot:
        await ready(pilot, made)
        await pilot.press("f5")
        await until(pilot, lambda: made.app._notifications)
        assert [notice.message for notice in made.app._notifications] == [
            "config.toml: unknown setting 'x'"
        ]


async def test_enter_does_not_stop_a_download_by_mistake(
    stage: Make, shelf: Callable[..., None]
) -> None:
    shelf(*LISTED)
    made = stage()
    download_task(made).fetch = download(running=True)
    async with made.app.run_test() as pilot:
        await open_picker(pilot, made)
        assert lines(made)[0] == f"{WANTED} downloading at 41%"
        assert picker(made).listed.chosen == HELPER


def opened(made: Stage, typed: str = "") -> Callable[[Pilot[None]], object]:
    """Opens the picker, before the snapshot."""

    async def act(pilot: Pilot[None]) -> None:
        await open_picker(pilot, made)
        if typed:
            await type_name(pilot, made, typed)

    return act


def download(**fields: object) -> ModelDownload:
    fetch = ModelDownload(REPOSITORY, WANTED, done=1_200_000_000, total=2_900_000_000)
    for name, value in fields.items():
        setattr(fetch, name, value)
    return fetch


@pytest.mark.parametrize("size", SIZES)
def test_the_list(
    stage: Make, shelf: Callable[..., None], snap_compare: Compare, size: tuple[int, int]
) -> None:
    shelf(*LISTED)
    made = stage()
    assert snap_compare(made.app, terminal_size=size, run_before=opened(made))


@pytest.mark.parametrize("size", SIZES)
def test_nothing_but_the_embedded_model(
    stage: Make, shelf: Callable[..., None], snap_compare: Compare, size: tuple[int, int]
) -> None:
    shelf(HELPER)
    made = stage()
    assert snap_compare(made.app, terminal_size=size, run_before=opened(made))


@pytest.mark.parametrize("size", [(80, 24), (120, 35), (40, 12)])
def test_what_a_repository_offers(
    stage: Make,
    shelf: Callable[..., None],
    snap_compare: Compare,
    monkeypatch: pytest.MonkeyPatch,
    size: tuple[int, int],
) -> None:
    async def find(words: str) -> list[HubRepository]:
        return [HubRepository("publisher/a-model-with-a-long-name-GGUF", 123_456, 8 * 10**9)]

    async def offered(repository: str, context: int) -> list[HubOffer]:
        sizes = {"Q2_K": 3.2e9, "Q4_K_M": 4.9e9, "Q8_0": 8.5e9, "F16": 16.1e9}
        return [
            HubOffer(f"{repository}:{tag}", int(size), int(size + 1.5e9), 20e9 / size)
            for tag, size in sizes.items()
        ]

    shelf(*LISTED)
    monkeypatch.setattr(hub_pages, "search_in_child", find)
    monkeypatch.setattr(hub_pages, "offers_in_child", offered)
    made = stage()

    async def act(pilot: Pilot[None]) -> None:
        await open_picker(pilot, made)
        await pilot.press(*"qwen coder", "enter")
        await until(pilot, lambda: "downloads" in lines(made)[0])
        await pilot.press("enter")
        await until(pilot, lambda: note(made) == OFFERED)

    assert snap_compare(made.app, terminal_size=size, run_before=act)


@pytest.mark.parametrize("size", SIZES)
def test_naming_one_to_fetch(
    stage: Make, shelf: Callable[..., None], snap_compare: Compare, size: tuple[int, int]
) -> None:
    shelf(*LISTED)
    made = stage()
    assert snap_compare(made.app, terminal_size=size, run_before=opened(made, "org/small-GGUF"))


@pytest.mark.parametrize("size", SIZES)
def test_pulling(
    stage: Make, shelf: Callable[..., None], snap_compare: Compare, size: tuple[int, int]
) -> None:
    shelf(*LISTED)
    made = stage()
    fetch = download(running=True)
    fetch.update({"done": 1_150_000_000}, 0.0)
    fetch.update({"done": 1_200_000_000}, 4.0)
    download_task(made).fetch = fetch
    assert snap_compare(made.app, terminal_size=size, run_before=opened(made))


@pytest.mark.parametrize("size", SIZES)
def test_a_pull_that_failed(
    stage: Make, shelf: Callable[..., None], snap_compare: Compare, size: tuple[int, int]
) -> None:
    shelf(*LISTED)
    made = stage()
    download_task(made).fetch = download(
        failure="the connection was lost after 1.20 of 2.90 GB (timed out): pull it again to go on"
        " from there"
    )
    assert snap_compare(made.app, terminal_size=size, run_before=opened(made))

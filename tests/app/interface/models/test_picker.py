"""The model picker: what it lists, and what Enter does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event as Flag

import pytest
from textual.pilot import Pilot
from textual.widgets import OptionList, Static

from app.interface.models import picker as picker_module
from app.interface.models.picker import ALONE, LOOKING, NOTHING
from app.interface.screen import ChatScreen
from app.locations import Locations, ModelFolders
from app.models.description import FoundModel
from app.models.discovery import EMBEDDED, embedded
from app.models.download import ModelDownload
from app.models.selection import Catalogue, ListedModel
from datastores.errors import InputError
from tests.app.interface.conftest import SIZES, Compare, Stage, ready, until
from tests.app.interface.models.picking import download_task, lines, open_picker, picker, type_name
from tests.app.models.gguf_files import write_gguf
from tests.app.models.hub import REPOSITORY, WANTED

Make = Callable[..., Stage]

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
    FoundModel(EMBEDDED, "specchat", embedded(), 14 * 10**6, "F16", "llama", 7 * 10**6, 2048),
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
    """Sets which models are found."""

    def found(*listed: ListedModel) -> None:
        monkeypatch.setattr(
            picker_module, "catalogue", lambda *places: iter([Catalogue(listed, ROOM)])
        )

    return found


async def test_what_is_on_the_machine_is_listed_and_filtered(
    stage: Make, others: ModelFolders
) -> None:
    for name in ("one", "two"):
        write_gguf(others.lm_studio[0] / "org" / name / f"{name}-Q8_0.gguf")
    made = stage()
    async with made.app.run_test(size=(100, 40)) as pilot:
        await open_picker(pilot, made)
        assert lines(made) == ["embedded open", "org/one:Q8_0", "org/two:Q8_0"]
        await pilot.press(*"q8 tw")
        assert lines(made) == ["org/two:Q8_0"]
        await pilot.press(*"xyz")
        assert lines(made) == []
        assert str(picker(made).query_one(Static).content) == NOTHING
        await pilot.press("enter", "escape")
        assert isinstance(made.app.screen, ChatScreen)
    assert made.opened == [None]


async def test_the_picker_is_usable_while_it_searches(
    stage: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Flag()

    def slow(locations: Locations, in_use: Path) -> Iterator[Catalogue]:
        yield Catalogue(LISTED[:1], ROOM, whole=False)
        gate.wait(30)
        yield Catalogue(LISTED, ROOM)

    monkeypatch.setattr(picker_module, "catalogue", slow)
    made = stage()
    async with made.app.run_test() as pilot:
        await ready(pilot, made)
        await pilot.press("f5")
        await until(pilot, lambda: lines(made) == ["embedded open"])
        await pilot.press(*"eye")
        assert str(picker(made).query_one(Static).content) == LOOKING
        gate.set()
        await until(pilot, lambda: not picker(made)._searching)
        assert lines(made) == ["org/eye:F16 cannot be used"]


async def test_a_machine_without_models_explains_how_to_fetch_one(stage: Make) -> None:
    made = stage()
    async with made.app.run_test() as pilot:
        await open_picker(pilot, made)
        assert lines(made) == ["embedded open"]
        assert str(picker(made).query_one(Static).content) == ALONE


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

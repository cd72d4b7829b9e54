"""Downloads from the picker are stopped, resumed, fail, and end when the program quits."""

from __future__ import annotations

from textual.widgets import OptionList

from app.locations import model_folders
from tests.app.interface.conftest import Make, until
from tests.app.interface.models.picking import download_task, lines, open_picker, picker, type_name
from tests.app.models.hub import CONTENT, FORTY_PERCENT, REPOSITORY, WANTED, Hub, partial_of


async def test_a_download_is_stopped_at_40_percent_resumed_and_opened(
    stage: Make, hub: Hub
) -> None:
    hub.stall_at = FORTY_PERCENT
    made = stage()
    async with made.app.run_test(size=(100, 30)) as pilot:
        await open_picker(pilot, made)
        await type_name(pilot, made, REPOSITORY)
        assert lines(made) == [f"Download {REPOSITORY} from Hugging Face"]
        await pilot.press("enter")
        await until(pilot, lambda: lines(made)[0] == f"{WANTED} downloading at 40%")
        await pilot.press("enter")
        await until(pilot, lambda: lines(made)[0] == f"{WANTED} stopped at 40%")
        hub.stall_at = None
        hub.go_on.set()
        await pilot.press("enter")
        await until(pilot, lambda: lines(made)[0] == "built-in open")
        await until(pilot, lambda: picker(made).listed.chosen != picker(made).listed.rows[0])
        assert picker(made).listed.chosen is not None
    fetch = download_task(made).fetch
    assert fetch is not None
    assert fetch.path is not None
    assert fetch.path.read_bytes() == CONTENT
    assert hub.fetches() == ["bytes=0-", f"bytes={FORTY_PERCENT}-"]


async def test_a_download_continues_while_the_picker_is_closed(stage: Make, hub: Hub) -> None:
    hub.stall_at = FORTY_PERCENT
    made = stage()
    async with made.app.run_test() as pilot:
        await open_picker(pilot, made)
        await type_name(pilot, made, WANTED)
        await pilot.press("enter", "escape")
        await until(pilot, hub.stalled.is_set)
        hub.go_on.set()
        await until(pilot, lambda: made.app._notifications)
        assert [notice.message for notice in made.app._notifications] == [
            f"{WANTED} is downloaded. Press F5 to open it."
        ]
        await open_picker(pilot, made)
        assert lines(made)[0] == "built-in open"


async def test_quitting_stops_the_download_and_keeps_the_part(stage: Make, hub: Hub) -> None:
    hub.stall_at = FORTY_PERCENT
    made = stage()
    async with made.app.run_test() as pilot:
        await open_picker(pilot, made)
        await type_name(pilot, made, WANTED)
        await pilot.press("enter")
        begun = partial_of(model_folders().hugging_face)
        await until(pilot, lambda: begun.exists() and begun.stat().st_size == FORTY_PERCENT)
    fetch = download_task(made).fetch
    assert fetch is not None
    assert not fetch.running
    assert begun.read_bytes() == CONTENT[:FORTY_PERCENT]


async def test_a_failure_is_shown_in_its_row_and_enter_retries(stage: Make, hub: Hub) -> None:
    hub.spoil = True
    made = stage()
    async with made.app.run_test(size=(120, 30)) as pilot:
        await open_picker(pilot, made)
        await type_name(pilot, made, WANTED)
        await pilot.press("enter")
        await until(pilot, lambda: lines(made)[0] == f"{WANTED} failed at 100%")
        row = picker(made).query_one(OptionList).get_option_at_index(0).prompt
        assert "has the wrong checksum: download it again" in str(row)
        hub.spoil = False
        await pilot.press("enter")
        await until(pilot, lambda: lines(made)[0] == "built-in open")
    fetch = download_task(made).fetch
    assert fetch is not None
    assert fetch.path is not None


async def test_another_download_replaces_the_current_one(stage: Make, hub: Hub) -> None:
    hub.stall_at = FORTY_PERCENT
    made = stage()
    async with made.app.run_test(size=(100, 30)) as pilot:
        await open_picker(pilot, made)
        await type_name(pilot, made, WANTED)
        await pilot.press("enter")
        begun = partial_of(model_folders().hugging_face)
        await until(pilot, lambda: begun.exists() and begun.stat().st_size == FORTY_PERCENT)
        await type_name(pilot, made, "org/single")
        last = picker(made).query_one(OptionList).get_option_at_index(1).prompt
        assert "stops the other download" in str(last)
        await pilot.press("enter")
        await until(pilot, lambda: download_task(made).fetch.path)  # type: ignore[union-attr]
    assert begun.read_bytes() == CONTENT[:FORTY_PERCENT]

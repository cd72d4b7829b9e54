"""The first launch explains the embedded model and names others, once."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.interface.models.switch import first_launch_hint, hint_about
from app.locations import ModelFolders, locate
from app.models.selection import choose
from app.runtime.open_model import ABOUT_BUILT_IN
from datastores.errors import StoreError
from tests.app.interface.conftest import Compare, Make, ask, loaded, shown, until
from tests.app.models.gguf_files import write_gguf

OFFER = "Press F5 to pick one of 2 other models found here."


@pytest.fixture
def two(others: ModelFolders) -> None:
    """Two models on the machine."""
    for name in ("one", "two"):
        write_gguf(others.lm_studio[0] / "org" / name / f"{name}.gguf")


def test_the_hint_describes_the_embedded_model() -> None:
    assert "only knows shell commands" in ABOUT_BUILT_IN


@pytest.mark.usefixtures("two")
async def test_the_first_launch_offers_what_was_found_and_the_second_does_not(stage: Make) -> None:
    made = stage(first=True)
    async with made.app.run_test() as pilot:
        await until(pilot, lambda: OFFER in shown(made))
        assert made.conversation.prompt.has_focus
        await ask(pilot, made, "hello")
        assert OFFER not in shown(made)
    made = stage()
    async with made.app.run_test() as pilot:
        await until(pilot, lambda: made.conversation.topbar.model)
        assert first_launch_hint(made.locations) == ""
        assert OFFER not in shown(made)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (0, "Press {models} to get a larger model"),
        (1, "Press {models} to pick another model"),
        (12, "one of 12 other models"),
    ],
)
def test_the_hint_depends_on_what_was_found(found: int, said: str) -> None:
    assert said in hint_about(found)


@pytest.mark.usefixtures("two")
def test_other_models_are_not_counted_once_a_model_was_chosen(tmp_path: Path) -> None:
    locations = locate(tmp_path / "data")
    locations.create()
    choose("org/one", locations)
    assert first_launch_hint(locations) == hint_about(0)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"cannot write .*offered: No such file"):
        first_launch_hint(locate(tmp_path / "nowhere"))


@pytest.mark.usefixtures("two")
@pytest.mark.parametrize("size", [(80, 24), (160, 50)])
def test_first_launch(stage: Make, snap_compare: Compare, size: tuple[int, int]) -> None:
    made = stage(first=True, hint=ABOUT_BUILT_IN)

    async def act(pilot: object) -> None:
        await loaded(made)(pilot)  # type: ignore[arg-type]
        await until(pilot, lambda: OFFER in shown(made))  # type: ignore[arg-type]

    assert snap_compare(made.app, terminal_size=size, run_before=act)

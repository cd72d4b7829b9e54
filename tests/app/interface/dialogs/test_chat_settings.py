"""The settings of a chat, operated by keyboard alone, and presets."""

from __future__ import annotations

from functools import partial

import pytest
from textual.pilot import Pilot
from textual.widgets import Input, OptionList

from app.chat_settings import SETTING_RANGES, STOP
from app.interface.dialogs.basic import Confirm, InputDialog
from app.interface.dialogs.chat_settings import SETTING_HINTS, ChatSettingsForm, SettingField
from app.interface.dialogs.presets import PresetList
from app.interface.text_inputs import TextInput
from datastores.chats.history import History
from datastores.chats.presets import Presets
from datastores.errors import StoreError
from tests.app.interface.conftest import (
    SIZES,
    Compare,
    Make,
    Stage,
    ask,
    burst,
    notices,
    ready,
    until,
)
from tests.datastores.chats.test_deletion import holding


def form_of(made: Stage) -> ChatSettingsForm:
    found = made.app.screen
    assert isinstance(found, ChatSettingsForm)
    return found


def field(made: Stage, name: str) -> SettingField:
    return next(line for line in form_of(made).query(SettingField) if line.setting == name)


def on(made: Stage, kind: type[object]) -> bool:
    return isinstance(made.app.screen, kind)


async def opened(pilot: Pilot[None], made: Stage) -> ChatSettingsForm:
    await pilot.press("ctrl+s")
    await until(pilot, partial(on, made, ChatSettingsForm))
    return form_of(made)


async def type_into(pilot: Pilot[None], made: Stage, name: str, text: str) -> None:
    field(made, name).box.focus()
    await pilot.press("ctrl+u", *text)


def test_every_setting_is_explained() -> None:
    assert set(SETTING_HINTS) == {*SETTING_RANGES, STOP}


async def test_an_open_chat_is_set_by_keyboard_alone(stage: Make, history: History) -> None:
    made = stage()
    async with made.app.run_test(size=(80, 24)) as pilot:
        await ask(pilot, made, "first")
        await opened(pilot, made)
        await pilot.press(*"Be brief.", "enter", *"Always.", "tab", "1", ".", "5", "down", "5")
        await pilot.press("enter")
        await until(pilot, lambda: notices(made))
    (chat,) = history.chats()
    assert chat.system == "Be brief.\nAlways."
    assert chat.sampling == {"temperature": 1.5, "top_k": 5}


async def test_where_answers_end_is_typed_checked_and_shown_again(
    stage: Make, history: History
) -> None:
    made = stage()
    async with made.app.run_test(size=(80, 24)) as pilot:
        await ask(pilot, made, "first")
        await opened(pilot, made)
        await type_into(pilot, made, "stop", '"\\n\\n')
        await pilot.press("enter")
        assert field(made, "stop").error == r'put a text with spaces between quotes: "\n\n"'
        await type_into(pilot, made, "stop", r'END "\n\n"')
        await type_into(pilot, made, "max_tokens", "90")
        await pilot.press("enter")
        await until(pilot, lambda: notices(made))
        (chat,) = history.chats()
        assert chat.sampling == {"max_tokens": 90, "stop": ["END", "\n\n"]}
        await opened(pilot, made)
        assert field(made, "stop").box.value == r'END "\n\n"'


async def test_keys_of_a_burst_reach_the_field_they_were_typed_for(stage: Make) -> None:
    made = stage()
    async with made.app.run_test(size=(80, 24)) as pilot:
        await opened(pilot, made)
        await burst(pilot, *"a", "enter", *"b", "up", *"c", "tab", *"12", "backspace", "down", *"3")
        await burst(pilot, "tab", *"0", "up", *"45", "left", "7", "up", "up", *"d")
        await until(pilot, lambda: form_of(made).query_one(TextInput).text == "acd\nb")
        typed = [field(made, name).box.value for name in ("temperature", "top_k", "top_p")]
        assert typed == ["1", "475", "0"]


async def test_a_new_chat_gets_its_settings_with_its_first_question(
    stage: Make, history: History
) -> None:
    made = stage()
    async with made.app.run_test() as pilot:
        await opened(pilot, made)
        await pilot.press("x", "ctrl+s")
        assert history.chats() == []
        await ask(pilot, made, "first")
        await pilot.press("ctrl+n")
        await ask(pilot, made, "second")
    assert {chat.title: chat.system for chat in history.chats()} == {"first": "x", "second": ""}


async def test_bad_input_is_named_at_its_field_and_stays(stage: Make, history: History) -> None:
    bad = [
        ("temperature", "warm", "must be a number, not warm"),
        ("temperature", "101", "must be from 0 to 100"),
        ("temperature", "nan", "must be from 0 to 100"),
        ("top_k", "1.5", "must be a whole number, not 1.5"),
        ("seed", "-2", "must be from -1 to"),
    ]
    made = stage()
    async with made.app.run_test(size=(80, 24)) as pilot:
        await ask(pilot, made, "first")
        await opened(pilot, made)
        await pilot.press("x")
        for name, typed, said in bad:
            line = field(made, name)
            await type_into(pilot, made, name, typed)
            await until(pilot, partial(shows_error, line, said))
            form_of(made).query_one(TextInput).focus()
            await pilot.press("ctrl+s")
            assert on(made, ChatSettingsForm)
            assert line.box.has_focus
            assert line.box.value == typed
            assert form_of(made).query_one(TextInput).text == "x"
            assert history.chats()[0].system == ""
            await type_into(pilot, made, name, "1")
            assert line.error == ""
        await pilot.press("ctrl+s")
        assert not on(made, ChatSettingsForm)
        settings = {"temperature": 1, "top_k": 1, "seed": 1}
        await until(pilot, lambda: history.chats()[0].sampling == settings)


def shows_error(line: SettingField, said: str) -> bool:
    return line.error.startswith(said)


async def test_an_emptied_field_is_the_default_again(stage: Make, history: History) -> None:
    chat = history.create_chat("set", sampling={"top_k": 7, "seed": 3}).id
    made = stage()
    async with made.app.run_test() as pilot:
        made.conversation.open(chat)
        await opened(pilot, made)
        assert field(made, "top_k").box.value == "7"
        await type_into(pilot, made, "top_k", "")
        await pilot.press("enter")
        await until(pilot, lambda: history.chat(chat).sampling == {"seed": 3})


async def test_changes_are_not_thrown_away_without_a_question(
    stage: Make, history: History
) -> None:
    system = "kept\x1b[31m as it was\r\n"
    chat = history.create_chat("set", system=system).id
    made = stage()
    async with made.app.run_test() as pilot:
        made.conversation.open(chat)
        await opened(pilot, made)
        await pilot.press("escape")
        assert not on(made, ChatSettingsForm)
        await opened(pilot, made)
        await type_into(pilot, made, "top_k", "2")
        await pilot.press("escape")
        assert on(made, Confirm)
        await pilot.press("n")
        assert field(made, "top_k").box.value == "2"
        await pilot.press("escape", "y")
        assert not on(made, ChatSettingsForm)
        assert history.chat(chat).sampling == {}
        await opened(pilot, made)
        await pilot.press("ctrl+s")
        await until(pilot, lambda: notices(made))
    assert history.chat(chat).system == system
    assert history.chat(chat).sampling == {}


async def test_presets_are_saved_taken_and_deleted(stage: Make, history: History) -> None:
    made = stage()
    async with made.app.run_test(size=(80, 24)) as pilot:
        await opened(pilot, made)
        await pilot.press(*"Speak French")
        await type_into(pilot, made, "seed", "7")
        await pilot.press("ctrl+t", *"my french", "enter")
        await until(pilot, lambda: Presets(history).all())
        (preset,) = Presets(history).all()
        assert (preset.name, preset.system) == ("my french", "Speak French")
        assert preset.sampling == {"seed": 7}
        await pilot.press("escape", "y")
        await ask(pilot, made, "first")
        await opened(pilot, made)
        await pilot.press("ctrl+o")
        assert on(made, PresetList)
        await pilot.press("enter")
        assert form_of(made).query_one(TextInput).text == "Speak French"
        assert field(made, "seed").box.value == "7"
        await pilot.press("ctrl+s")
        await until(pilot, lambda: history.chats()[0].system == "Speak French")
        await opened(pilot, made)
        await pilot.press("ctrl+o", "delete", "y")
        await until(pilot, lambda: not Presets(history).all())
        await until(pilot, lambda: not made.app.screen.query_one(OptionList).option_count)
    assert holding(made.locations.data, "my french") == []


async def test_a_preset_is_not_replaced_without_a_question(stage: Make, history: History) -> None:
    Presets(history).save("mine", "old", {})
    made = stage()
    async with made.app.run_test() as pilot:
        await opened(pilot, made)
        await pilot.press("x", "ctrl+t", *"mine", "enter")
        assert on(made, Confirm)
        await pilot.press("n")
        assert Presets(history).get("mine").system == "old"
        await pilot.press("ctrl+t")
        assert on(made, InputDialog)
        made.app.screen.query_one(Input).value = " mine "
        await pilot.press("enter", "y")
        await until(pilot, lambda: Presets(history).get("mine").system == "x")


async def test_what_cannot_be_kept_stays_in_the_form(
    stage: Make, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: History, chat: int, system: str) -> None:
        raise StoreError("the disk is full")

    made = stage()
    async with made.app.run_test() as pilot:
        await ask(pilot, made, "first")
        await opened(pilot, made)
        monkeypatch.setattr(History, "set_system", fails)
        await pilot.press("x", "ctrl+s")
        await until(pilot, lambda: notices(made) == ["The disk is full"])
        assert form_of(made).query_one(TextInput).text == "x"


@pytest.mark.parametrize("size", SIZES)
def test_the_form(
    stage: Make, history: History, snap_compare: Compare, size: tuple[int, int]
) -> None:
    made = stage()

    async def act(pilot: Pilot[None]) -> None:
        await ready(pilot, made)
        await opened(pilot, made)
        await pilot.press(*"You are terse. You answer in Esperanto.")
        await type_into(pilot, made, "top_p", "1.5")
        await until(pilot, lambda: field(made, "top_p").error)

    assert snap_compare(made.app, terminal_size=size, run_before=act)


@pytest.mark.parametrize("size", SIZES)
def test_the_list_of_presets(
    stage: Make, history: History, snap_compare: Compare, size: tuple[int, int]
) -> None:
    Presets(history).save("French", "Answer in French, however you are asked.", {"top_k": 5})
    Presets(history).save("greedy", "", {"temperature": 0.0})
    made = stage()

    async def act(pilot: Pilot[None]) -> None:
        await ready(pilot, made)
        await opened(pilot, made)
        await pilot.press("ctrl+o")
        await until(pilot, partial(on, made, PresetList))

    assert snap_compare(made.app, terminal_size=size, run_before=act)

"""Damage is reported, with the way to recover, until it is settled."""

from __future__ import annotations

import os
import random
from contextlib import closing, suppress
from pathlib import Path

import pytest

from app.cli.main import run
from app.conversation.restore import restore
from app.damage import found_damage, settle
from app.importing.session import record_imports
from app.indexing.passage_index import open_passages
from app.locations import Locations
from datastores.chats.history import History
from datastores.chats.records import ASSISTANT, USER
from datastores.errors import InputError
from datastores.library.library import Library

DAMAGED = b"no database" * 1000


def test_sound_files_are_not_reported(locations: Locations) -> None:
    assert found_damage(locations) == []


def test_a_lost_library_names_what_to_import_again(locations: Locations) -> None:
    record_imports(locations.imported, ["/my notes", "/code"], whole=True)
    locations.library.write_bytes(DAMAGED)
    Library.open(locations.library).close()
    for _ in range(2):  # whoever opened it
        (damage,) = found_damage(locations)
        settle(damage)
        assert "answers come without them" in damage.text
        assert "`specchat import /code '/my notes'`" in damage.text
    record_imports(locations.imported, ["/my notes", "/code"], whole=True)
    (damage,) = found_damage(locations)
    assert "you have imported the same files again since" in damage.text
    damage.path.unlink()
    assert found_damage(locations) == []


def test_an_emptied_history_is_damaged_and_a_new_one_is_never_empty(locations: Locations) -> None:
    History.open(locations.history).close()
    assert found_damage(locations) == []
    locations.history.write_bytes(b"")
    History.open(locations.history).close()
    (damage,) = found_damage(locations)
    assert "your chats were damaged" in damage.text


@pytest.mark.parametrize("seed", range(12))
def test_any_damage_to_a_history_is_reported_and_the_rest_is_readable(
    locations: Locations, seed: int
) -> None:
    with closing(History.open(locations.history)) as history:
        asked = [history.create_chat(f"chat {number}").id for number in range(8)]
        for chat in asked:
            history.add_message(chat, None, USER, "why " * 300)
    content = bytearray(locations.history.read_bytes())
    chance = random.Random(seed)
    for _ in range(40):
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    if seed % 3 == 0:
        del content[chance.randrange(1, len(content)) :]
    locations.history.write_bytes(content)
    with closing(History.open(locations.history)) as history:
        damage = found_damage(locations)
        assert damage or len([history.thread(chat.id) for chat in history.chats()]) == 8
        for one in damage:
            with suppress(InputError):
                restore(one.path, history)


def test_a_rebuilt_cache_is_reported_once(locations: Locations) -> None:
    open_passages(locations).close()
    locations.passages.write_bytes(DAMAGED)
    open_passages(locations).close()
    (damage,) = found_damage(locations)
    assert damage.text.startswith(f"{locations.passages} was damaged and is rebuilt")
    settle(damage)
    assert found_damage(locations) == []


def test_every_command_reports_damage_once(
    locations: Locations, capsys: pytest.CaptureFixture[str]
) -> None:
    locations.library.write_bytes(DAMAGED)
    for command in (["delete", "1", "--yes"], ["chats"], ["imports"]):
        run(["--data-dir", str(locations.data), *command])
        assert capsys.readouterr().err.count("your imports were damaged") == 1, command


def test_chats_of_a_damaged_history_are_restored_from_where_it_was_set_aside(
    locations: Locations,
) -> None:
    with closing(History.open(locations.history)) as history:
        for number in range(40):
            chat = history.create_chat(f"chat {number}").id
            asked = history.add_message(chat, None, USER, f"question {number} " + "why " * 400)
            history.add_message(chat, asked.id, ASSISTANT, f"answer {number} " + "so " * 400)
    content = bytearray(locations.history.read_bytes())
    half = len(content) // 2 // 4096 * 4096
    content[half : half + 4096] = bytes(4096)
    locations.history.write_bytes(content)
    with closing(History.open(locations.history)) as history:
        assert history.chats() == []
        (damage,) = found_damage(locations)
        assert f"`specchat restore {damage.path}`" in damage.text
        report = restore(damage.path, history)
        assert report.restored == 40
        texts = [
            one.content.split(" why")[0] for c in history.chats() for one in history.tree(c.id)
        ]
        assert len(texts) >= 72
        assert restore(damage.path, history).present >= 36


@pytest.mark.parametrize("name", ["fifo", "folder", "/dev/zero", "/dev/stdin"])
def test_what_has_no_end_is_not_restored_from(
    locations: Locations, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    assert run(["--data-dir", str(locations.data), "restore", str(tmp_path / name)]) == 1
    assert "it is not a file: save the export to one first" in capsys.readouterr().err

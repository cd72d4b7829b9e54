"""Saved states: found by what a text begins with, harmless where damaged, bounded, erased."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from datastores.errors import StoreError
from datastores.kv_blocks import KvBlock, KvBlocks, State, retain, split, stored

SIZE = 8
SHARED = list(range(100, 120))
TEXTS = {"one": [*SHARED, *range(200, 215)], "two": [*SHARED, *range(300, 330)]}


def state_of(block: KvBlock) -> State:
    """A state that tells which tokens it is of."""
    return np.frombuffer(b"S" * 1000 + block.tokens.tobytes(), np.uint8)


def save(files: KvBlocks, chat: str, tokens: list[int], size: int = SIZE) -> int:
    """How many blocks were written."""
    missing = files.assign(chat, list(split(tokens, size, 0.5)))
    return sum(files.add(chat, block, state_of(block)) for block in missing)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "states"


@pytest.fixture
def files(root: Path) -> KvBlocks:
    opened = KvBlocks(root, "model a", 10**6)
    for chat, tokens in TEXTS.items():
        save(opened, chat, tokens)
    return opened


def blocks_on(root: Path) -> list[Path]:
    return sorted(root.rglob("*.kv"))


def test_the_longest_beginning_is_found(files: KvBlocks) -> None:
    prompt = [*TEXTS["two"][:35], 7, 8, 9]
    found = files.find(prompt, whole=False)
    assert [block.start for block in found] == [0, 8, 16, 24, 32]
    assert [token for block in found for token in block.tokens][:35] == prompt[:35]
    assert sum(block.seconds for block in found) == 0.5 * 40
    for block in found:
        assert np.array_equal(files.read(block), state_of(block))
    assert files.find([1, 2, 3], whole=False) == []


def test_texts_share_blocks_and_grow_by_what_is_new(root: Path) -> None:
    files = KvBlocks(root, "model a", 10**6)
    assert save(files, "one", TEXTS["one"]) == 5
    assert save(files, "two", TEXTS["two"]) == 5, "of seven"
    assert save(files, "one", [*TEXTS["one"], *range(40)]) == 6, "the last block has more tokens"
    assert len(blocks_on(root)) == 4 + 6 + 5, "the shorter last block is gone"


def test_a_state_that_cannot_be_cut_is_found_whole(root: Path) -> None:
    files = KvBlocks(root, "model a", 10**6)
    save(files, "one", TEXTS["one"], 0)
    [block] = files.find([*TEXTS["one"], 5], whole=True)
    assert block.end == len(TEXTS["one"])
    assert files.find(TEXTS["one"], whole=True) == [], "one token must be left to read"
    assert files.find(TEXTS["one"][:-1], whole=True) == []


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "flipped": lambda content: content[:-3] + bytes([content[-3] ^ 1]) + content[-2:],
    "truncated": lambda content: content[:-7],
    "cut in its tokens": lambda content: content[:90],
    "cut in its header": lambda content: content[:20],
    "empty": lambda content: b"",
    "other": lambda content: b"\xff\n" * 40,
    "changed header": lambda content: content.replace(b'"start": 0', b'"start": 1'),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_dropped(files: KvBlocks, root: Path, damage: str) -> None:
    first = files.find(TEXTS["one"], whole=False)[0]
    path = next(path for path in blocks_on(root) if path.name == first.name)
    path.write_bytes(DAMAGE[damage](path.read_bytes()))
    for block in files.find(TEXTS["one"], whole=False)[:1]:
        with pytest.raises(StoreError, match="is damaged"):
            files.read(block)
    assert not path.exists()
    assert files.find(TEXTS["one"], whole=False) == []
    assert save(files, "one", TEXTS["one"]) == 1, "what follows it is there"


def test_states_of_another_model_or_build_are_never_used(files: KvBlocks, root: Path) -> None:
    other = KvBlocks(root, "model b", 10**6)
    assert other.find(TEXTS["one"], whole=False) == []
    save(other, "one", TEXTS["one"])
    one, *_ = files.find(TEXTS["one"], whole=False)
    mine, foreign = (path for path in blocks_on(root) if path.name == one.name)
    mine.write_bytes(foreign.read_bytes())
    foreign.write_bytes(mine.read_bytes())
    refused = 0
    for opened in (files, other):
        try:
            opened.read(one)
        except StoreError:
            refused += 1
    assert refused == 1


def test_the_least_recently_used_chats_make_room(root: Path) -> None:
    files = KvBlocks(root, "model a", 10**6)
    save(files, "one", TEXTS["one"])
    size = stored(root).bytes
    bounded = KvBlocks(root, "model b", size + 1000)
    assert save(bounded, "two", list(range(500, 500 + SIZE))) == 1
    assert stored(root).chats == 1, "the other model's chat is gone"
    assert bounded.find(range(500, 520), whole=False)
    written = save(bounded, "three", list(range(1000, 1000 + 40 * SIZE)))
    assert 0 < written < 40
    assert stored(root).bytes <= size + 1000
    assert [block.start for block in bounded.find(range(1000, 1320), whole=False)] == [
        SIZE * number for number in range(written)
    ], "its beginning is kept"


def test_only_their_owner_can_read_them(files: KvBlocks, root: Path) -> None:
    assert all(
        path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600)
        for path in [root, *root.rglob("*")]
    )


@pytest.mark.parametrize("act", ["retain", "forget"])
def test_what_is_erased_leaves_no_byte(files: KvBlocks, root: Path, act: str) -> None:
    save(KvBlocks(root, "model b", 10**6), "one", TEXTS["one"])
    trace = np.array(TEXTS["one"][21:24], "<u4").tobytes()
    assert sum(trace in path.read_bytes() for path in blocks_on(root)) == 2
    (folder,) = {path.parent for path in blocks_on(root)} - {files._folder}
    (folder / f".{'0' * 32}.kv.killed").write_bytes(trace)
    if act == "retain":
        retain(root, {"two"})
    else:
        files.forget("one")
    assert not any(trace in path.read_bytes() for path in root.rglob("*") if path.is_file())
    assert len(files.find(TEXTS["two"], whole=False)) == 7, "what is shared stays"


def test_a_damaged_list_keeps_nothing(files: KvBlocks, root: Path) -> None:
    for path in root.rglob("*.json"):
        path.write_text(json.dumps({"chat": 3})[:-2])
    retain(root, {"one", "two"})
    assert blocks_on(root) == []


KILLED = """
import os, sys
from pathlib import Path
from tests.datastores.test_kv_blocks import KvBlocks, TEXTS, save
import datastores.storage.files as files
files.os.replace = lambda old, new: (
    os.kill(os.getpid(), 9) if str(new).endswith(".kv") else os.rename(old, new)
)
save(KvBlocks(Path(sys.argv[1]), "model a", 10**6), "three", [*TEXTS["one"], *range(9)])
"""


def test_killed_while_saving_nothing_is_lost(files: KvBlocks, root: Path) -> None:
    before = {path: path.read_bytes() for path in blocks_on(root)}
    killed = subprocess.run([sys.executable, "-c", KILLED, root], check=False)
    assert killed.returncode == -9
    assert {path: path.read_bytes() for path in blocks_on(root)} == before
    assert list(root.rglob(".*.kv.*")), "it died while it wrote"
    assert save(files, "three", [*TEXTS["one"], *range(9)]) == 2
    assert not list(root.rglob(".*.kv.*"))

"""CREST as a drafter, over real stores."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from datastores.crest.reader import CrestReader
from datastores.crest.store import CrestStore
from datastores.crest.texts import TokenText
from engines.draft_tree import CHATS, CODE, PROMPT, DraftTree
from engines.drafters.crest import CrestDrafter
from engines.step import Context

TEXTS = [
    TokenText(b"chatting", [1, 2, 3, 4, 5, 6] * 3 + [1, 2, 3, 9], 1),
    TokenText(b"notebook", [2, 3, 9, 8] * 4, 3),
]


def asked(*tokens: int) -> Context:
    return Context(list(tokens), np.zeros(0, dtype=np.float32), 0.0)


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[CrestReader]:
    store = CrestStore.open(tmp_path / "crest.db", 1 << 22)
    store.rebuild(TEXTS)
    store.close()
    opened = CrestReader(tmp_path / "crest.db")
    yield opened
    opened.close()


def chain(tree: DraftTree) -> list[int]:
    """Tokens from the root along the most probable children."""
    children, tokens = tree.children(), []
    row = 0
    while children[row]:
        token, row = max(children[row].items(), key=lambda item: tree.probabilities[item[1]])
        tokens.append(token)
    return tokens


def test_crest_drafts_what_followed(reader: CrestReader) -> None:
    tree = CrestDrafter(reader, use_context=False).propose(asked(1, 2, 3), 16)
    assert chain(tree)[:4] == [4, 5, 6, 1]
    assert {tree.tokens[row] for row in tree.children()[0].values()} == {4, 9}


def test_crest_credits_the_kind_of_text(reader: CrestReader) -> None:
    tree = CrestDrafter(reader, use_context=False).propose(asked(8, 2, 3), 16)
    assert tree.origins[tree.children()[0][9]] == CODE
    tree = CrestDrafter(reader, use_context=False).propose(asked(6, 1, 2), 16)
    assert tree.origins[tree.children()[0][3]] == CHATS


def test_shorter_ngrams_contribute_too(reader: CrestReader) -> None:
    assert 4 in CrestDrafter(reader, use_context=False).propose(asked(9, 8, 2, 3), 64).tokens


def test_unknown_words_get_no_draft(reader: CrestReader) -> None:
    assert CrestDrafter(reader).propose(asked(70, 71), 16).drafted == 0


def test_crest_drafts_from_this_chat_too(reader: CrestReader) -> None:
    context = asked(1, 2, 3, 50, 51, 1, 2, 3)
    crest = CrestDrafter(reader)
    crest.begin(context)
    tree = crest.propose(context, 16)
    row = tree.children()[0][50]
    assert tree.origins[row] == PROMPT
    assert 51 in tree.children()[row]
    assert tree.origins[tree.children()[0][4]] == CHATS


def overwrite_entries(path: Path) -> None:
    """Have every entry claim children that do not follow."""
    with closing(sqlite3.connect(path)) as store, store:
        for number, page in store.execute("SELECT number, entries FROM pages").fetchall():
            head = 1 + 3 * page[0]
            broken = page[:head] + b"\xff" * (len(page) - head)
            store.execute("UPDATE pages SET entries = ? WHERE number = ?", (broken, number))


def test_a_store_that_fails_is_not_read_and_the_error_is_kept(reader: CrestReader) -> None:
    crest = CrestDrafter(reader)
    crest.begin(asked(1, 2, 3))
    overwrite_entries(reader.path)
    context = asked(1, 2, 3, 50, 51, 1, 2, 3)
    crest.begin(context)
    assert crest.error is None
    tree = crest.propose(context, 16)
    assert crest.error is not None
    assert str(reader.path) in str(crest.error)
    assert "\n" not in str(crest.error)
    assert set(tree.origins[1:]) == {PROMPT}, "this chat is drafted from all the same"
    with closing(CrestStore.open(reader.path, 1 << 22)) as again:
        assert again.store.quarantined is not None, "what SQLite cannot see was noted"
        again.rebuild(TEXTS)
    crest.begin(context)
    assert crest.error is None
    assert CHATS in crest.propose(context, 16).origins, "the new store is read"


def test_a_store_that_is_deleted_while_it_is_read_ends_no_answer(reader: CrestReader) -> None:
    crest = CrestDrafter(reader)
    reader.path.unlink()
    for _ in range(2):
        crest.begin(asked(1, 2, 3))
        assert crest.error is not None
        assert crest.propose(asked(1, 2, 3), 16).drafted == 0

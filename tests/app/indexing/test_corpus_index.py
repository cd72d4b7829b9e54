"""One tokenizer's stores follow texts and chats exactly, however they came about."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.indexing.corpus_index import (
    CorpusIndex,
    crest_path,
    forget_removed_texts,
    open_index,
    split_text,
    tokenize_text,
    tokens_path,
)
from app.locations import Locations
from datastores.chats.history import History
from datastores.chats.records import PROGRAMS
from datastores.corpus import CorpusText
from datastores.crest.reader import CrestReader
from datastores.library.documents import CODE, NOTES, Document, Part, StoreDocument
from datastores.library.library import Library
from datastores.suffix_reader import SuffixReader
from engines import draft_tree
from tests.app.characters import BUDGET, SENTENCE, Characters
from tests.datastores.dump import rows_of

VOCABULARY = Characters()


def _import(library: Library, import_path: str, *texts: str, kind: str = NOTES) -> None:
    library.write(
        [
            StoreDocument(import_path, f"{number}", 0, Document("t", (Part(kind, text),)))
            for number, text in enumerate(texts)
        ]
    )


def _project(locations: Locations, vocabulary: Characters = VOCABULARY) -> None:
    with open_index(locations, vocabulary, BUDGET) as projection:
        for _ in projection.run(settle=True):
            pass
        assert not projection.is_due()


def _rows(locations: Locations, vocabulary: Characters = VOCABULARY) -> list[object]:
    folder = crest_path(locations, vocabulary.fingerprint).parent
    return [rows_of(folder / "crest.db"), rows_of(folder / "tokens.db")]


def _follows(
    locations: Locations, text: str, vocabulary: Characters = VOCABULARY
) -> dict[str, int]:
    """What CREST drafts right after `text`: character → bit of its origin."""
    with closing(CrestReader(crest_path(locations, vocabulary.fingerprint))) as reader:
        found: dict[str, int] = {}
        for entry in reader.lookup(vocabulary.encode(text)):
            first, last = entry.followers(0)
            for token in entry.tokens[first:last]:
                found.setdefault(chr(token - vocabulary.offset), 1 << entry.kind)
        return found


def test_texts_are_drafted_from_with_the_kind_of_their_import(
    locations: Locations, library: Library
) -> None:
    _import(library, "/notes", "abc" * 20)
    _import(library, "/code", "xyz" * 20, kind=CODE)
    _project(locations)
    assert _follows(locations, "ab") == {"c": draft_tree.NOTES}
    assert _follows(locations, "xy") == {"z": draft_tree.CODE}


def _goes_on(locations: Locations, text: str) -> list[str]:
    """How the texts go on that the suffix index has for the end of `text`."""
    with closing(SuffixReader(tokens_path(locations, VOCABULARY.fingerprint))) as reader:
        matches = reader.lookup(VOCABULARY.encode(text))
        ids = [match.following for match in matches]
        return ["".join(chr(token - VOCABULARY.offset) for token in following) for following in ids]


def test_imports_and_answers_are_in_the_suffix_index_until_they_are_deleted(
    locations: Locations, library: Library
) -> None:
    text = "The walrus and the carpenter were walking close at hand."
    answer = "They wept like anything to see such quantities of sand."
    _import(library, "/notes", text)
    _project(locations)
    assert _goes_on(locations, text[:30]) == [text[30:]]
    with closing(History.open(locations.history)) as history:
        chat = history.create_chat().id
        message = history.add_message(chat, None, "assistant", answer, finish="stop").id
        with open_index(locations, VOCABULARY, BUDGET) as projection:
            keys, _ = projection.corpus.messages_since(message - 1)
            assert projection.learn(keys)
            assert not projection.is_due()
        assert _goes_on(locations, answer[:30]) == [answer[30:]]
        history.delete_chat(chat)
        history.erase()
    library.forget("/notes")
    library.erase()
    forget_removed_texts(locations, BUDGET)
    assert not _goes_on(locations, text[:30])
    assert not _goes_on(locations, answer[:30])


def test_texts_without_places_are_due(locations: Locations, library: Library) -> None:
    text = "The sun was shining on the sea, shining with all his might."
    _import(library, "/notes", text)
    with open_index(locations, VOCABULARY, BUDGET) as projection:
        next(projection.run())
        assert projection.is_due()
        assert not _goes_on(locations, text[:30])
    _project(locations)
    assert _goes_on(locations, text[:30]) == [text[30:]]


def test_another_tokenizer_needs_no_second_import(locations: Locations, library: Library) -> None:
    other = Characters("other", offset=5)
    _import(library, "/notes", "abc" * 20)
    _project(locations)
    _project(locations, other)
    assert _follows(locations, "ab", other) == {"c": draft_tree.NOTES}
    assert _follows(locations, "ab") == {"c": draft_tree.NOTES}


@pytest.mark.parametrize("stop", [1, 2, 4, 5])
def test_stopped_and_gone_on_with_it_ends_the_same(
    locations: Locations,
    library: Library,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    stop: int,
) -> None:
    monkeypatch.setattr("app.indexing.corpus_index.SLICE_CHARACTERS", 50)
    _import(library, "/notes", *(f"page {number} " * 5 for number in range(8)))
    _project(locations)
    undisturbed = _rows(locations)
    interrupted = Locations(locations.data, tmp_path / "cache", locations.config)
    with open_index(interrupted, VOCABULARY, BUDGET) as projection:
        run = projection.run(settle=True)
        for _ in range(stop):
            next(run)
        run.close()
    _project(interrupted)
    assert _rows(interrupted) == undisturbed


def test_import_forget_import_is_import(locations: Locations, library: Library) -> None:
    _import(library, "/kept", "abc" * 20)
    _project(locations)
    never = _rows(locations)
    _import(library, "/s", "abd" * 20)
    _project(locations)
    once = _rows(locations)
    library.forget("/s")
    library.erase()
    _project(locations)
    assert _rows(locations) == never
    _import(library, "/s", "abd" * 20)
    _project(locations)
    assert _rows(locations) == once


def test_forgetting_reaches_every_tokenizer_and_leaves_no_byte(
    locations: Locations, library: Library
) -> None:
    others = [VOCABULARY, Characters("other", offset=70_000)]
    _import(library, "/kept", "abc" * 20)
    _import(library, "/s", *(f"{SENTENCE} {number}" for number in range(30)))
    for vocabulary in others:
        _project(locations, vocabulary)
        assert _follows(locations, "walru", vocabulary)
    library.forget("/s")
    library.erase()
    forget_removed_texts(locations, BUDGET)
    # Two ids suffice: no other text has "wa", nor a page of CREST the code of its words.
    traces = [SENTENCE.encode()]
    for vocabulary in others:
        ids = np.array(vocabulary.encode("walrus"), dtype="<u4")
        traces += [ids.tobytes(), ids.view(np.uint8).reshape(-1, 4)[:, :2].tobytes()]
        traces.append(ids.view(np.uint8).reshape(-1, 4)[:, :3].tobytes())
    for file in locations.data.rglob("*"):
        if file.is_file():
            content = file.read_bytes()
            assert not any(trace in content for trace in traces), file
    for vocabulary in others:
        assert not _follows(locations, "walru", vocabulary)
        _project(locations, vocabulary)
        assert _follows(locations, "ab", vocabulary) == {"c": draft_tree.NOTES}


def test_an_answer_is_learnt_by_its_exact_tokens(locations: Locations, history: History) -> None:
    _project(locations)
    chat = history.create_chat().id
    asked = history.add_message(chat, None, "user", "abab")
    tokens = [7, 8, 9] * 5
    history.add_message(
        chat, asked.id, "assistant", "zzz", tokens=tokens, tokenizer=VOCABULARY.fingerprint
    )
    with open_index(locations, VOCABULARY, BUDGET) as projection:
        keys, _ = projection.corpus.messages_since(0)
        assert projection.learn(keys)
        assert not projection.is_due()
    with closing(CrestReader(crest_path(locations, VOCABULARY.fingerprint))) as reader:
        entry = reader.lookup([7, 8])[0]
    assert entry.tokens[entry.followers(0)[0]] == 9
    assert 1 << entry.kind == draft_tree.CHATS
    assert _follows(locations, "a") == {"b": draft_tree.CHATS}


def test_answers_to_programs_are_drafted_under_their_own_origin(
    locations: Locations, history: History
) -> None:
    chat = history.create_chat(origin=PROGRAMS).id
    history.add_message(chat, None, "assistant", "abab" * 9)
    _project(locations)
    assert _follows(locations, "a") == {"b": draft_tree.PROGRAMS}


def test_what_is_learnt_twice_counts_once(locations: Locations, history: History) -> None:
    history.add_message(history.create_chat().id, None, "user", "abab" * 9)
    with open_index(locations, VOCABULARY, BUDGET) as projection:
        keys, _ = projection.corpus.messages_since(0)
        assert projection.learn(keys)
        once = _rows(locations)
        assert projection.learn(keys)
    assert _rows(locations) == once


def test_more_than_fits_in_passing_is_left_to_a_run(locations: Locations, history: History) -> None:
    history.add_message(history.create_chat().id, None, "user", "abcd" * 20_000)
    with open_index(locations, VOCABULARY, BUDGET) as projection:
        keys, _ = projection.corpus.messages_since(0)
        assert not projection.learn(keys)
        assert projection.is_due()
    _project(locations)
    assert _follows(locations, "abc") == {"d": draft_tree.CHATS}


def test_a_chat_made_private_is_unlearnt(locations: Locations, history: History) -> None:
    chat = history.create_chat().id
    history.add_message(chat, None, "user", "abab" * 9)
    _project(locations)
    assert _follows(locations, "a")
    history.set_private(chat, True)
    with open_index(locations, VOCABULARY, BUDGET) as projection:
        assert projection.is_due()
    _project(locations)
    assert not _follows(locations, "a")


def test_what_is_little_is_put_beside_what_is_settled(
    locations: Locations, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    _import(library, "/s", "abc" * 20)
    _project(locations)
    _import(library, "/small", "xyz" * 20)
    with monkeypatch.context() as patch, open_index(locations, VOCABULARY, BUDGET) as projection:
        patch.setattr("datastores.crest.store.CrestStore.rebuild", None)
        list(projection.run())
        assert not projection.is_due()
    assert _follows(locations, "xy") == {"z": draft_tree.NOTES}


def test_progress_says_whether_imports_are_among_the_texts(
    locations: Locations, library: Library, history: History
) -> None:
    def run(*, settle: bool = False) -> set[bool]:
        with open_index(locations, VOCABULARY, BUDGET) as projection:
            return {progress.imports for progress in projection.run(settle=settle)}

    history.add_message(history.create_chat().id, None, "user", "abc" * 20)
    assert run() == run(settle=True) == {False}
    _import(library, "/notes", "xyz" * 20)
    assert run() == {True}


def test_what_is_too_much_for_that_is_settled(locations: Locations, library: Library) -> None:
    _import(library, "/s", *(f"abc{number} " * 1000 for number in range(20)))
    with open_index(locations, VOCABULARY, BUDGET) as projection:
        list(projection.run())
        assert not projection.is_due()
    assert _follows(locations, "ab") == {"c": draft_tree.NOTES}


def test_what_was_added_is_merged_once(
    locations: Locations, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    _import(library, "/large", "abc" * 200)
    _project(locations)
    _import(library, "/small", "xyz" * 20)
    with open_index(locations, VOCABULARY, BUDGET) as projection:
        list(projection.run())
        assert not projection.merge_due()
        monkeypatch.setattr("datastores.crest.store.MIN_MERGED_TOKENS", 50)
        assert projection.merge_due()
        list(projection.run(settle=True))
        assert not projection.merge_due()
    settled = _rows(locations)
    monkeypatch.setattr("datastores.crest.store.CrestStore.rebuild", None)
    _project(locations)
    assert _rows(locations) == settled
    assert _follows(locations, "xy") == {"z": draft_tree.NOTES}


def test_one_forgotten_text_of_many_rebuilds_nothing_and_leaves_no_byte(
    locations: Locations, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    vocabulary = Characters("other", offset=70_000)
    monkeypatch.setattr("datastores.crest.store.MIN_REBUILD_SHARE", 1)
    _import(library, "/kept", *(f"abc{number} " * 20 for number in range(9)))
    _import(library, "/gone", "abж" * 20)
    _project(locations, vocabulary)
    assert set(_follows(locations, "ab", vocabulary)) == {"c", "ж"}
    (token,) = vocabulary.encode("ж")
    traces = [token.to_bytes(width, "little") for width in (3, 4)]
    folder = crest_path(locations, vocabulary.fingerprint).parent
    assert any(traces[0] in file.read_bytes() for file in folder.iterdir())
    monkeypatch.setattr("datastores.crest.store.CrestStore.rebuild", None)
    library.forget("/gone")
    library.erase()
    forget_removed_texts(locations, BUDGET)
    for file in folder.iterdir():
        assert not any(trace in file.read_bytes() for trace in traces), file
    assert set(_follows(locations, "ab", vocabulary)) == {"c"}
    _project(locations, vocabulary)


@pytest.mark.parametrize("name", ["tokens.db", "crest.db"])
def test_damaged_stores_are_made_again_and_nothing_of_them_kept(
    locations: Locations, library: Library, name: str
) -> None:
    _import(library, "/s", "abc" * 50)
    _project(locations)
    whole = _rows(locations)
    path = crest_path(locations, VOCABULARY.fingerprint).with_name(name)
    path.write_bytes(b"no database" * 100)
    _project(locations)
    assert _rows(locations) == whole
    assert not list(path.parent.glob("*corrupt*"))


def test_the_lock_is_one_for_each_tokenizer(locations: Locations) -> None:
    def taken(projection: CorpusIndex) -> bool:
        return projection.lock.acquire()

    with (
        open_index(locations, VOCABULARY, BUDGET) as one,
        open_index(locations, VOCABULARY, BUDGET) as two,
    ):
        assert taken(one)
        assert not taken(two)
        with open_index(locations, Characters("other"), BUDGET) as three:
            assert taken(three)
            three.lock.release()
        one.lock.release()


@given(st.text(alphabet="ab\n", max_size=200), st.integers(1, 50))
def test_pieces_are_the_text_and_end_with_lines_where_they_can(text: str, size: int) -> None:
    pieces = list(split_text(text, size))
    assert "".join(pieces) == text
    assert all(0 < len(piece) <= size for piece in pieces)
    for piece in pieces[:-1]:
        assert piece.endswith("\n") or "\n" not in piece


def test_long_texts_are_tokenised_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: list[int] = []

    class Counting(Characters):
        def encode(self, text: str, *, special: bool = False) -> list[int]:
            lengths.append(len(text))
            return super().encode(text)

    text = "x" * 300_000
    result = tokenize_text(b"k", [CorpusText(NOTES, "", text)], Counting())
    assert result.tokens == 300_000
    assert max(lengths) <= 2**16

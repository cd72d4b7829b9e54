"""Search: what is typed is found, where it is, and shown without being trusted."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from datastores.chats.history import History
from datastores.chats.records import ASSISTANT, STREAMING, USER
from datastores.chats.search import EXCERPT_LENGTH, Excerpt, Hit, excerpt, search


def _say(history: History, *texts: str, title: str = "", private: bool = False) -> list[int]:
    """A chat of `texts`, and the ids of its messages."""
    chat = history.create_chat(title, private=private)
    ids: list[int] = []
    for number, text in enumerate(texts):
        role = ASSISTANT if number % 2 else USER
        ids.append(history.add_message(chat.id, ids[-1] if ids else None, role, text).id)
    return ids


def _found(hits: list[Hit]) -> list[int | None]:
    return [hit.message for hit in hits]


def _marked(shown: Excerpt) -> str:
    return "".join(f"[{text}]" if found else text for text, found in shown.pieces())


def test_a_word_in_the_middle_of_an_answer_leads_to_its_message(history: History) -> None:
    ids = _say(history, "tell me", f"{'before ' * 100}a walrus sleeps{' after' * 100}", title="t")
    _say(history, "nothing here")
    [hit] = search(history, "walrus")
    assert (hit.message, hit.chat, hit.role, hit.title) == (ids[1], 1, ASSISTANT, "t")
    assert hit.created == history.message(ids[1]).created
    assert " a [walrus] sleeps after" in _marked(hit.excerpt)
    assert len(hit.excerpt.text) <= EXCERPT_LENGTH + 2


@pytest.mark.parametrize("typed", ["wal", "WAL", "wàlrüs", "sleeps wal", " walrus ", "wal-rus"])
def test_what_is_typed_so_far_finds(history: History, typed: str) -> None:
    ids = _say(history, "the Walrus sleeps in a wal-rus")
    assert _found(search(history, typed)) == ids


@pytest.mark.parametrize("typed", ["", " \n", "walrus tusk", "NOT walrus", "\0"])
def test_what_is_not_there_is_not_found(history: History, typed: str) -> None:
    _say(history, "the Walrus sleeps")
    assert search(history, typed) == []


def test_titles_come_first_and_lead_to_no_message(history: History) -> None:
    _say(history, "tusks", title="on walruses")
    ids = _say(history, "a walrus", title="other")
    title, message = search(history, "walrus")
    assert (title.chat, title.message, title.role) == (1, None, "")
    assert _marked(title.excerpt) == "on [walruses]"
    assert message.message == ids[0]


def test_the_more_relevant_message_comes_first(history: History) -> None:
    far = _say(history, "walrus " + "and something else entirely " * 50)
    near = _say(history, "walrus walrus")
    assert _found(search(history, "walrus")) == [*near, *far]
    assert _found(search(history, "w")) == [*near, *far], "a single letter: newest first"
    assert _found(search(history, "walrus", limit=1)) == near


def test_every_version_is_found_and_an_unfinished_answer_is_not(history: History) -> None:
    chat = history.create_chat().id
    first = history.add_message(chat, None, USER, "walrus one")
    second = history.add_message(chat, None, USER, "walrus two")
    history.add_message(chat, second.id, ASSISTANT, "walrus", finish=STREAMING)
    assert sorted(map(str, _found(search(history, "walrus")))) == [str(first.id), str(second.id)]


def test_private_chats_are_found_by_their_owner(history: History) -> None:
    ids = _say(history, "a walrus", private=True)
    assert _found(search(history, "walrus")) == ids


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("天气", "今天[天气]很好"),
        ("alru", "a w[alru]s"),
        ("->", "x [->] y"),
        ("%)", "(9 [%)]"),
        ("_)", "(a[_)]"),
        ("\\", "a [\\] b"),
    ],
)
def test_what_the_index_cannot_find_is_looked_for_letter_by_letter(
    history: History, typed: str, shown: str
) -> None:
    for text in ("今天天气很好", "a walrus", "x -> y", "(9 %)", "(a_)", "a \\ b", "none)"):
        _say(history, text)
    assert [_marked(hit.excerpt) for hit in search(history, typed)] == [shown]


@pytest.mark.parametrize(
    ("text", "typed", "shown"),
    [
        ("the oﬃcer ﬁxed it", "officer fix", "the [oﬃcer] [ﬁxed] it"),
        ("Ｐｕｍｐ４７ stands", "pump47", "[Ｐｕｍｐ４７] stands"),
        ("重跑quay后修复了", "quay", "重跑[quay]后修复了"),
        ("重跑quay后修复了", "quay后修", "重跑[quay][后修]复了"),
        ("今天天气很好", "气", "今天天[气]很好"),
        (
            "the har\xadbour, a flood\u200bgate",
            "harbour floodg",
            "the [har\xadbour], a [flood\u200bgate]",
        ),
        ("die Mu\u0308hle", "mühle", "die [Mu\u0308hle]"),
        ("die Mühle", "mu\u0308hle", "die [Mühle]"),
        ("die Mühle", "MUHLE", "die [Mühle]"),
        ("\u1103\u1173\u11bc\u1103\u1162 지기", "등대", "[\u1103\u1173\u11bc\u1103\u1162] 지기"),
        ("สีกำแพงด้าน", "กำแพง", "สี[กำแพง]ด้าน"),
        ("اَلْقِيرُ هنا", "القير", "[اَلْقِيرُ] هنا"),
        ("क्या हिन्दी है", "हिन्दी", "क्या [हिन्दी] है"),
        ("the oﬃcer", "fice", "the o[ﬃce]r"),
        ("ﬀ", "f f", "[ﬀ]"),
    ],
)
def test_every_script_and_spelling_is_found_and_shown_as_written(
    history: History, text: str, typed: str, shown: str
) -> None:
    _say(history, text)
    _say(history, "something else: 明日の天候, 집, बात, บ้าน, mill and weir")
    assert [_marked(hit.excerpt) for hit in search(history, typed)] == [shown]


@pytest.mark.parametrize(
    ("text", "typed", "shown"),
    [
        ("the maxPoolSize", "pool ", "the max[Pool]Size"),
        ("the white-\nwash", "whitewash", "the white- wash"),
        ("die Mühle", "Muehle", "die Mühle"),
        ("a C++ file", "c++", "a [C++] file"),
        ("🍕 and 🍎", "🍎", "🍕 and [🍎]"),
        ("りんごの木", "リンゴ", "りんごの木"),
        ("المفتاح هنا", "المفتاح", "[المفتاح] هنا"),
    ],
)
def test_other_spellings_are_found(history: History, text: str, typed: str, shown: str) -> None:
    _say(history, text)
    _say(history, "something else")
    assert [_marked(hit.excerpt) for hit in search(history, typed)] == [shown]


def test_marks_in_a_text_are_text(history: History) -> None:
    _say(history, "<b>walrus</b> \x02walrus\x03 [walrus]")
    [hit] = search(history, "walrus")
    assert _marked(hit.excerpt) == "<b>[walrus]</b> \x02[walrus]\x03 [[walrus]]"


_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


@given(_TEXT, st.text(max_size=12) | st.text("ab-_ \u0301ﬀ天\xad\"'*", max_size=8))
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_nothing_typed_is_an_error(history: History, text: str, typed: str) -> None:
    _say(history, text, title=text)
    for hit in search(history, typed):
        assert "".join(piece for piece, _ in hit.excerpt.pieces()) == hit.excerpt.text
        assert "\n" not in hit.excerpt.text


_WORDS = st.lists(st.text("abcXYZ019", min_size=1, max_size=6), min_size=1, max_size=6)


@given(_WORDS, st.integers(0, 5), st.integers(1, 6))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_part_of_a_text_finds_it(
    history: History, words: list[str], number: int, size: int
) -> None:
    number %= len(words)
    ids = _say(history, " ".join(words))
    typed = words[number][:size]
    hits = search(history, typed, limit=10_000)
    assert ids[0] in _found(hits)
    assert all(hit.excerpt.spans for hit in hits)


@given(st.text(max_size=400), st.lists(st.tuples(st.integers(0, 399), st.integers(1, 30))))
def test_an_excerpt_shows_a_stretch_of_the_text(text: str, places: list[tuple[int, int]]) -> None:
    spans: list[tuple[int, int]] = []
    for start, length in sorted(places):
        if start + length <= len(text) and (not spans or start >= spans[-1][1]):
            spans.append((start, start + length))
    shown = excerpt(text, spans)
    assert len(shown.text) <= EXCERPT_LENGTH + 2
    assert bool(shown.spans) == bool(spans)
    stretch = shown.text.removeprefix("…").removesuffix("…")
    assert len(stretch.split()) <= len(text.split()) + 1
    for start, end in shown.spans:
        assert 0 <= start < end <= len(shown.text)


def test_an_excerpt_shows_the_rare_word_rather_than_the_frequent_one() -> None:
    text = "the " * 100 + "the walrus"
    spans = [(4 * n, 4 * n + 3) for n in range(101)] + [(404, 410)]
    assert _marked(excerpt(text, spans)).endswith("[the] [walrus]")


def test_answers_are_excerpted_from_what_is_shown_of_them(history: History) -> None:
    chat = history.create_chat().id
    asked = history.add_message(chat, None, "user", "<mark>why blue?")
    history.add_message(chat, asked.id, "assistant", "<mark>Blue light is scattered.")

    def readable(text: str) -> str:
        return text.removeprefix("<mark>")

    excerpts = {hit.role: _marked(hit.excerpt) for hit in search(history, "blue", 9, readable)}
    assert excerpts == {
        "user": "<mark>why [blue]?",
        "assistant": "[Blue] light is scattered.",
    }

"""The search form: what reads the same is one word, and is shown where it is in the original."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from datastores.search_form import (
    FoldedText,
    fold,
    grams,
    index_form,
    is_gram,
    split_runs,
    word_form,
)

TEXT = st.text(max_size=30) | st.text(
    "aZé ﬁ\u0301\u0308\xad\u200b가\u1100\u1161\u11a8かガｶﾞ中ก็\u094d™ß", max_size=20
)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("oﬃcer ﬁxed", "officer fixed"),
        ("Ｐｕｍｐ４７", "pump47"),
        ("flood\u200bgate", "floodgate"),
        ("har\xadbour", "harbour"),
        ("Mu\u0308ller", "Muller"),
        ("Müller", "Muller"),
        ("straße", "strasse"),
        ("Łódź, Tromsø, İzmir, đường", "lodz, Tromso, izmir, duong"),
        ("שָׁלוֹם", "שלום"),
        ("كِتَابـٌ", "كتاب"),
        ("Ёлка", "елка"),
        ("ὁδός", "οδοσ"),
        ("ｶﾞﾗｽ", "ガラス"),
        ("か\u3099", "が"),
        ("Linux™", "Linux "),
        ("हिन्दी", "हिन्दी"),
        ("ज़मीन", "जमीन"),
        ("cœur, Ægir, Þór", "coeur, aegir, thor"),
        ("کتابی", "كتابي"),
        ("٤٧ ४७ ๔๗", "47 47 47"),
        ("об\u02bcєкт ґанок", "об'єкт ганок"),
        ("t\u0337e\u0337xt", "text"),
    ],
)
def test_what_reads_the_same_is_folded_alike(written: str, read: str) -> None:
    assert fold(written) == read


def test_ascii_is_its_own_form() -> None:
    assert index_form("Plain_text, don't CHANGE it.") == "Plain_text, don't CHANGE it."


@pytest.mark.parametrize(
    ("text", "others"),
    [
        ("maxPoolSize", "max Pool Size"),
        ("parseXMLFile2", "parse XML File"),
        ("sha256 2to3", "sha to"),
        ("GitHub, JavaScript, iOS, URLs and README", ""),
        ("9f86d081884c7d65 aGVsbG8gd29ybGQ", ""),
        ("keep-\ner and white-\n> wash, A-\nB, Mon-\nTue", "keeper whitewash"),
        ("Größe", "groesse"),
    ],
)
def test_a_text_is_indexed_by_other_spellings_too(text: str, others: str) -> None:
    assert index_form(text) == "\n".join(filter(None, (word_form(fold(text)), others)))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("C++ and C#, C++17", "Cplusplus and Csharp , Cplusplus 17"),
        ("a#b +x #tag C", "a#b +x #tag C"),
        ("والكتاب للباب ال", "كتاب باب ال"),
        ("הבית והבית הר", "בית בית הר"),
        ("हिन्दी चाँद", "हिंदी चांद"),
        ("リンゴ", "りんご"),
    ],
)
def test_words_are_as_an_index_has_them(text: str, words: str) -> None:
    assert word_form(fold(text)).split() == words.split()


def test_scripts_without_blanks_are_bigrams_and_characters() -> None:
    assert index_form("守塔人。").split() == ["守塔", "塔人", "守", "塔", "人", "。"]
    assert index_form("重跑quay后").split() == ["重跑", "重", "跑", "quay", "后"]
    assert grams("แมวที่") == ["แม", "มว", "วที่"]
    korean = unicodedata.normalize("NFD", "등대는")
    assert index_form(korean).split() == ["등대", "대는", "등", "대", "는"]
    assert split_runs("a灯塔b") == [("a", False), ("灯塔", True), ("b", False)]
    assert is_gram("灯塔")
    assert not is_gram("tower")


@given(TEXT)
@example("\ufe77")  # an Arabic point on a tatweel, which is dropped
def test_folding_twice_changes_nothing(text: str) -> None:
    assert fold(fold(text)) == fold(text)


@given(TEXT)
def test_pieces_are_folded_as_the_whole_is(text: str) -> None:
    folded = FoldedText(text)
    assert folded.text == fold(text).lower()
    for at in range(len(folded.text)):
        start, end = folded.span(at, at + 1)
        assert 0 <= start < end <= len(text)


@pytest.mark.parametrize(
    "word", ["cafe\u0301", "harbour\xad", "ﬁ", "Mu\u0308", "\u1103\u1173\u11bc"]
)
def test_a_character_is_shown_with_its_marks(word: str) -> None:
    folded = FoldedText(f"a {word} b {word}")
    assert folded.span(2, folded.text.index(" b")) == (2, 2 + len(word))
    assert folded.span(folded.text.rindex(" ") + 1, len(folded.text))[1] == 5 + 2 * len(word)


@given(TEXT, TEXT, TEXT)
def test_what_is_found_is_where_it_stands(before: str, word: str, after: str) -> None:
    text = f"{before}|{word}|{after}"
    folded = FoldedText(text)
    found = folded.text.index("|" + fold(word).lower() + "|", len(fold(before)))
    start, end = folded.span(found, found + len(fold(word)) + 2)
    assert text[start:end].startswith("|")
    assert fold(word) in fold(text[start:end])

"""Word translations: learned from pairs and dictionaries, and shipped."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from app.indexing.passage_index import translations
from assets.recipe import translations as recipe
from assets.recipe.translations import Pair, learn, read_dictionaries
from datastores.passages.word_counts import key_of

PAIRS: list[Pair] = [
    (["delet", "file"], ["remov", "file"]),
    (["delet", "user"], ["remov", "user"]),
    (["delet", "group"], ["remov", "group"]),
    (["list", "user"], ["show", "user"]),
    *(([f"asked{number}"], [f"text{number}"]) for number in range(20)),
] * 10


def chances(
    dictionary: Mapping[str, Mapping[str, float]] | None = None,
) -> dict[str, Mapping[str, float]]:
    return {word: others for word, _, others in learn(PAIRS, dictionary or {}, {})}


def test_words_that_occur_together_are_told_from_words_that_belong_together() -> None:
    learned = chances()
    assert next(iter(learned["delet"])) == "remov"
    assert learned["delet"]["remov"] > 0.5
    assert "remov" not in learned["file"]
    assert 0.0 < learned["file"]["file"] < 1.0
    assert "zoo" not in learned


def test_a_dictionary_decides_where_pairs_say_little() -> None:
    dictionary = {"walru": {"tusk": 3.0, "seal": 1.0}, "remov": {"eras": 1.0}}
    learned = chances(dictionary)
    assert learned["tusk"]["walru"] > learned["seal"]["walru"] > 0.0
    assert learned["delet"]["remov"] > learned["eras"]["remov"] > 0.0


def test_questions_outside_the_subject_make_words_common() -> None:
    shares = {word: share for word, share, _ in learn(PAIRS, {}, {})}
    more = {word: share for word, share, _ in learn(PAIRS, {}, {"file": 9, "zoo": 1})}
    assert shares["file"] == pytest.approx(10 / 280 / 2)
    assert more["file"] == pytest.approx((10 / 280 + 0.9) / 2)


def test_dictionaries_have_stems_both_ways() -> None:
    words = read_dictionaries()
    assert words["duplic"]["copi"] > 0.0, "copy-pasted"
    assert words["directori"]["folder"] > words["directori"].get("walru", 0.0)
    assert all(word not in others for word, others in words.items())


def test_shipped_translations_know_other_words_for_common_ones() -> None:
    for word, other in (("delet", "remov"), ("folder", "directori"), ("unpack", "extract")):
        assert translations().of(word).chances[key_of(other)] > 0.0


def test_nothing_to_learn_from_leaves_the_dictionary() -> None:
    ((word, share, others),) = learn([], {"walru": {"tusk": 1.0}}, {})
    assert (word, share) == ("tusk", 0.0)
    assert others["walru"] > 0.0


def test_a_dictionary_entry_falls_off() -> None:
    head, words = recipe._entry("several: multiple many | few")
    assert head == "several"
    assert words == [("multiple", 1.0), ("many", recipe.LATER), ("few", recipe.SECONDARY)]

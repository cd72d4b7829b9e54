"""Excerpts: which items of the lists in passages are kept for a question, and in which form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hypothesis import example, given
from hypothesis import strategies as st

from datastores.passages.chunks import Chunk, split
from engines.retrieval.excerpts import (
    INTRODUCTION_CHARACTERS,
    IntroducedList,
    best_items,
    describe_fit,
    entry_text,
    excerpts,
    parse_chunks,
    split_lists,
)
from engines.retrieval.question_likelihood import AskedQuestion, parse_question
from engines.retrieval.translations import Translations

ZIP = """# zip

> Package files.

- Add files:

`zip {{archive.zip}} {{file}}`

- Remove files:

`zip --delete {{archive.zip}} {{file}}`

- Make it secret:

`zip --encrypt {{archive.zip}} {{file}}`"""
CARS = "# Cars\n\n- Wash the car:\n\n`wash`\n\n- Remove the roof:\n\n`roof --off`"


class Even:
    """Every word is as rare as any other."""

    def __len__(self) -> int:
        return 1

    def frequency(self, word: str) -> int:
        return 1


def asked(question: str, lines: Mapping[str, str] | None = None) -> AskedQuestion:
    return parse_question(question, Translations(lines), Even())


def kept(
    texts: Sequence[str], question: str, most: int, lines: Mapping[str, str] | None = None
) -> list[tuple[int, str]]:
    chunks = [next(split(text)) for text in texts]
    return [(each.passage, each.text) for each in excerpts(chunks, asked(question, lines), most)]


def items_of(text: str) -> list[str]:
    (found,) = split_lists(next(split(text)))
    return found.items


def test_the_best_items_of_all_passages_stand_below_their_introductions() -> None:
    found = kept([CARS, ZIP], "remove files from a zip archive", 2)
    head, *_ = ZIP.partition("\n\n- ")
    adding, removing, _ = items_of(ZIP)
    assert found == [(1, f"{head}\n\n{removing}\n\n{adding}")]
    both = kept([CARS, ZIP], "remove the roof, remove files", 2)
    assert [number for number, _ in both] == [0, 1], "the best item's passage first"


def test_other_words_count_less_than_the_words_themselves() -> None:
    erase = {"eras": "5 remov:1000"}
    assert "Remove files" in kept([ZIP], "erase", 1, erase)[0][1]
    assert "Make it secret" in kept([ZIP], "erase secret", 1, erase)[0][1]


def test_what_fits_too_little_is_left_out() -> None:
    chunk, question = next(split(CARS)), asked("wash the giraffe car windows")
    (found,) = excerpts([chunk], question, 1)
    assert excerpts([chunk], question, 2, found.fit)[0].text == found.text, "the roof fits less"
    assert not excerpts([chunk], question, 1, found.fit + 0.001)
    (unasked,) = excerpts([chunk], asked(""), 1)
    assert unasked.fit == 0.0


def test_how_well_something_fits_is_put_into_words() -> None:
    assert [describe_fit(fit) for fit in (2.2, 1.8, 1.5, 1.3, 0.0)] == [
        "fit", "probably fit", "may fit", "hardly fit", "do not seem to fit",
    ]  # fmt: skip


def test_a_text_without_a_list_is_one_item() -> None:
    prose = "The walrus keeps telescopes.\n\nIn the attic."
    assert kept([CARS, prose], "walrus", 1) == [(1, prose)]
    assert split_lists(Chunk("", 1, 3, prose)) == [IntroducedList("", [prose])]


def test_prose_is_as_good_as_its_best_paragraph() -> None:
    prose = "The walrus keeps telescopes in the attic.\n\nWinter is long in the north."
    first, *_ = prose.split("\n\n")
    asking = asked("telescopes of the walrus")
    whole, alone = (Chunk("", 1, 3, text) for text in (prose, first))
    both = [one.score for one in best_items(parse_chunks([whole, alone]), asking)]
    assert both[0] == both[1] > 0.0
    (found,) = excerpts([whole], asking, 1)
    assert found.text == prose


def test_ties_keep_their_order() -> None:
    assert kept([ZIP], "giraffe", 1) == [
        (0, "\n\n".join((ZIP.partition("\n\n- ")[0], items_of(ZIP)[0])))
    ]


def test_a_passage_fits_as_well_as_the_best_item_kept_whatever_a_model_prefers() -> None:
    class PrefersOthers:
        def log_likelihoods(self, question: str, texts: Sequence[str]) -> list[float]:
            return [0.0 if "walrus" not in text else -99.0 for text in texts]

    chunk = next(split("Zoo:\n\n- Giraffes drive cars\n- The walrus drives cars\n"))
    query, known = "walrus cars", Translations({"walru": "5 walru:10", "car": "5 car:10"})
    (plain,) = excerpts([chunk], parse_question(query, known, Even()), 2)
    (found,) = excerpts([chunk], parse_question(query, known, Even(), PrefersOthers()), 2)
    assert plain.text != found.text
    assert plain.fit == found.fit


def test_a_later_part_of_a_list_gets_its_heading() -> None:
    chunk = Chunk("Tools > zip", 9, 11, "- Remove files:\n\n`zip -d`")
    (found,) = excerpts([chunk], asked("remove"), 3)
    assert found.text == "# zip\n\n- Remove files:\n\n`zip -d`"


def test_a_hashtag_is_no_heading() -> None:
    chunk = Chunk("Zoo > Feeding", 1, 1, "#lynx likes meat.")
    (found,) = excerpts([chunk], asked("feeding"), 1)
    assert found.text == "# Feeding\n\n#lynx likes meat."
    assert found.fit > 0.0


def test_items_are_not_sought_in_fenced_code_or_within_others() -> None:
    text = "Do:\n\n* one\n  - a part\n\n```\n- no item\n```\n\n2. two\n"
    (found,) = split_lists(Chunk("", 1, 9, text))
    assert found.introduction == "Do:"
    assert found.items == ["* one\n  - a part\n\n```\n- no item\n```", "2. two"]
    (found,) = split_lists(Chunk("", 1, 2, "~~~\n- x\n"))
    assert found == IntroducedList("", ["~~~\n- x"])


def test_a_heading_ends_a_list_and_introduces_the_next() -> None:
    text = "# Backups\n\n- Every Sunday.\n\n## Printer\n\n- Toner: cellar.\n- Paper: attic."
    assert kept([text], "where is the printer toner?", 1) == [(0, "## Printer\n\n- Toner: cellar.")]
    assert kept([text], "printer toner, or backups every sunday", 2) == [
        (0, "# Backups\n\n- Every Sunday.\n\n## Printer\n\n- Toner: cellar.")
    ]
    again = kept(
        [f"{text}\n\n## Printer jobs\n\n- Toner, too."], "printer toner cellar jobs paper", 3
    )
    assert again[0][1] == (
        "## Printer\n\n- Toner: cellar.\n\n- Paper: attic.\n\n## Printer jobs\n\n- Toner, too."
    ), "each below what introduces it, although the second toner ranks above the paper"
    (found,) = kept(["# A\n\n- b\n\n## C\n\nThe walrus."], "walrus", 1)
    assert found == (0, "## C\n\nThe walrus.")


BLOCKS = ["- walrus", "* b", "1. c", "text", "", "```\n- e\n```", "  - d", "# h"]
TEXTS = st.lists(st.lists(st.sampled_from(BLOCKS)).map("\n".join), min_size=1, max_size=3)


@given(TEXTS, st.integers(1, 4))
@example(["- walrus\n- walrus"], 2)
def test_nothing_is_made_up_and_as_much_is_kept_as_asked_for(texts: list[str], most: int) -> None:
    chunks = [Chunk("", 1, 1, text) for text in texts]
    found = excerpts(chunks, asked("walrus"), most)
    assert len({each.passage for each in found}) == len(found)
    for each in found:
        assert set(each.text.split("\n")) <= {*texts[each.passage].split("\n"), ""}
    marks = sum(line == "- walrus" for each in found for line in each.text.split("\n"))
    every = sum(line == "- walrus" for text in texts for line in text.split("\n"))
    assert marks == min(most, every), "the best come first"


class Likes:
    """Finds the question far likelier after texts with a certain word."""

    def __init__(self, word: str) -> None:
        self.word = word
        self.read: list[str] = []

    def log_likelihoods(self, question: str, texts: Sequence[str]) -> list[float]:
        self.read = list(texts)
        return [0.0 if self.word in text else -100.0 for text in texts]


def test_a_model_of_questions_chooses_among_what_fits() -> None:
    chunk, model = next(split(ZIP)), Likes("secret")
    known = Translations({"file": "5 file:10", "remov": "5 remov:10", "secret": "5 secret:10"})
    plain = parse_question("remove secret files", known, Even())
    liking = parse_question("remove secret files", known, Even(), model)
    (first,) = excerpts([chunk], plain, 1)
    assert "Remove files" in first.text
    assert "secret" in excerpts([chunk], liking, 1)[0].text
    assert excerpts([chunk], liking, 1, first.fit) == [first], "the other fits less"
    assert {one.passage for one in excerpts([chunk], liking, 9)} == {0}


def test_a_model_of_questions_reads_an_item_and_what_introduces_it() -> None:
    introduction = f"# zip\n\n> More: <https://example.org/{'x' * 300}>.\n> Package files."
    assert (
        entry_text(introduction, "- Add files")
        == "# zip\n\n> More: \n> Package files.\n\n- Add files"
    )
    long = entry_text("word " * 100, "item")
    assert long == f"{('word ' * 100)[:INTRODUCTION_CHARACTERS].strip()}\n\nitem"
    prose = "The walrus keeps telescopes in the attic.\n\nWinter is long in the north."
    (best,) = best_items(parse_chunks([Chunk("", 1, 3, prose)]), asked("north winter"))
    assert (best.text, best.entry) == (prose, "Winter is long in the north.")

"""Passages follow the library: by differences, back to files, and to the last byte."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import cast
from unicodedata import normalize

import numpy as np
import pytest

from app.indexing import passage_index
from app.indexing.passage_index import (
    Gate,
    find,
    forget_passages,
    open_passages,
    update,
)
from app.locations import Locations
from datastores.library.documents import NOTES, Document, Part, StoreDocument
from datastores.library.library import Library
from datastores.passages.embeddings import Embedder, Encoding, UnrelatedTexts, Vectors
from datastores.passages.store import PassageStore
from engines.retrieval import nearness, reranking
from engines.retrieval.dense import MISSING, DenseRetriever
from engines.retrieval.late_interaction import AskedTokens, Matches
from engines.retrieval.protocol import ScoredPassage
from tests.datastores.older import older_database


@pytest.fixture
def locations(tmp_path: Path) -> Locations:
    return Locations(data=tmp_path, cache=tmp_path / "cache", config=tmp_path)


@pytest.fixture
def library(locations: Locations) -> Iterator[Library]:
    with closing(Library.open(locations.library)) as opened:
        yield opened


@pytest.fixture
def passages(locations: Locations) -> Iterator[PassageStore]:
    with closing(open_passages(locations)) as opened:
        yield opened


@pytest.fixture
def scripts(library: Library, passages: PassageStore) -> tuple[Library, PassageStore]:
    for name, text in SCRIPTS.items():
        put(library, "/notes", name, text)
    updated(library, passages)
    return library, passages


def put(library: Library, import_path: str, file: str, text: str) -> None:
    library.write([StoreDocument(import_path, file, 0, Document(file, (Part(NOTES, text),)))])


def updated(library: Library, passages: PassageStore) -> list[int]:
    return list(update(library, passages))


def test_a_passage_leads_back_to_its_file(library: Library, passages: PassageStore) -> None:
    put(library, "/notes", "animals/walrus.md", "# Walrus\n\nIt keeps telescopes.")
    put(library, "/one.md", "one.md", "Something else.")
    assert updated(library, passages) == [2, 1]
    (found,) = find(library, passages, "telescopes", 5)
    assert (found.import_path, found.file) == ("/notes", "animals/walrus.md")
    assert found.path == Path("/notes/animals/walrus.md")
    assert (found.chunk.heading, found.chunk.first_line, found.chunk.last_line) == ("Walrus", 1, 3)
    (other,) = find(library, passages, "something", 5)
    assert other.path == Path("/one.md")


def test_a_changed_file_costs_that_file(library: Library, passages: PassageStore) -> None:
    for number in range(10):
        put(library, "/notes", f"{number}.md", f"note {number}")
    assert len(updated(library, passages)) == 10
    put(library, "/notes", "3.md", "a giraffe")
    assert updated(library, passages) == [1]
    assert updated(library, passages) == []
    assert [one.file for one in find(library, passages, "giraffe", 5)] == ["3.md"]
    assert len(find(library, passages, "note", 20)) == 9


def test_passages_get_the_name_that_their_file_has_now(
    locations: Locations, library: Library, passages: PassageStore
) -> None:
    put(library, "/letters", "xylophone.md", "It has strings.")
    put(library, "/notes", "guitar.md", "It has strings.")
    updated(library, passages)
    assert find(library, passages, "xylophone", 5)[0].chunk.heading == "xylophone"
    library.forget("/letters")
    library.erase()
    forget_passages(locations)
    assert b"xylophon" not in locations.passages.read_bytes().lower()
    assert updated(library, passages) == [1]
    (found,) = find(library, passages, "guitar", 5)
    assert (found.chunk.heading, found.chunk.content) == ("guitar", "It has strings.")
    assert updated(library, passages) == []


def test_it_goes_on_where_it_was_stopped(library: Library, passages: PassageStore) -> None:
    for number in range(4):
        put(library, "/notes", f"{number}.md", f"note {number}")
    stopped = update(library, passages)
    assert [next(stopped), next(stopped)] == [4, 3]
    stopped.close()
    assert updated(library, passages) == [3, 2, 1]
    assert len(find(library, passages, "note", 20)) == 4


def test_a_long_document_does_not_crowd_out_the_rest(
    library: Library, passages: PassageStore
) -> None:
    put(library, "/notes", "long.md", "\n\n".join(f"walrus {'word ' * 150}" for _ in range(9)))
    put(library, "/notes", "short.md", f"walrus {'other ' * 150}")
    updated(library, passages)
    assert [one.file for one in find(library, passages, "walrus", 3)].count("long.md") == 2


def test_one_import_is_searched_alone(library: Library, passages: PassageStore) -> None:
    put(library, "/a", "1.md", "walrus")
    put(library, "/b", "1.md", "a walrus and more")
    updated(library, passages)
    assert [one.import_path for one in find(library, passages, "walrus", 5, frozenset({"/b"}))] == [
        "/b"
    ]


def test_items_of_lists_are_excerpted_and_still_lead_back(
    library: Library, passages: PassageStore
) -> None:
    zip_page = "# zip\n\n- Pack files:\n\n`zip`\n\n- Remove files:\n\n`zip -d`"
    put(library, "/notes", "zip.md", zip_page)
    put(library, "/notes", "rm.md", "# rm\n\n- Ask before files go:\n\n`rm -i`")
    updated(library, passages)
    whole = {one.file: one for one in find(library, passages, "remove zip files", 5)}
    assert set(whole) == {"zip.md", "rm.md"}
    (found,) = find(library, passages, "remove zip files", 5, items=1)
    assert found.quoted == "# zip\n\n- Remove files:\n\n`zip -d`"
    assert found.chunk == whole["zip.md"].chunk, "cited as what it is"
    assert whole["zip.md"].quoted == zip_page


def test_what_is_forgotten_leaves_no_byte(
    library: Library, passages: PassageStore, locations: Locations
) -> None:
    put(library, "/notes", "a.md", "the xylophone")
    put(library, "/notes2", "b.md", "the rest")
    updated(library, passages)
    library.forget("/notes")
    forget_passages(locations)
    assert find(library, passages, "xylophone", 5) == []
    assert len(find(library, passages, "rest", 5)) == 1
    for file in locations.projections.iterdir():
        assert b"xylophon" not in file.read_bytes()


def test_nothing_is_made_where_nothing_was_searched(locations: Locations) -> None:
    forget_passages(locations)
    assert not locations.passages.exists()


class Nearest:
    """A dense retriever that finds the passages of these files, in this order, all very near."""

    unrelated = UnrelatedTexts(0.0, 0.1)
    embedder = Embedder("a fingerprint", "/models/embedder.gguf", 1, unrelated, unrelated)

    def __init__(self, library: Library, passages: PassageStore, files: Sequence[str]) -> None:
        keys = {library.places(key)[0].file: key for key in library.digests()}
        found = passages.of_texts(keys[file] for file in files)
        self.found = [ScoredPassage(one, 1 - rank / 50) for rank, one in enumerate(found)]

    def encode(self, queries: Sequence[str]) -> list[Encoding]:
        return [Encoding(np.ones(1, np.float32), np.empty((0, 1), np.float32)) for _ in queries]

    def search_vectors(self, queries: Vectors, limit: int) -> list[list[ScoredPassage]]:
        return [self.found[: limit if limit >= 0 else None] for _ in queries]

    def score_vector(self, query: Vectors, passages: Sequence[int]) -> list[float]:
        scores = {one.passage.id: one.score for one in self.found}
        return [scores.get(number, MISSING) for number in passages]

    def match_tokens(self, query: AskedTokens, passages: Sequence[int]) -> dict[int, Matches]:
        return {}


def hybrid(
    library: Library,
    passages: PassageStore,
    query: str,
    files: Sequence[str],
    *,
    gate: Gate = Gate.ALL,
    items: int = 0,
) -> list[str]:
    dense = cast(DenseRetriever, Nearest(library, passages, files))
    found = find(library, passages, query, 4, gate=gate, dense=dense, items=items)
    return [one.file for one in found]


class Matching(Nearest):
    """Its passages match the tokens of every question as given, by file."""

    def __init__(
        self, library: Library, passages: PassageStore, matches: Mapping[str, Sequence[float]]
    ) -> None:
        super().__init__(library, passages, list(matches))
        self.matches = {
            one.passage.id: np.array(own)
            for one, own in zip(self.found, matches.values(), strict=True)
        }

    def score_vector(self, query: Vectors, passages: Sequence[int]) -> list[float]:
        return [0.0 for _ in passages]

    def match_tokens(self, query: AskedTokens, passages: Sequence[int]) -> dict[int, Matches]:
        return {number: self.matches[number] for number in passages if number in self.matches}


def test_after_the_best_come_passages_that_match_what_it_leaves_open(
    library: Library, passages: PassageStore
) -> None:
    put(library, "/notes", "cat.md", "Mimi eats twice.")
    put(library, "/notes", "kitten.md", "Mimi ate once, when small.")
    put(library, "/notes", "hens.md", "Greens are thrown over at noon.")
    put(library, "/notes", "boat.md", "Varnish.")
    updated(library, passages)
    matches = {
        "cat.md": [0.9, 0.9, 0.2, 0.2],
        "kitten.md": [0.8, 0.9, 0.2, 0.2],
        "hens.md": [0.2, 0.2, 0.8, 0.8],
        "boat.md": [0.1, 0.1, 0.1, 0.1],
    }
    dense = cast(DenseRetriever, Matching(library, passages, matches))
    found = find(library, passages, "quando mangiano?", 4, dense=dense)
    assert [one.file for one in found] == ["cat.md", "hens.md", "kitten.md", "boat.md"]
    assert found[1].score < found[2].score


def test_words_and_meaning_add_up(
    library: Library, passages: PassageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(library, "/notes", "car.md", "Parking a car in the garage.")
    put(library, "/notes", "automobile.md", "Automobiles are left in a shed.")
    put(library, "/notes", "garage.md", "A garage, a garage, a car garage.")
    put(library, "/notes", "bread.md", "Baking bread.")
    updated(library, passages)
    query, near = "parking a car in the garage", ["automobile.md", "car.md", "bread.md"]
    both = hybrid(library, passages, query, near)
    assert both[0] == "car.md", "second by words, second by meaning"
    assert set(both) == {"car.md", "automobile.md", "garage.md", "bread.md"}
    assert "automobile.md" in hybrid(library, passages, query, near, gate=Gate.RELEVANT)
    elsewhere = "who wrote the sonnets about zebras?"
    assert hybrid(library, passages, elsewhere, near, gate=Gate.RELEVANT) == near, "very near"
    monkeypatch.setattr(nearness, "CHANCE", 9.0)  # as if none were nearer than by chance
    assert hybrid(library, passages, elsewhere, near, gate=Gate.RELEVANT) == []
    assert hybrid(library, passages, elsewhere, near) == near


def test_meaning_leads_where_a_passage_shares_no_word_with_the_question(
    library: Library, passages: PassageStore
) -> None:
    put(library, "/notes", "tyre.md", "Rear 5 bar.")
    put(library, "/notes", "wheel.md", "How hard the wheel of the mill turns, and how to pump.")
    updated(library, passages)
    query = "how hard do I pump the back wheel?"
    assert find(library, passages, query, 4)[0].file == "wheel.md"
    assert hybrid(library, passages, query, ["tyre.md", "wheel.md"])[0] == "wheel.md"
    assert hybrid(library, passages, query, ["tyre.md"])[0] == "tyre.md"


def test_an_item_has_to_fit_unless_its_passage_is_near_by_meaning(
    library: Library, passages: PassageStore
) -> None:
    scattered = "- Where the car is.\n- Hail last week.\n- Thieves in town.\n- Flooding, too."
    put(library, "/notes", "garage.md", scattered)
    put(library, "/notes", "shed.md", "- Automobiles are left here.")
    updated(library, passages)
    query = "is the car insured against hail, thieves and flooding?"
    assert find(library, passages, query, 4, gate=Gate.RELEVANT)
    assert find(library, passages, query, 4, items=1)
    assert not find(library, passages, query, 4, gate=Gate.RELEVANT, items=1)
    assert find(library, passages, "hail last week", 4, gate=Gate.RELEVANT, items=1)
    near = hybrid(library, passages, "car parking", ["shed.md"], gate=Gate.RELEVANT, items=1)
    assert len(near) == 1


def test_among_many_an_item_with_rare_words_of_the_question_has_to_fit_all_the_better(
    library: Library, passages: PassageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(9):
        put(library, "/notes", f"{number}.md", f"One more note, number {number}.")
    put(library, "/notes", "garage.md", "The car is in the garage behind the mill.")
    updated(library, passages)
    monkeypatch.setattr(reranking, "CHANCE", 99.0)  # as if there were very many
    query = "is the car in the garage behind the mill?"
    for sharing_fit, items, found in ((1.5, 1, 1), (9.0, 1, 0), (9.0, 0, 1)):
        monkeypatch.setattr(passage_index, "SHARING_FIT", sharing_fit)
        shown = find(library, passages, query, 4, gate=Gate.RELEVANT, items=items)
        assert len(shown) == found


def test_items_are_those_of_the_passage_that_both_rankings_prefer(
    library: Library, passages: PassageStore
) -> None:
    put(library, "/notes", "garage.md", "- Parking a car in the garage.")
    put(library, "/notes", "car.md", "- Where the car goes, and parking.\n\n- Bread.")
    updated(library, passages)
    query = "parking a car in the garage"
    (by_words,) = find(library, passages, query, 4, items=1)
    assert by_words.file == "garage.md"
    assert hybrid(library, passages, query, ["car.md"], items=1) == ["car.md"]


def test_a_document_takes_two_places_of_both_rankings_at_most(
    library: Library, passages: PassageStore
) -> None:
    long = "\n\n".join(f"# Part {number}\n\n{'walrus ' * 120}" for number in range(6))
    put(library, "/notes", "long.md", long)
    put(library, "/notes", "short.md", "a seal")
    updated(library, passages)
    found = hybrid(library, passages, "walrus", ["long.md", "short.md"])
    assert sorted(found) == ["long.md", "long.md", "short.md"]


SCRIPTS = {
    "zh": "# 灯塔\n\n守塔人每年四月粉刷北面的墙壁，需要十二升白漆。",
    "glued": "# 记录\n\n重跑quay后修复了水门。另见 dock-weir后。",
    "ja": "# 灯台\n\n灯台守は毎年四月に北側の壁を白く塗る。ペンキは十二リットル必要だ。",
    "ko": normalize(
        "NFD", "등대지기는 매년 사월에 북쪽 벽을 칠한다. 흰 페인트 열두 리터가 필요하다."
    ),
    "th": "ผู้ดูแลประภาคารทาสีกำแพงด้านเหนือทุกเดือนเมษายน",
    "he": "שׁוֹמֵר הַמִּגְדַּלּוֹר צוֹבֵעַ אֶת הַקִּיר",
    "ar": "حارِسُ المَنارَةِ يَطلي الجِدارَ في أبريل",
    "hi": "दीपस्तंभ का रखवाला हर अप्रैल उत्तर की दीवार रंगता है",
    "de": normalize("NFD", "Der Müller läßt die Mühle über Nacht stehen."),
    "ligatures": "The oﬃcer ﬁxed the ﬂoodgate.",
    "wide": "Ｐｕｍｐ４７ stands below the weir.",
    "hidden": "The har\xadbour master keeps the quay\u200bside ledger.",
    "en": "Bees swarm in May, and the quince ripens late.",
}


@pytest.mark.parametrize(
    ("query", "file"),
    [
        ("粉刷", "zh"), ("十二升白漆", "zh"), ("守塔人", "zh"), ("漆", "zh"), ("灯塔", "zh"),
        ("修复水门", "glued"), ("quay", "glued"), ("dock 另见", "glued"),
        ("灯台守", "ja"), ("ペンキ", "ja"), ("ﾍﾟﾝｷ", "ja"),
        ("등대지기", "ko"), ("페인트", "ko"), (normalize("NFD", "등대"), "ko"),
        ("กำแพง", "th"), ("הקיר", "he"), ("الجدار", "ar"), ("दीवार", "hi"),
        ("Mühle", "de"), ("muhle", "de"), (normalize("NFD", "Müller"), "de"),
        ("officer", "ligatures"), ("floodgate", "ligatures"), ("pump47", "wide"),
        ("Ｐｕｍｐ４７", "wide"), ("harbour", "hidden"), ("quayside", "hidden"),
    ],
)  # fmt: skip
def test_words_are_found_in_every_script_and_nothing_else_is_listed(
    scripts: tuple[Library, PassageStore], query: str, file: str
) -> None:
    assert [one.file for one in find(*scripts, query, 5, gate=Gate.MATCHING)] == [file]


@pytest.mark.parametrize(
    ("question", "file"),
    [
        ("灯塔的墙壁什么时候粉刷？", "zh"),
        ("粉刷北面的墙壁需要多少白漆？", "zh"),
        ("灯台の北側の壁はいつ塗りますか？", "ja"),
        ("ペンキは何リットル必要ですか？", "ja"),
        ("등대지기는 언제 북쪽 벽을 칠하나요?", "ko"),
        ("מי צובע את הקיר?", "he"),
        ("من يطلي الجدار في أبريل؟", "ar"),
        ("What did the officer do to the floodgate?", "ligatures"),
    ],
)
def test_questions_in_every_script_are_answered_from_imports(
    scripts: tuple[Library, PassageStore], question: str, file: str
) -> None:
    assert [one.file for one in find(*scripts, question, 2, gate=Gate.RELEVANT)][:1] == [file]


@pytest.mark.parametrize(
    "question", ["今天天气怎么样？", "明日の天気はどうですか？", "오늘 날씨는 어때요?"]
)
def test_questions_about_something_else_are_not(
    scripts: tuple[Library, PassageStore], question: str
) -> None:
    assert find(*scripts, question, 2, gate=Gate.RELEVANT) == []


SPELLINGS = {
    "umlauts": "Die Mühle in Århus mahlt Körner.",
    "digraphs": "Der Baecker verkauft Broetchen.",
    "articles": "المفتاح تحت الحجر. המפתח מתחת לאבן.",
    "persian": "کلید کتاب‌خانه پیش نگهبان است.",
    "digits": "الغرفة ٤٧ مغلقة.",
    "hindi": "हिन्दी की किताब सड़क पर मिली।",
    "malayalam": "അവൻ വീട്ടിൽ ഉണ്ട്.",
    "kana": "りんごの木は二月に剪定する。",
    "code": "Set maxPoolSize, or call HTTPServerError.",
    "snake": "The limit is retry_count.",
    "names": "Compile it with a C++ compiler, not a C# one.",
    "emoji": "Bring 🍕 to the quay.",
    "hyphens": "The white-\nwash was mixed on-line by O'Brien.",
    "compound": "The lighthouse has 1,234,567 bricks.",
    "french": "Le cœur et l'œuf.",
    "entities": "Caf&eacute; and th&eacute;.",
    "icelandic": "Þórður fór út í veður.",
}


@pytest.mark.parametrize(
    ("query", "file"),
    [
        ("Muehle", "umlauts"), ("muhle", "umlauts"), ("aarhus", "umlauts"),
        ("Bäcker", "digraphs"), ("Brötchen", "digraphs"),
        ("مفتاح", "articles"), ("الحجر", "articles"), ("מפתח", "articles"),
        ("كتابخانه", "persian"), ("47", "digits"), ("غرفة", "digits"),
        ("हिंदी", "hindi"), ("सडक", "hindi"), ("അവന്\u200d", "malayalam"), ("リンゴ", "kana"),
        ("max pool size", "code"), ("pool", "code"), ("max_pool_size", "code"),
        ("HTTP server error", "code"), ("retryCount", "snake"), ("C++", "names"),
        ("c#", "names"), ("🍕", "emoji"), ("whitewash", "hyphens"), ("online", "hyphens"),
        ("obrien", "hyphens"), ("light house", "compound"), ("1234567", "compound"),
        ("coeur", "french"), ("café", "entities"), ("thordur", "icelandic"),
    ],
)  # fmt: skip
def test_other_spellings_of_a_word_are_found(
    library: Library, passages: PassageStore, query: str, file: str
) -> None:
    for name, text in SPELLINGS.items():
        put(library, "/notes", name, text)
    updated(library, passages)
    assert [one.file for one in find(library, passages, query, 5, gate=Gate.MATCHING)] == [file]


ASKED_OTHERWISE = {
    "torch": "电池更换：拧开后盖，取出旧的，装入两节新的。",
    "radio": "收音机的电池仓在背面，电池型号是五号。",
    "pets": "宠物疫苗接种时间为每年三月。",
    "bills": "账单支付方式：支付宝或银行转账。",
    "lamp": "電池の交換は裏蓋を開けて行います。",
}


@pytest.mark.parametrize(
    ("question", "file"),
    [("换电池", "torch"), ("怎么换电池", "torch"), ("打疫苗", "pets"), ("付账单", "bills"),
     ("電池を交換する方法", "lamp")],
)  # fmt: skip
def test_a_chinese_verb_may_stand_before_or_behind_its_noun(
    library: Library, passages: PassageStore, question: str, file: str
) -> None:
    for name, text in ASKED_OTHERWISE.items():
        put(library, "/notes", name, text)
    updated(library, passages)
    assert [one.file for one in find(library, passages, question, 1)] == [file]
    found = find(library, passages, question, 2, gate=Gate.RELEVANT)
    assert [one.file for one in found][:1] == [file]
    for other in ("换工作", "打电话", "付房租", "买车险", "换个发型"):
        assert find(library, passages, other, 2, gate=Gate.RELEVANT) == []


def test_passages_that_do_not_match_are_not_listed(
    library: Library, passages: PassageStore
) -> None:
    put(library, "/notes", "ferry.md", "The ferry to Aspholm costs nine crowns for adults.")
    put(library, "/notes", "costs.md", "What the mill costs is not known.")
    put(library, "/notes", "convert.md", "Convert the list of files to a table.")
    updated(library, passages)
    found = find(library, passages, "ferry Aspholm costs", 5, gate=Gate.MATCHING)
    assert [one.file for one in found] == ["ferry.md"]
    assert find(library, passages, "zebra stripes", 5), "a word that may stand for it"
    assert find(library, passages, "zebra stripes", 5, gate=Gate.MATCHING) == []


def test_passages_of_an_older_version_are_indexed_again(
    locations: Locations, library: Library
) -> None:
    put(library, "/notes", "zh.md", SCRIPTS["zh"])
    locations.passages.parent.mkdir(parents=True)
    locations.passages.write_bytes(older_database("passages", 4))
    with closing(open_passages(locations)) as passages:
        assert len(updated(library, passages)) == 1
        assert [one.file for one in find(library, passages, "粉刷", 5)] == ["zh.md"]

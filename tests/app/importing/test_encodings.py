"""Encodings: texts in older ones are read as they were written, or the guess is named."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.importing.encodings import MIXED, decode
from datastores.errors import InputError
from tests.app.importing.texts import read

SAMPLES = {
    "cp1252": (
        "Les élèves ont fêté Noël à côté du château. Où étiez-vous ? Le cœur y était.",
        "Crème brûlée",
        "naïve café",
        "À BIENTÔT, RÉSUMÉ DE LA SÉANCE",
        "A estação não fecha amanhã; são três órgãos à disposição da população.",
        "Coração de mãe",
        "Der Bäcker öffnet früh, die Straße ist naß und die Mühle läuft.",
        "Schöne Grüße",
        "El señor Ibáñez llegó mañana. ¿Qué pasó aquí? ¡Atención!",
        "Perché la città è così? Lunedì verrà e farà più caffè.",
        "Lunedì e martedì",
        "Kör över bron på lördag, där är sjön blå och träden höga.",
        "Båden sejler på søndag; rødgrød med fløde er bedst på Ærø.",
        "Tänään sää on hyvää, mutta jää ei kestä.",
        "De coöperatie zoekt een geïnteresseerde koper voor één café.",
        "Það er gott veður í dag og ég þarf að fara út.",
        "Demà farà més fred però l'estació és a prop.",
        "“Quoted” words aren’t ASCII – they cost 5 €…",
        "50 €",
        "21 °C, 5 µm ± 2, © 2004, £30, 3½ hours",
        "José García, François Müller, Søren Ångström, Þórður",
    ),
    "iso8859-15": ("Le bœuf coûte 50 € à l'été, déjà.",),
    "mac_roman": (
        "Les élèves ont fêté Noël à côté du château. Où étiez-vous ?",
        "Müller anrufen",
        "Für Oma: Äpfel, Öl und Nüsse kaufen.",
        "Financiële crisis, reünie in België",
    ),
    "cp850": (
        "Der Bäcker öffnet früh, die Größe der Mühle läßt es zu.",
        "Größe 42, weiß",
        "Où est la clé ?",
        "Osta maitoa ja leipää",
    ),
    "cp1250": (
        "Wczoraj łódź płynęła wzdłuż rzeki, a dzieci śpiewały głośno.",
        "Proszę przynieść własną łyżkę",
        "Příští pátek přijede děda s koláčem a žlutým koněm.",
        "Kľúč je pod kameňom, ďakujem.",
        "Az őszi eső után a fűben gombák nőttek.",
        "A kulcs a kő alatt van.",
        "Ključ je ispod kamena, češalj i žute cipele kraj vrata.",
        "Mâine dimineaţă aduceţi şi bocancii în oraş.",
    ),
    "iso8859-2": ("Spotkanie odbędzie się w piątek. Proszę przynieść książkę.", "Łódź"),
    "cp1254": ("Çocuklar bahçede oynuyor, şimdi ağaçların gölgesinde çay içiyoruz.",),
    "cp1257": ("Rytoj važiuosime prie jūros, pasiimkite šiltų drabužių ir maisto visiems.",),
    "cp1251": (
        "Ключ от мельницы лежит под камнем у крыльца.",
        "Привет, мир",
        "ПРОТОКОЛ СОБРАНИЯ",
        "Завтра ми їдемо до Києва, візьміть теплий одяг.",
    ),
    "koi8-r": (
        "Ключ от мельницы лежит под камнем у крыльца.",
        "Купить молоко и хлеб",
        "ПРОТОКОЛ СОБРАНИЯ",
    ),
    "cp866": ("Мельница закрыта до весны, воду перекрыли.",),
    "iso8859-5": ("Ключ от мельницы лежит под камнем у крыльца.", "ПРОТОКОЛ СОБРАНИЯ"),
    "mac_cyrillic": ("Ключ от мельницы лежит под камнем у крыльца.", "Купить молоко"),
    "cp1253": ("Αύριο θα πάμε στη θάλασσα με ψωμί, τυρί και ελιές.",),
    "cp1255": ("המפתח נמצא מתחת לאבן ליד הדלת.",),
    "cp1256": ("المفتاح تحت الحجر بجانب الباب.",),
    "iso8859-6": ("المفتاح تحت الحجر بجانب الباب.",),
    "cp874": ("กุญแจอยู่ใต้ก้อนหินข้างประตู",),
    "cp932": ("鍵は玄関の石の下にあります。", "こんにちは", "git pushを忘れない"),
    "euc_jp": ("鍵は玄関の石の下にあります。", "会議は木曜日に延期されました。"),
    "iso2022_jp": ("鍵は玄関の石の下にあります。 key",),
    "gb18030": ("钥匙在门口的石头下面。", "今天天气很好"),
    "big5": ("鑰匙在門口的石頭下面。", "台北車站"),
    "cp949": ("열쇠는 현관 옆 돌 밑에 있습니다.",),
    "utf-8-sig": ("Größe",),
    "utf-16": ("Größe",),
    "utf-32": ("Größe",),
    "utf-16-le": (
        "plain words\nin lines\n",
        "Ключ под камнем, да.",
        "钥匙在门口，石头下面。",
        "Größe",
        "鍵は石の下",
    ),
    "utf-16-be": ("plain words\nin lines\n", "Ключ под камнем, да.", "钥匙在门口，石头下面。"),
    "utf-32-le": ("plain words", "Merhaba"),
}


@pytest.mark.parametrize(
    ("encoding", "text"), [(name, text) for name, texts in SAMPLES.items() for text in texts]
)
def test_a_text_is_read_in_its_encoding(encoding: str, text: str) -> None:
    assert decode(text.encode(encoding))[0] == text


def test_a_long_text_needs_no_notice_whatever_is_cut_off() -> None:
    for encoding in ("cp1252", "cp1250", "cp1251", "cp932", "gb18030"):
        text = SAMPLES[encoding][0] * 2000
        assert decode(text.encode(encoding)) == (text, "")


def test_a_guess_is_named_where_another_is_nearly_as_likely() -> None:
    (document,), (notice,) = read("a.txt", "Lunedì e martedì".encode("cp1252"))
    assert document.parts[0].text == "Lunedì e martedì"
    assert notice.reason.startswith("assumed to be windows-1252")


def test_lines_that_disagree_are_read_one_by_one() -> None:
    content = "Größe\n".encode() + "Füße und Bäume\n".encode("latin-1") + b"plain\n"
    assert decode(content) == ("Größe\nFüße und Bäume\nplain\n", MIXED)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("Größe der Mühle. ".encode() + b"\xe9t\xe9", "Größe der Mühle. été"),
        ("Größe ".encode() + "Füße".encode("cp1252"), "Größe Füße"),
        ("Ключ под камнем, ".encode() + b"\xff" + "да".encode(), "Ключ под камнем, ÿда"),
        ("Ключ под камнем".encode()[:-1], "Ключ под камнеÐ"),
    ],
)
def test_a_bad_byte_in_utf8_costs_only_itself(content: bytes, text: str) -> None:
    assert decode(content) == (text, MIXED)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"\xef\xbb\xbf" + "Größe".encode("cp1252"), "Größe"),
        ("Größe und Weite".encode("utf-16")[:-1], "Größe und Weit"),
        (b"one\n" * 50 + bytes(512) + b"two\n", "one\n" * 50 + "two\n"),
        (b"The gate is shut.\0", "The gate is shut."),
    ],
)
def test_damage_to_a_file_s_ends_or_middle_costs_no_more(content: bytes, text: str) -> None:
    assert decode(content)[0] == text


@pytest.mark.parametrize(
    "content", [b"\0\1\2", b"\xff\0\1" * 100, b"MZ\0\0" + bytes(range(256)) * 4, b"\xff\xfe\0"]
)
def test_binary_files_are_no_text(content: bytes) -> None:
    with pytest.raises(InputError, match="binary"):
        decode(content)


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\0\r\ufeff")))
def test_utf8_comes_back(text: str) -> None:
    assert decode(text.encode()) == (text, "")


@given(st.binary(max_size=300))
def test_any_bytes_are_text_or_refused(content: bytes) -> None:
    try:
        text, _ = decode(content)
    except InputError:
        return
    assert "\0" not in text

"""Detects questions that are clearly not in English, which the embedded model needs.

It looks at the script, then at function words. A positive result refuses the question, so doubtful
ones pass: a few words, names and commands may be of any language.
"""

from __future__ import annotations

import re
import unicodedata

ENGLISH_ONLY = (
    "the built-in model understands English only: ask in English, or choose a larger model with"
    " `specchat models search`"
)
MIN_FOREIGN_WORDS = 2
"""A foreign question has at least this many foreign function words, foreign terminal terms or
accented words, and more of them than English function words."""

_QUOTED = re.compile(
    r"`[^`]*`|\"[^\"]*\"|“[^“”]*”|(?<!\w)'[^']*'(?!\w)|```.*?(?:```|\Z)", re.DOTALL
)
_WORD = re.compile(r"(?<![\w./~@*-])[^\W\d_]+(?![\w/@*-]|\.\w)")

_ENGLISH = frozenset(
    re.findall(
        r"\w+",
        """
        about all an and any are as at be been but by can could delete do does each every find for
        from give got had has have how if in into is it its list make many me more my need no not of
        off on only or out over please set should show so that the their them there these they this
        to up use using want was way we what when where which who why will with would you your
        """,
    )
)
# German, French, Spanish, Italian, Portuguese, Dutch, the Scandinavian languages, Polish and Czech,
# Turkish, Finnish and Hungarian, Romanian and Indonesian; no words that English texts have too.
_FOREIGN = frozenset(
    re.findall(
        r"\w+",
        """
        wie ich ein eine einen einem eines der das den dem und ist sind nicht kann mit auf für von
        zu wo welche alle aus im zum zur wird werden mir mein meine bitte oder dieser diese dieses
        auch als datei dateien ordner verzeichnis zeige lösche kopiere

        je tu nous vous le la les un une des du et est sont dans avec pour sur qui que quoi quel
        quelle mon ma mes ce cette ces peux puis veux fait faire tous toutes ou où pas ne fichier
        fichiers dossier dossiers liste copier supprimer trouver

        cómo como qué el los las una unos del es en con por para mi mis puedo quiero todos todas
        esta este cuál cual dónde donde archivos archivo carpeta hacer

        posso il lo gli uno della dello delle dei degli di che cosa è sono nel nella tutti tutte
        questo questa voglio mio mia quale dove cartella cartelle copio

        eu os uma uns na nos nas da das em meu minha não quero arquivos pasta fazer qual onde

        hoe ik een het de van met voor naar niet wat waar welke mijn deze dit kun wil zijn

        hur jag kan ett och är inte alla från till det som hvordan jeg og er ikke fra til hvor mine

        jak mogę się jest nie wszystkie pliki plik mám jsem jaký můžu soubory všechny

        nasıl bir ve için bu dosyaları dosya

        miten minä ja kaikki tiedostot hogyan egy az és minden

        să toate fișierele bagaimana cara saya semua berkas yang dan untuk
        """,
    )
)


def is_foreign(question: str) -> bool:
    """Whether `question` is clearly not in English."""
    text = _QUOTED.sub(" ", unicodedata.normalize("NFC", question))
    letters = [letter for letter in text if letter.isalpha()]
    latin = sum("LATIN" in unicodedata.name(letter, "") for letter in letters)
    if len(letters) - latin > latin:
        return True
    words = [word.lower() for word in _WORD.findall(text) if len(word) > 1]
    foreign = sum(word in _FOREIGN for word in words)
    english = sum(word in _ENGLISH for word in words)
    accented = sum(not word.isascii() and word not in _FOREIGN for word in words)
    return foreign + accented >= max(MIN_FOREIGN_WORDS, english + 1)

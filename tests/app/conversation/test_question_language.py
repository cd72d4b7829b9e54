"""Questions in other languages are told from English ones, which are never refused."""

from __future__ import annotations

from importlib.resources import files

import pytest

from app.conversation.question_language import is_foreign


@pytest.mark.parametrize(
    "question",
    [
        "Wie kopiere ich ein Verzeichnis?",
        "Dateien größer als 100MB löschen",
        "Comment copier un dossier ?",
        "¿Cómo copio una carpeta?",
        "Come posso trovare i file più grandi?",
        "Como copiar uma pasta?",
        "Hoe kopieer ik een map?",
        "Hur kopierar jag en mapp?",
        "Hvordan kopierer jeg en mappe?",
        "Jak zkopíruji složku?",
        "Klasörü nasıl kopyalarım?",
        "Bagaimana cara menyalin folder?",
        "Как скопировать папку?",
        "ディレクトリをコピーするには？",
        "如何复制文件夹",
        "디렉터리를 복사하려면?",
        "كيف أنسخ مجلدا؟",
        "איך מעתיקים תיקייה?",
    ],
)
def test_other_languages_are_told(question: str) -> None:
    assert is_foreign(question)


@pytest.mark.parametrize(
    "question",
    [
        "hi",
        "tar xzf site.tar.gz",
        "ls -la /home/jörg/café",
        "rename `größe.txt` to 'naïve résumé.txt'",
        'search for "wie kopiere ich ein Verzeichnis" in notes.txt',
        "how do I type é and ü?",
        "what does la -la -le mean",
        "",
    ],
)
def test_names_and_commands_are_no_language(question: str) -> None:
    assert not is_foreign(question)


def test_a_quotation_begins_at_the_last_mark_before_its_end() -> None:
    """Each mark is looked at once: German texts have thousands that end a quotation."""
    assert is_foreign("“ wie kopiere ich ein Verzeichnis, “bitte”?")


def test_no_question_that_the_embedded_model_knows_is_taken_for_another_language() -> None:
    known = (files("assets") / "known-questions.txt").read_text("utf-8").splitlines()
    assert len(known) == 1000
    assert [question for question in known if is_foreign(question)] == []

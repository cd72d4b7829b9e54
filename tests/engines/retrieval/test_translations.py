"""Word translations: read as they were written, a line when its word is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from datastores.errors import StoreError
from datastores.passages.word_counts import key_of
from engines.retrieval.translations import (
    HEADING,
    Translation,
    Translations,
    to_lines,
    write_translations,
)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    learned = [("unpack", 0.0, {"extract": 0.00001}), ("delet", 4e-6, {"remov": 0.3, "rm": 0.02})]
    write_translations(path, to_lines(learned))
    assert path.read_text() == f"# {HEADING}\ndelet 4 remov:3000 rm:200\n", "no chance of nothing"
    read = Translations.read(path)
    assert read.of("delet") == Translation(4e-6, {key_of("remov"): 0.3, key_of("rm"): 0.02})
    assert read.of("walrus") == Translation()


def test_other_words_are_the_first_of_a_line() -> None:
    words = Translations({"delet": "4 remov:3000 delet:200 rm:100"})
    assert words.expansions("delet", 2) == ["remov", "rm"]
    assert words.expansions("delet", 1) == ["remov"]
    assert words.expansions("walrus", 3) == []


@pytest.mark.parametrize("line", [b"delet", b"delet remov:3", b"delet 4 remov", b"delet 4 remov:x"])
def test_a_damaged_line_says_what_to_do(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "words.txt"
    path.write_bytes(line)
    with pytest.raises(StoreError, match=r"words.txt is damaged \(.*\): reinstall"):
        Translations.read(path).of("delet")


def test_a_file_that_cannot_be_read_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_bytes(b"\xff\xfe")
    for name in ("words.txt", "missing.txt"):
        with pytest.raises(StoreError, match=rf"{name} is damaged \(.*\): reinstall"):
            Translations.read(tmp_path / name)

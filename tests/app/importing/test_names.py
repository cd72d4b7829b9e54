"""Imports by name: what is typed, what is stored, and what is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.importing.names import path_of, shown_docs, stored_docs
from datastores.errors import InputError

NAMES = {"/home/notes": "notes", "/work/notes": "my work", "/a": "/work/notes"}


@pytest.mark.parametrize(
    ("typed", "stored", "shown"),
    [
        ("iterative", "iterative", "iterative"),
        ("NOTES", "once /home/notes", "once notes"),
        ('knn "my work" notes', "knn /work/notes /home/notes", 'knn "my work" notes'),
        ("/home/notes", "once /home/notes", "once notes"),
        ("/work/notes", "once /a", "once /work/notes"),
    ],
)
def test_names_stand_for_paths(typed: str, stored: str, shown: str) -> None:
    assert stored_docs(typed, NAMES) == stored
    assert shown_docs(stored, NAMES) == shown


def test_a_removed_import_is_shown_by_its_path() -> None:
    assert shown_docs("once /gone /home/notes", NAMES) == "once /gone notes"


def test_another_path_to_the_same_place_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path / "notes")
    notes = str(tmp_path / "notes")
    assert path_of("notes", {notes: "mine"}) == path_of("link", {notes: "mine"}) == notes


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(InputError, match="no import 'later': choose from notes, my work"):
        path_of("later", NAMES)
    with pytest.raises(InputError, match="choose from once, iterative, knn, off, notes"):
        stored_docs("later", NAMES)
    with pytest.raises(InputError, match="nothing is imported"):
        path_of("later", {})

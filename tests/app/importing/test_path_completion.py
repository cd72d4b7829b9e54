"""A line of paths is read as a shell would, and Tab completes its last one."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.importing.path_completion import completion, paths_of


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home directory to work in, with a few things in it."""
    for name in ("notes", "My Documents", "it's", ".hidden", "musik/b"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "notes" / "a b.md").touch()
    (tmp_path / "notes" / "a c.md").touch()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("", []),
        ("   ", []),
        ("~/notes", ["notes"]),
        ("~/My Documents", ["My Documents"]),
        (" ~/My Documents ", ["My Documents"]),
        (r"~/My\ Documents ~/notes", ["My Documents", "notes"]),
        ("'~/no tilde in quotes?'", ["no tilde in quotes?"]),
        ('"~/My Documents/" ~/notes', ["My Documents", "notes"]),
        ("~/it's", ["it's"]),
    ],
)
def test_a_line_is_read_as_paths(home: Path, line: str, names: list[str]) -> None:
    assert paths_of(line) == [home / name for name in names]


def test_a_quote_that_is_not_closed_is_part_of_the_name(home: Path) -> None:
    assert paths_of("~/what's") == [home / "what's"]


@pytest.mark.parametrize(
    ("line", "completed", "names"),
    [
        ("", "", ()),
        ("~", "~/", ("~/",)),
        ("~/no", "~/notes/", ("notes/",)),
        ("no", "notes/", ("notes/",)),
        ("~/notes/", r"~/notes/a\ ", ("a b.md", "a c.md")),
        ("~/notes/a b", r"~/notes/a\ b.md", ("a b.md",)),
        ("~/My D", r"~/My\ Documents/", ("My Documents/",)),
        (r"~/My\ D", r"~/My\ Documents/", ("My Documents/",)),
        ('"~/My D', r"~/My\ Documents/", ("My Documents/",)),
        ("~/it", r"~/it\'s/", ("it's/",)),
        ("~/m", "~/musik/", ("musik/",)),
        ("~/.hi", "~/.hidden/", (".hidden/",)),
        ("~/notes mus", "~/notes musik/", ("musik/",)),
        (r"~/My\ Documents ~/no", r"~/My\ Documents ~/notes/", ("notes/",)),
        ("~/nowhere", "~/nowhere", ()),
        ("/nowhere/at/all", "/nowhere/at/all", ()),
    ],
)
def test_the_last_path_is_completed(
    home: Path, line: str, completed: str, names: tuple[str, ...]
) -> None:
    found = completion(line)
    assert (found.line, found.names) == (completed, names)


def test_what_is_hidden_is_offered_only_where_a_dot_was_typed(home: Path) -> None:
    assert ".hidden/" not in completion("~/").names
    assert completion("~/.").names == (".hidden/",)


def test_what_a_terminal_would_obey_is_not_offered(home: Path) -> None:
    (home / "evil\x1b[2J").touch()
    assert completion("~/e").names == ()


def test_a_completed_line_leads_to_what_was_completed(home: Path) -> None:
    for name in ("notes", "My Documents", "it's"):
        assert paths_of(completion(f"~/{name[:2]}").line) == [home / name]


@given(st.text())
def test_no_line_breaks_it(line: str) -> None:
    paths_of(line)
    completion(line)


@given(st.lists(st.text("ab '\"", min_size=1).filter(str.strip), min_size=1, max_size=3))
def test_what_is_escaped_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, names: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("folder")
    for name in names:
        (folder / name).touch()
        found = completion(f"{folder}/{name}")
        if len(found.names) == 1:
            assert paths_of(found.line) == [folder / name]

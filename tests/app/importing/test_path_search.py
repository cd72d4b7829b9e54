"""Files found by a few letters of their path, and the paths in what is dropped on the terminal."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.importing.path_search import PathSearch, dropped_paths, match
from tests.waiting import TIMEOUT_S

_NAMES = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=6)
_PATHS = st.lists(_NAMES, min_size=1, max_size=4).map("/".join)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for name, content in {
        ".git/config": "",
        ".gitignore": "*.log\nbuild/\n",
        ".github/ci.yml": "",
        "README.md": "",
        "app/main.py": "",
        "app/model/reader.py": "",
        "app/debug.log": "",
        "app/node_modules/reader/index.js": "",
        "build/out.py": "",
        "evil\x1b[31m.py": "",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return tmp_path


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("", ["app/", "README.md", "app/model/", "app/main.py", "app/model/reader.py"]),
        ("rea", ["README.md", "app/model/reader.py"]),
        ("amod", ["app/model/", "app/model/reader.py"]),
        ("app/ma", ["app/main.py", "app/model/reader.py"]),
        ("model/", ["app/model/", "app/model/reader.py"]),
        (".git", [".github/", ".gitignore", ".github/ci.yml"]),
        ("log", []),
        ("out", []),
        ("config", []),
        ("evil", []),
    ],
)
def test_paths_are_found_as_git_sees_them(repository: Path, typed: str, found: list[str]) -> None:
    assert PathSearch(repository).find(typed, 10) == found


def test_a_folder_is_read_again_after_a_while(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.importing.path_search.MAX_AGE_S", TIMEOUT_S)
    search = PathSearch(repository)
    assert search.find("new", 10) == []
    (repository / "new.md").touch()
    assert search.find("new", 10) == []
    monkeypatch.setattr("app.importing.path_search.MAX_AGE_S", -1.0)
    assert search.find("new", 10) == ["new.md"]


def test_a_path_from_the_root_is_completed_folder_by_folder(repository: Path) -> None:
    search = PathSearch(repository / "build")
    assert search.find(f"{repository}/app/m", 10) == [
        f"{repository}/app/main.py",
        f"{repository}/app/model/",
    ]
    assert search.find(f"{repository}/nowhere/", 10) == []


@given(_PATHS, st.data())
def test_every_part_of_a_path_finds_it(path: str, data: st.DataObject) -> None:
    kept = data.draw(st.lists(st.booleans(), min_size=len(path), max_size=len(path)))
    letters = "".join(letter for letter, keep in zip(path, kept, strict=True) if keep)
    found = match(letters.upper(), path)
    assert found is not None
    assert match(path, path) <= found  # type: ignore[operator]
    assert match(letters + "!", path) is None


@given(st.text(max_size=40))
def test_what_is_pasted_is_text_unless_it_is_a_path(text: str) -> None:
    assert dropped_paths(text) == ([Path("/")] if set(text.strip()) == {"/"} else []) or all(
        path.is_absolute() for path in dropped_paths(text)
    )


def test_dropped_files_are_told_from_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = tmp_path / "one file.txt", tmp_path / "it's.md"
    one.touch()
    two.touch()
    monkeypatch.setenv("HOME", str(tmp_path))
    for dropped in (
        f"{one}",
        f" {shlex.quote(str(one))} ",
        str(one).replace(" ", "\\ "),
        "~/one file.txt",
        one.as_uri(),
    ):
        assert dropped_paths(dropped) == [one], dropped
    both = [one, two]
    assert dropped_paths(f"{one}\n{two}\n") == both
    assert dropped_paths(" ".join(shlex.quote(str(path)) for path in both)) == both
    assert dropped_paths(f"{one.as_uri()}\r\n{two.as_uri()}") == both
    for text in (
        "",
        f"{one} is what?",
        f"{tmp_path}/gone",
        "one file.txt",
        "/" + "x" * 5000,
        "'/",
        "file://[x",
    ):
        assert dropped_paths(text) == [], text

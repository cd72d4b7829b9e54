"""`.gitignore`: every line means what git makes of it, and none is an error or takes long."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.importing.ignore_rules import MAX_RULES_BYTES, IgnoreRules, parse_patterns

BASE = Path("/folder")


def _ignored(content: bytes, *names: str) -> list[str]:
    """Which of `names`, folders if they end with a slash, a `.gitignore` leaves out."""
    rules = IgnoreRules(((BASE, tuple(parse_patterns(content))),))
    return [name for name in names if rules.ignore(BASE / name, name.endswith("/"))]


@pytest.mark.parametrize(
    "line",
    [
        b"build\\",
        b"!",
        b"/",
        b"//",
        b"",
        b" ",
        b"#",
        b"[",
        b"[a",
        b"a[!",
        b"[z-a]",
        b"[[:x:]]",
        b"\0",
    ],
)
def test_a_line_that_can_match_nothing_leaves_the_others_alone(line: bytes) -> None:
    content = b"*.tmp\n" + line + b"\n*.bak\n"
    names = ("a.tmp", "a.bak", "a.md", "build", "a", "[", "!", "build\\")
    assert _ignored(content, *names) == ["a.tmp", "a.bak"]


@pytest.mark.parametrize(
    ("line", "ignored", "kept"),
    [
        (b"end\\ ", ["end "], ["end"]),
        (b"end  ", ["end"], ["end "]),
        (b"a\\ \\  ", ["a  "], ["a ", "a"]),
        (b"a\t", ["a\t"], ["a"]),
        (b"a\r", ["a"], ["a\r"]),
        (b"\xef\xbb\xbfa", ["a"], []),
        (b"\\#a", ["#a"], ["a"]),
        (b"\\!a", ["!a"], ["a"]),
        (b"a?c", ["abc"], ["ac", "a/c"]),
        ("é".encode(), ["é", "x/é"], ["e"]),
        (b"[b-a-c]", ["b", "c", "-"], ["a"]),
        (b"[]-]x", ["]x", "-x"], ["x"]),
        (b"[^a]", ["b"], ["a"]),
        (b"[[:digit:]_]", ["7", "_"], ["a", ":"]),
        (b"a/**/b", ["a/b", "a/x/y/b"], ["b", "a/bb"]),
        (b"a/**", ["a/b", "a/b/c"], ["a", "x/a/b"]),
        (b"x**y", ["xy", "xzy", "f/xzy"], ["x/y"]),
        (b"*/b*d/", ["a/bd/", "a/bcd/"], ["a/bcd", "a/c/bd/", "bd/"]),
    ],
)
def test_a_line_means_what_it_means_to_git(
    line: bytes, ignored: list[str], kept: list[str]
) -> None:
    assert _ignored(line, *ignored, *kept) == ignored


@pytest.mark.parametrize(
    "line", [b"*a" * 40 + b"b", b"/" + b"**/*a*/" * 40 + b"b", b"[a-z]*" * 40 + b"0"]
)
def test_stars_are_not_tried_again(line: bytes) -> None:
    """It would take longer than the universe lasts."""
    assert not _ignored(line, "a" * 250, "/".join(["a"] * 1000))


def test_what_no_person_wrote_is_not_read(tmp_path: Path) -> None:
    rules = tmp_path / ".gitignore"
    rules.write_bytes(b"*\n" * (MAX_RULES_BYTES // 2))
    assert IgnoreRules().within(tmp_path).files
    rules.write_bytes(b"*\n" * MAX_RULES_BYTES)
    assert not IgnoreRules().within(tmp_path).files


_NAMES = ("a", "b", "ab", "a-b", "a b ", "x.log", "]", "!a", "#a", "a\\b", "é")
_TOKENS = (
    "a", "b", "ab", "x", ".log", "*", "**", "?", "/", "[", "]", "!", "^", "-", "\\", " ", "#",
    "[a-b]", "[!a]", "[b-a]", "[[:alpha:]]", "[]a]", "[a/b]", "**/", "/**", "\r", "\t", "é",
)  # fmt: skip


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("git") is None:
        pytest.skip("needs git to compare with")
    folder = tmp_path_factory.mktemp("repository")
    subprocess.run(["git", "-C", str(folder), "init", "-q"], check=True)
    for first in _NAMES:
        for second in _NAMES[:4]:
            (folder / f"{first}.d" / second).mkdir(parents=True)
            (folder / f"{first}.d" / second / first).touch()
        (folder / first).touch()
    return folder


@given(st.lists(st.sampled_from(_TOKENS), max_size=6).map("".join))
@settings(max_examples=40, deadline=None)
def test_git_ignores_the_same_by_any_pattern(repository: Path, pattern: str) -> None:
    (repository / ".gitignore").write_bytes(pattern.encode() + b"\n")
    paths = [path for path in sorted(repository.rglob("*")) if ".git" not in path.parts]
    git = ["git", "-C", str(repository), "-c", "core.excludesFile="]
    given_paths = b"\0".join(os.fsencode(path.relative_to(repository)) for path in paths)
    listed = subprocess.run(
        [*git, "check-ignore", "--no-index", "-z", "--stdin"],
        input=given_paths,
        capture_output=True,
    )
    assert listed.returncode < 2
    rules = IgnoreRules().within(repository)
    ours = set()
    for path in paths:
        if path.parent in ours or rules.ignore(path, path.is_dir()):
            ours.add(path)
    theirs = {repository / os.fsdecode(name) for name in listed.stdout.split(b"\0") if name}
    assert ours == theirs


def test_no_bytes_are_an_error() -> None:
    for code in range(256):
        for line in (
            bytes([code]),
            b"[" + bytes([code]),
            b"\\" + bytes([code]),
            b"*" + bytes([code]),
        ):
            assert all(isinstance(one.matcher, re.Pattern) for one in parse_patterns(line))

"""Which files are looked at: git's rules, links, pipes and what keeps secrets."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.importing.events import SkippedFile
from app.importing.find_files import FoundFile, find_files
from app.importing.skipped_names import OF_A_PROGRAM, PART_OF_EXPORT


def _walked(path: Path, own: frozenset[Path] = frozenset()) -> tuple[list[str], dict[str, str]]:
    """Names of the files found, in order, and reasons by name of what was not."""
    items = list(find_files(path, own))
    return (
        [item.name for item in items if isinstance(item, FoundFile)],
        {item.name: item.reason for item in items if isinstance(item, SkippedFile)},
    )


def _fill(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"text of " + os.fsencode(name))


def test_files_come_in_the_order_of_names_before_folders(folder: Path) -> None:
    _fill(folder, "b.md", "a/z.md", "a/b/c.md", "c/a.md", "a.md", "a/a.md")
    found, skipped = _walked(folder)
    assert found == ["a.md", "b.md", "a/a.md", "a/z.md", "a/b/c.md", "c/a.md"]
    assert not skipped


def test_the_import_is_what_was_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _fill(folder, "a/x.md")
    monkeypatch.chdir(folder)
    (one,) = find_files(Path("a"), frozenset())
    (two,) = find_files(Path("a/../a/x.md"), frozenset())
    assert isinstance(one, FoundFile)
    assert isinstance(two, FoundFile)
    assert (one.import_path, one.name) == (str(folder / "a"), "x.md")
    assert (two.import_path, two.name) == (str(folder / "a" / "x.md"), "x.md")


def test_nested_gitignores_the_deeper_decides(folder: Path) -> None:
    _fill(folder, "a.log", "keep.log", "build/x", "sub/a.log", "sub/build/x", "sub/b.tmp", "b.tmp")
    (folder / ".gitignore").write_text("*.log\n!keep.log\n/build/\n")
    (folder / "sub" / ".gitignore").write_text("!a.log\n*.tmp\n")
    found, skipped = _walked(folder)
    assert set(found) == {
        ".gitignore", "b.tmp", "keep.log", "sub/.gitignore", "sub/a.log", "sub/build/x",
    }  # fmt: skip
    assert skipped == dict.fromkeys(["a.log", "build", "sub/b.tmp"], "ignored by .gitignore")


def test_rules_above_the_folder_count_within_the_repository(folder: Path) -> None:
    _fill(folder, "repo/.git/config", "repo/sub/a.log", "repo/sub/b.md", "repo/sub/c.bak")
    (folder / ".gitignore").write_text("*.md\n")
    (folder / "repo" / ".gitignore").write_text("*.log\n")
    _fill(folder, "repo/.git/info/exclude")
    (folder / "repo" / ".git" / "info" / "exclude").write_text("*.bak\n")
    assert _walked(folder / "repo" / "sub")[0] == ["b.md"]


def test_what_programs_leave_behind_is_skipped_without_a_word(folder: Path) -> None:
    left = (".git/config", "__pycache__/a.pyc", "b.pyc", ".DS_Store", ".mypy_cache/x.json")
    _fill(folder, "notes.md", *left)
    assert _walked(folder) == (["notes.md"], {})


def test_folders_of_programs_are_named_once_and_left_out(folder: Path) -> None:
    _fill(folder, "Ferry.md", ".obsidian/plugins/x/main.js", ".trash/old.md", ".Trash-1000/x.md")
    _fill(folder, "app/node_modules/pad/index.js", "app/node_modules/README.md", "app/main.js")
    _fill(folder, "env/pyvenv.cfg", "env/lib/x.py", "target/CACHEDIR.TAG", "target/notes.txt")
    found, skipped = _walked(folder)
    assert found == ["Ferry.md", "app/main.js"]
    left = [".Trash-1000", ".obsidian", ".trash", "app/node_modules", "env", "target"]
    assert skipped == dict.fromkeys(left, OF_A_PROGRAM)
    assert _walked(folder / ".trash") == (["old.md"], {})
    assert _walked(folder / "env")[0] == ["pyvenv.cfg", "lib/x.py"]


PATTERNS = st.sampled_from(
    ["*.a", "!*.a", "x", "/x", "x/", "!x/", "y/*.b", "**/y", "y/**", "!y", "*", "!/x", "#x", ""]
)


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git to compare with")
@given(
    top=st.lists(PATTERNS, max_size=4),
    inner=st.lists(PATTERNS, max_size=3),
    names=st.sets(
        st.sampled_from(["1.a", "x/1.a", "x/2.b", "y/1.a", "y/2.b", "x/y/1.b", "y/x", "z/x/3.a"]),
        min_size=1,
    ),
)
@settings(max_examples=40, deadline=None)
def test_git_ignores_the_same(
    tmp_path_factory: pytest.TempPathFactory, top: list[str], inner: list[str], names: set[str]
) -> None:
    folder = tmp_path_factory.mktemp("repository")
    if "y/x" in names:
        names = {name for name in names if not name.startswith("y/x/")}
    _fill(folder, *names)
    (folder / ".gitignore").write_text("\n".join(top))
    (folder / "x").mkdir(exist_ok=True)
    (folder / "x" / ".gitignore").write_text("\n".join(inner))
    git = ["git", "-C", str(folder), "-c", "core.excludesFile="]
    subprocess.run([*git, "init", "-q"], check=True)
    listing = [*git, "ls-files", "-z", "--others", "--exclude-standard"]
    listed = subprocess.run(listing, check=True, capture_output=True, text=True).stdout
    found, skipped = _walked(folder)
    empty = {name for name, reason in skipped.items() if reason == "empty"}
    assert set(found) | empty == set(listed.split("\0")) - {""}


def test_links_are_named_and_not_followed(folder: Path) -> None:
    _fill(folder, "a/real.md", "elsewhere/x.md")
    (folder / "a" / "up").symlink_to(folder)
    (folder / "a" / "self").symlink_to("self")
    (folder / "a" / "gone").symlink_to("nowhere")
    (folder / "a" / "side").symlink_to(folder / "elsewhere")
    (folder / "a" / "file").symlink_to("real.md")
    found, skipped = _walked(folder / "a")
    assert found == ["real.md"]
    assert skipped == {
        "up": "symbolic link in a loop",
        "self": "symbolic link in a loop",
        "gone": "broken symbolic link",
        "side": "symbolic link",
        "file": "symbolic link",
    }


def test_a_link_that_was_named_is_followed(folder: Path) -> None:
    _fill(folder, "real/x.md")
    (folder / "link").symlink_to("real")
    assert _walked(folder / "link")[0] == ["x.md"]


def test_what_is_no_text_by_its_nature_is_named(folder: Path) -> None:
    _fill(folder, ".env", "id_rsa", "server.pem", "note.md")
    (folder / "empty").touch()
    os.mkfifo(folder / "pipe")
    found, skipped = _walked(folder)
    assert found == ["note.md"]
    assert skipped == {
        ".env": "usually holds secrets",
        "id_rsa": "usually holds secrets",
        "server.pem": "usually holds secrets",
        "empty": "empty",
        "pipe": "not a regular file",
    }


def test_an_unpacked_export_is_its_conversations_only(folder: Path) -> None:
    _fill(folder, "export/conversations-000.json", "export/user.json", "export/chat.html")
    _fill(folder, "export/picture.md", "user.json")
    found, skipped = _walked(folder)
    assert found == ["user.json", "export/conversations-000.json", "export/picture.md"]
    assert skipped == dict.fromkeys(["export/chat.html", "export/user.json"], PART_OF_EXPORT)


def test_specchat_s_own_directories_are_left_out(folder: Path) -> None:
    _fill(folder, "specchat/history.db", "note.md")
    found, skipped = _walked(folder, frozenset({folder / "specchat"}))
    assert found == ["note.md"]
    assert skipped == {"specchat": "specchat's own data"}
    assert _walked(folder, frozenset({folder})) == ([], {str(folder): "specchat's own data"})


def test_what_never_ends_is_not_opened(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    for path in (folder / "pipe", Path("/dev/zero")):
        assert _walked(path) == ([], {str(path): "not a regular file"})


def test_a_home_that_nobody_has_is_a_missing_path(folder: Path) -> None:
    name = "~nobody has this name/x"
    assert _walked(Path(name)) == ([], {name: "cannot be read: no such file or directory"})


def test_rules_that_cannot_be_read_are_none(folder: Path) -> None:
    _fill(folder, "a.md", ".git/config")
    (folder / ".gitignore").mkdir()
    (folder / ".gitignore" / "x").write_text("x")
    assert _walked(folder) == (["a.md", ".gitignore/x"], {})


def test_rules_behind_a_link_are_none_as_in_git(folder: Path) -> None:
    _fill(folder, "a.md", "rules")
    (folder / "rules").write_text("*.md\n")
    for target in ("rules", ".gitignore", "nowhere", "/dev/zero"):
        (folder / ".gitignore").unlink(missing_ok=True)
        (folder / ".gitignore").symlink_to(target)
        assert "a.md" in _walked(folder)[0]


def test_a_path_that_is_not_there_is_named(folder: Path) -> None:
    _, skipped = _walked(folder / "nowhere")
    assert skipped == {str(folder / "nowhere"): "cannot be read: no such file or directory"}


def test_names_that_are_no_text_can_be_stored(folder: Path) -> None:
    name = os.fsdecode(b"caf\xe9.md")
    try:
        _fill(folder, name)
    except OSError as error:
        pytest.skip(f"names must be UTF-8 here: {error}")
    (found,) = find_files(folder, frozenset())
    assert isinstance(found, FoundFile)
    assert found.name == "caf\\xe9.md"
    assert found.path.read_bytes() == b"text of caf\xe9.md"


def test_folders_nested_deeper_than_the_stack(folder: Path) -> None:
    deep = folder
    for _ in range(1100):
        deep = deep / "d"
        deep.mkdir()
    try:
        assert _walked(folder) == ([], {})
    finally:
        # Python's own would run out of stack, pytest's at the end of the session too.
        subprocess.run(["rm", "-rf", str(folder / "d")], check=True)

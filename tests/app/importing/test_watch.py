"""Watched imports: what changed is told from what did not, and nothing is lost by mistake."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest

from app.importing import watch
from app.importing.session import (
    import_into,
    read_imports,
    record_imports,
    watched_imports,
)
from app.importing.session import watch as watch_import
from app.importing.watch import FolderState, compare, interval, look
from app.locations import Locations
from datastores.errors import InputError
from datastores.library.library import Library

NOBODY = frozenset[Path]()


def test_new_changed_and_removed_files_are_told_apart(folder: Path) -> None:
    for name in ("same.md", "changed.md", "gone.md"):
        (folder / name).write_text(name)
    before = look(str(folder), NOBODY)
    (folder / "gone.md").unlink()
    (folder / "new.md").write_text("new")
    (folder / "changed.md").write_text("another length")
    change = compare(str(folder), before, look(str(folder), NOBODY), set(before.files))
    assert change.changed == {"new.md", "changed.md"}
    assert change.removed == {"gone.md"}


def test_a_change_of_the_same_length_is_seen_by_its_time(folder: Path) -> None:
    (folder / "a.md").write_text("one")
    before = look(str(folder), NOBODY)
    (folder / "a.md").write_text("two")
    os.utime(folder / "a.md", ns=(1, 1))
    assert compare(str(folder), before, look(str(folder), NOBODY), set()).changed == {"a.md"}


def test_after_a_restart_everything_may_have_changed(folder: Path) -> None:
    (folder / "a.md").write_text("a")
    change = compare(str(folder), None, look(str(folder), NOBODY), {"a.md", "b.md"})
    assert change.changed == {"a.md"}
    assert change.removed == {"b.md"}


def test_what_is_emptied_or_ignored_from_now_on_counts_as_removed(folder: Path) -> None:
    (folder / "a.md").write_text("a")
    (folder / "b.md").write_text("b")
    before = look(str(folder), NOBODY)
    (folder / "a.md").write_text("")
    (folder / "c.md").write_text("c")
    (folder / ".gitignore").write_text("b.md\n")
    change = compare(str(folder), before, look(str(folder), NOBODY), set(before.files))
    assert change.removed == {"a.md", "b.md"}


def test_a_folder_that_vanished_or_lost_everything_at_once_keeps_its_texts(folder: Path) -> None:
    (folder / "a.md").write_text("a")
    before = look(str(folder), NOBODY)
    (folder / "a.md").unlink()
    with pytest.raises(InputError, match=f"^{folder} has lost all of its files; its"):
        compare(str(folder), before, look(str(folder), NOBODY), {"a.md"})
    folder.rmdir()
    with pytest.raises(InputError, match=f"^{folder} is gone; its"):
        look(str(folder), NOBODY)


def test_what_cannot_be_read_is_not_taken_for_removed() -> None:
    now = FolderState({"a.md": (1, 1)}, frozenset({"private", "b.md"}))
    stored = {"a.md", "b.md", "private/c.md", "privately.md"}
    assert compare("/a", now, now, stored).removed == {"privately.md"}


def test_too_many_files_are_one_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "MAX_WATCHED_FILES", 2)
    for number in range(4):
        (folder / f"{number}.md").write_text("a")
    with pytest.raises(InputError, match="holds more than 2 files: watch a smaller folder"):
        look(str(folder), NOBODY)


def test_looking_takes_its_share_of_a_core_at_most() -> None:
    assert interval(0) == watch.MIN_INTERVAL_S
    assert interval(1) == 1 / watch.COST_SHARE
    assert interval(1e6) == watch.MAX_INTERVAL_S


def test_imports_are_watched_until_they_are_not(locations: Locations, folder: Path) -> None:
    (folder / "a.md").write_text("a")
    with closing(Library.open(locations.library)) as library:
        list(import_into(library, locations, [folder]))
        watch_import(locations.imported, str(folder), True)
        assert watched_imports(locations.imported) == [str(folder)]
        list(import_into(library, locations, [folder]))
    assert watched_imports(locations.imported) == [str(folder)], "importing again keeps it"
    watch_import(locations.imported, str(folder), False)
    assert watched_imports(locations.imported) == []
    record_imports(locations.imported, ["/b"], whole=True)
    assert not read_imports(locations.imported)["/b"].watched


def test_only_named_files_are_read(locations: Locations, folder: Path) -> None:
    for name in ("a.md", "b.md"):
        (folder / name).write_text(name)
    with closing(Library.open(locations.library)) as library:
        list(import_into(library, locations, [folder], frozenset({"b.md"})))
        assert library.files(str(folder)) == {"b.md"}
        list(import_into(library, locations, [folder], frozenset({"gone.md"})))

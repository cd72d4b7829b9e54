"""The whole import: what is stored, reported and left when it is cancelled."""

from __future__ import annotations

import io
import json
import os
import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from app.importing import import_file
from app.importing.events import Event, FindingFiles, ImportFinished, ImportProgress, SkippedFile
from app.importing.pipeline import import_paths
from datastores.errors import InputError
from datastores.library.documents import FinishFile, StoreDocument
from datastores.library.library import Library
from tests.app.importing.conftest import Importer
from tests.app.importing.texts import chatgpt, pdf, stored, zipped
from tests.datastores.dump import rows_of


def _pages(folder: Path, count: int) -> None:
    for number in range(count):
        (folder / f"{number:03}.md").write_text(f"# Page {number}\n")


def test_events_report_progress(folder: Path, library: Library) -> None:
    _pages(folder, 3)
    (folder / "none.md").touch()
    events = list(import_paths([folder], library))
    progress = [event for event in events if isinstance(event, ImportProgress)]
    assert next(event.files for event in progress if event.name == "002.md") == 2
    assert all(event.total_files == 3 for event in progress)
    assert progress[-1].bytes < progress[-1].total_bytes == 27
    assert progress[-1].seconds_left is not None
    assert progress[0].seconds_left is None
    assert [event for event in events if isinstance(event, SkippedFile)] == [
        SkippedFile("none.md", "empty")
    ]
    (end,) = [event for event in events if isinstance(event, ImportFinished)]
    assert events[-1] == end
    assert (end.report.documents, end.report.unchanged, end.report.characters) == (3, 0, 27)
    assert end.report.counts == {"empty": 1}


def test_large_folders_report_the_search(folder: Path, library: Library) -> None:
    for number in range(1001):
        (folder / str(number)).write_text("x")
    events = import_paths([folder], library)
    assert [next(events), next(events)] == [FindingFiles(500), FindingFiles(1000)]
    events.close()


def test_importing_again_changes_nothing(
    folder: Path, library: Library, imported: Importer
) -> None:
    _pages(folder, 20)
    assert imported(folder).documents == 20
    before = rows_of(library.store.path)
    report = imported(folder)
    assert (report.documents, report.unchanged) == (0, 20)
    assert rows_of(library.store.path) == before


def test_a_changed_file_replaces_its_old_text(
    folder: Path, library: Library, imported: Importer
) -> None:
    _pages(folder, 3)
    imported(folder)
    (folder / "001.md").write_text("changed")
    report = imported(folder)
    assert (report.documents, report.unchanged) == (1, 2)
    assert stored(library)["001.md"] == [("notes", "", "changed")]


def test_a_file_that_became_unreadable_keeps_its_text(
    folder: Path, library: Library, imported: Importer
) -> None:
    _pages(folder, 1)
    imported(folder)
    before = rows_of(library.store.path)
    (folder / "000.md").write_bytes(b"\0\1\2")
    assert imported(folder).skipped == {"binary": ["000.md"]}
    assert rows_of(library.store.path) == before


def test_nothing_imported_is_an_error_with_its_reasons(folder: Path, library: Library) -> None:
    (folder / "x").write_bytes(b"\0")
    (folder / "y").write_bytes(b"\0")
    (folder / "z").touch()
    with pytest.raises(InputError, match=r"nothing imported: binary \(2\), empty \(1\)"):
        list(import_paths([folder], library))
    with pytest.raises(InputError, match=r"nothing imported: no such file or folder: .*"):
        list(import_paths([folder / "nowhere"], library))
    (folder / "empty").mkdir()
    with pytest.raises(InputError, match="nothing imported: there are no files in it"):
        list(import_paths([folder / "empty"], library))


def test_one_missing_path_does_not_stop_the_others(folder: Path, imported: Importer) -> None:
    _pages(folder, 1)
    report = imported(folder / "nowhere", folder)
    assert report.documents == 1
    assert sum(report.counts.values()) == 1


def test_nothing_that_is_stored_holds_a_secret(
    folder: Path, library: Library, imported: Importer
) -> None:
    body = "a1B2c3D4e5F6g7H8i9J0" * 2
    secret = "ghp_" + body
    (folder / "note.md").write_text(f"my token is {secret}")
    (folder / "x.py").write_text(f'TOKEN = "{secret}"\n')
    (folder / ".bash_history").write_text(f"export GH_TOKEN={secret}\nls\n")
    chat = chatgpt(f"use {secret}", f"why does {secret} fail?", "revoke it")
    (folder / "conversations.json").write_text(json.dumps([chat]))
    report = imported(folder)
    assert report.documents == 4
    assert report.redacted == 5
    names = ["note.md", "x.py", ".bash_history", "conversations.json"]
    assert set(report.secrets) <= {"access token", "key or token"}
    assert {name for found in report.secrets.values() for name in found} == set(names)
    for file in library.store.path.parent.glob("library.db*"):
        assert body.encode() not in file.read_bytes()


def _until(events: Iterator[Event], files: int) -> None:
    for event in events:
        if isinstance(event, ImportProgress) and event.files == files:
            return


def test_cancelling_keeps_what_is_stored_and_going_on_ends_the_same(
    folder: Path, tmp_path: Path, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    _pages(folder, 30)
    undisturbed = Library.open(tmp_path / "undisturbed.db")
    list(import_paths([folder], undisturbed))
    undisturbed.close()
    monkeypatch.setattr("app.importing.pipeline.MAX_GROUP_AGE_S", 0)
    events = import_paths([folder], library)
    _until(events, 12)
    events.close()
    assert library.imports()[0].documents == 12
    list(import_paths([folder], library))
    assert rows_of(library.store.path) == rows_of(tmp_path / "undisturbed.db")


def test_documents_are_stored_in_groups(
    folder: Path, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    write = library.write

    def watched(group: Sequence[StoreDocument | FinishFile]) -> list[StoreDocument]:
        sizes.append(len(group))
        return write(group)

    monkeypatch.setattr(library, "write", watched)
    monkeypatch.setattr("app.importing.pipeline.MAX_GROUP_CHARACTERS", 50)
    monkeypatch.setattr("app.importing.pipeline.MAX_GROUP_AGE_S", 1e9)
    _pages(folder, 20)
    list(import_paths([folder], library))
    assert max(sizes) < 15
    assert len(sizes) == 4


def _tar(path: Path, members: dict[str, bytes]) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))


def _sparse(path: Path, size: int) -> None:
    with path.open("wb") as file:
        file.truncate(size)


def _hostile(folder: Path) -> dict[str, str]:
    """A folder of files that are broken or mean harm; what the report must say of each."""
    good = zipped(folder / "good.zip", {"in zip.md": b"good", "deeper/too.md": b"good too"})
    (folder / "truncated.zip").write_bytes(good.read_bytes()[:-30])
    (folder / "truncated.pdf").write_bytes(pdf("words")[:200])
    zipped(folder / "bomb.zip", {"zeros.txt": bytes(80 * import_file.MIB)})
    traversal = {"../../evil.md": b"x", "/etc/evil.md": b"x", "C:\\evil.md": b"x", "fine.md": b"y"}
    zipped(folder / "traversal.zip", traversal)
    _tar(folder / "traversal.tar.gz", {"../evil.md": b"x", "fine too.md": b"z"})
    (folder / "line.txt").touch()
    _sparse(folder / "line.txt", 2**30)
    _sparse(folder / "line.json", 2**30)
    (folder / "line.jsonl").write_bytes(b'{"messages": [{"role": "user", "content": "hello"}]}\n')
    os.truncate(folder / "line.jsonl", 40 * import_file.MIB)
    (folder / "mixed.txt").write_bytes("Größe\n".encode() + "Füße\n".encode("latin-1"))
    (folder / "loop").symlink_to(folder)
    (folder / "deep.json").write_bytes(b"[" * 100_000 + b"]" * 100_000)
    (folder / "deep.jsonl").write_bytes(b"[" * 100_000 + b"]" * 100_000)
    for number in range(300):
        (folder / f"empty{number}").touch()
    zipped(folder / "nested.zip", {"good.zip": good.read_bytes()})
    return {
        "truncated.zip": "damaged or truncated archive",
        "truncated.pdf": "damaged or truncated PDF",
        "bomb.zip": "unpacks to over 20 times its size, as archive bombs do: unpack it to import"
        " what is in it",
        "traversal.zip/../../evil.md": "its path leads out of the archive",
        "traversal.zip//etc/evil.md": "its path leads out of the archive",
        "traversal.zip/C:\\evil.md": "its path leads out of the archive",
        "traversal.tar.gz/../evil.md": "its path leads out of the archive",
        "line.txt": "larger than 32 MiB",
        "line.json": "larger than 1 MiB",
        "line.jsonl, line 2": "an entry larger than 32 MiB",
        "mixed.txt": "mixed encodings: imported, but some characters may be wrong",
        "loop": "symbolic link in a loop",
        "deep.json": "JSON nested more than 200 deep",
        "deep.jsonl": "JSON nested more than 200 deep",
        **{f"empty{number}": "empty" for number in range(300)},
        "nested.zip/good.zip": "an archive within an archive",
    }


def test_hostile_files_are_all_named_and_the_good_ones_imported(
    folder: Path, library: Library, imported: Importer
) -> None:
    expected = _hostile(folder)
    _pages(folder, 3)
    report = imported(folder)
    named = {name: reason for reason, names in report.skipped.items() for name in names}
    assert named == expected
    assert imported(folder).skipped == report.skipped
    assert all(stored.whole for stored in library.imports())
    assert set(stored(library)) == {
        "000.md", "001.md", "002.md", "good.zip/in zip.md", "good.zip/deeper/too.md",
        "traversal.zip/fine.md", "traversal.tar.gz/fine too.md", "mixed.txt", "line 1",
    }  # fmt: skip


def test_what_holds_nothing_is_named(folder: Path, imported: Importer) -> None:
    zipped(folder / "none.zip", {})
    (folder / "none.json").write_text('{"specchat": 1, "chats": []}')
    assert imported(folder).skipped == {"nothing in it": ["none.json", "none.zip"]}


def test_office_documents_are_no_archives_of_texts_and_books_are(
    folder: Path, library: Library, imported: Importer
) -> None:
    zipped(folder / "letter.pptx", {"ppt/slides/slide1.xml": b"<a:t>hello</a:t>"})
    zipped(folder / "book.epub", {"one.xhtml": b"<html><body><p>hello</p></body></html>"})
    assert imported(folder).skipped == {".pptx is not read: save it as PDF": ["letter.pptx"]}
    assert set(stored(library)) == {"book.epub/one.xhtml"}


def test_a_bomb_with_a_false_size_is_bounded(folder: Path, imported: Importer) -> None:
    path = zipped(folder / "liar.zip", {"a.txt": b"a" * 10 * import_file.MIB})
    content = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        claimed = archive.getinfo("a.txt").file_size.to_bytes(4, "little")
    assert content.count(claimed) == 2
    path.write_bytes(content.replace(claimed, (10).to_bytes(4, "little")))
    report = imported(folder)
    assert report.documents == 0
    assert report.skipped == {"damaged or truncated archive": ["liar.zip/a.txt"]}


def test_damaged_archives_are_named_and_the_rest_is_imported(
    folder: Path, library: Library, imported: Importer
) -> None:
    zipped(folder / "bad name.zip", {"abcd.txt": b"x"})
    written = (folder / "bad name.zip").read_bytes()
    content = bytearray(written.replace(b"abcd.txt", b"ab\xff\xfe.txt"))
    for start in (content.index(b"PK\x03\x04") + 6, content.index(b"PK\x01\x02") + 8):
        content[start : start + 2] = (0x800).to_bytes(2, "little")  # the name is UTF-8
    (folder / "bad name.zip").write_bytes(content)
    with zipfile.ZipFile(folder / "unnamed.zip", "w") as unnamed:
        unnamed.writestr(zipfile.ZipInfo(""), b"x")
        unnamed.writestr("named.md", b"text")
    (folder / "three bytes.tgz").write_bytes(b"\x1f\x8b\x08")
    for name, fields in {
        "sparse.tar": {"GNU.sparse.map": "x,y"},
        "sizes.tar": {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.size": "x"},
    }.items():
        info = tarfile.TarInfo("a.md")
        info.size, info.pax_headers = 512, fields
        with tarfile.open(folder / name, "w", format=tarfile.PAX_FORMAT) as archive:
            archive.addfile(info, io.BytesIO(b"9" * 512))
    (folder / "good.md").write_text("text")
    assert imported(folder).skipped == {
        "damaged or truncated archive": [
            "bad name.zip", "sizes.tar", "sparse.tar", "three bytes.tgz",
        ],
        "a member without a name": ["unnamed.zip/"],
    }  # fmt: skip
    assert set(stored(library)) == {"good.md", "unnamed.zip/named.md"}


def test_a_tar_damaged_in_the_middle_is_said(folder: Path, imported: Importer) -> None:
    """tarfile takes a damaged header for the end."""
    with tarfile.open(folder / "x.tar", "w") as archive:
        for name in ("a.md", "b.md", "c.md"):
            info = tarfile.TarInfo(name)
            info.size = 4
            archive.addfile(info, io.BytesIO(b"text"))
    content = bytearray((folder / "x.tar").read_bytes())
    content[1024 + 150] ^= 1  # the checksum of the second header
    (folder / "x.tar").write_bytes(content)
    report = imported(folder)
    assert report.documents == 1
    assert report.skipped == {"damaged or truncated archive": ["x.tar"]}


def test_an_archive_is_read_as_its_folder_would_be(
    folder: Path, library: Library, imported: Importer
) -> None:
    names = (".git/config", "a.md", "v/node_modules/x.js", "v/node_modules/y.js", "v/.DS_Store")
    members = dict.fromkeys((*names, "v/.env", "v/.obsidian/main.js", "__MACOSX/._a"), b"text")
    zipped(folder / "x.zip", members)
    _tar(folder / "y.tgz", members)
    assert imported(folder).skipped == {
        "a program's own folder": [
            "x.zip/v/node_modules", "x.zip/v/.obsidian",
            "y.tgz/v/node_modules", "y.tgz/v/.obsidian",
        ],
        "usually holds secrets": ["x.zip/v/.env", "y.tgz/v/.env"],
    }  # fmt: skip
    assert set(stored(library)) == {"x.zip/a.md", "y.tgz/a.md"}


def test_a_tar_cut_short_gives_what_came_before(folder: Path, imported: Importer) -> None:
    members = {f"{n}.md": os.urandom(3000).hex().encode() for n in range(30)}
    _tar(folder / "whole.tar.gz", members)
    whole = (folder / "whole.tar.gz").read_bytes()
    (folder / "whole.tar.gz").unlink()
    (folder / "cut.tar.gz").write_bytes(whole[: len(whole) // 2])
    report = imported(folder)
    assert 5 < report.documents < 25
    assert report.skipped == {"damaged or truncated archive": ["cut.tar.gz"]}

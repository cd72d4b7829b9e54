"""The library against plain dictionaries, and what is left in its files after forgetting."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from datastores.errors import InputError, StoreError
from datastores.library.documents import CHATS, NOTES, Document, FinishFile, Part, StoreDocument
from datastores.library.library import Library
from tests.datastores.dump import rows_of

SENTENCE = "the walrus keeps seventeen brass telescopes"


def _page(text: str, title: str = "page") -> Document:
    return Document(title, (Part(NOTES, text),))


def _store(
    library: Library, import_path: str, *texts: str, file: str = "file"
) -> list[StoreDocument]:
    puts = [
        StoreDocument(import_path, file, number, _page(text)) for number, text in enumerate(texts)
    ]
    return library.write([*puts, FinishFile(import_path, file, "digest", len(puts))])


def test_a_text_is_found_again_with_its_parts_in_order(library: Library) -> None:
    chat = Document("t", (Part(CHATS, "hello", "user"), Part(CHATS, "hi", "assistant")))
    library.write([StoreDocument("s", "f", 0, chat)])
    assert library.read(chat.digest) == chat.parts


def test_what_is_stored_twice_is_new_once(library: Library) -> None:
    assert [put.position for put in _store(library, "s", "a", "b")] == [0, 1]
    assert _store(library, "s", "a", "b") == []
    assert [put.position for put in _store(library, "s", "a", "c")] == [1]


def test_a_file_is_known_when_it_was_read_whole_and_did_not_change(library: Library) -> None:
    library.write([StoreDocument("s", "f", 0, _page("a")), StoreDocument("s", "f", 1, _page("b"))])
    assert not library.imports()[0].whole
    assert library.finished_file("s", "f") == ("", 0)
    library.write([FinishFile("s", "f", "digest", 2)])
    assert library.imports()[0].whole
    assert library.finished_file("s", "f") == ("digest", 2)
    assert library.finished_file("s", "g") == ("", 0)


def test_a_flawed_file_is_finished_but_read_again(library: Library) -> None:
    _store(library, "s", "a", "b", file="f")
    library.write([StoreDocument("s", "f", 0, _page("c")), FinishFile("s", "f", "", 1)])
    assert library.imports()[0].whole
    assert library.finished_file("s", "f")[0] == ""
    assert library.digests() == sorted([_page("c").digest, _page("b").digest])


def test_a_file_that_became_shorter_loses_its_end(library: Library) -> None:
    _store(library, "s", "a", "b", "c")
    _store(library, "s", "a")
    assert library.digests() == [_page("a").digest]


def test_imports_are_listed_with_what_they_hold(library: Library) -> None:
    _store(library, "/b", "12345")
    library.write([StoreDocument("/a", "f", 0, Document("t", (Part(CHATS, "1", "user"),)))])
    listed = [(s.path, s.files, s.documents, s.characters, s.kinds) for s in library.imports()]
    assert listed == [("/a", 1, 1, 1, ("chats",)), ("/b", 1, 1, 5, ("notes",))]


def test_imports_get_names_of_their_own(library: Library) -> None:
    paths = ("/home/notes", "/work/notes", "/play/work/notes", "/", "/a  b/c\td")
    for path in paths:
        _store(library, path, path)
    names = ("notes", "work/notes", "play/work/notes", "/", "c d")
    assert library.names() == dict(zip(paths, names, strict=True))
    assert [one.name for one in library.imports()] == [
        library.names()[one] for one in sorted(paths)
    ]
    assert library.rename("/home/notes", "  my \n notes ") == "my notes"
    _store(library, "/other/notes", "other")
    assert library.names()["/other/notes"] == "notes"
    _store(library, "/home/notes", "changed")
    assert library.names()["/home/notes"] == "my notes"
    assert {place.import_name for place in library.places(_page("changed").digest)} == {"my notes"}


def test_every_import_finds_a_free_name(library: Library) -> None:
    _store(library, "/a", "a")
    library.rename("/a", "b")
    _store(library, "/b", "b")
    assert library.names()["/b"] == "2 b"
    library.rename("/b", "2 B")  # its own name in other letters
    assert library.names() == {"/a": "b", "/b": "2 B"}


@pytest.mark.parametrize(
    ("path", "name", "said"),
    [
        ("/a", " ", "1 to 100 characters"),
        ("/a", "x" * 101, "1 to 100 characters"),
        ("/a", "B", "'B' is the name of /b"),
        ("/c", "c", "/c is not imported"),
    ],
)
def test_a_name_that_cannot_be_given_is_refused(
    library: Library, path: str, name: str, said: str
) -> None:
    _store(library, "/a", "a")
    _store(library, "/b", "b")
    with pytest.raises(InputError, match=said):
        library.rename(path, name)
    assert library.names() == {"/a": "a", "/b": "b"}


def test_a_shared_text_stays_until_the_last_import_that_holds_it(library: Library) -> None:
    _store(library, "a", "shared", "only in a")
    _store(library, "b", "shared")
    library.forget("a")
    assert library.digests() == [_page("shared").digest]
    library.forget("b")
    assert library.digests() == []


def test_forgetting_equals_never_having_seen(tmp_path: Path) -> None:
    dumps = []
    for name, forgetful in (("a", True), ("b", False)):
        with closing(Library.open(tmp_path / name)) as library:
            if forgetful:
                _store(library, "gone", "shared", "secret", file="z")
            _store(library, "kept", "shared", "more")
            if forgetful:
                library.forget("gone")
                library.erase()
        dumps.append(rows_of(tmp_path / name))
    assert dumps[0] == dumps[1]


def test_import_forget_import_is_import(tmp_path: Path) -> None:
    with closing(Library.open(tmp_path / "l.db")) as library:
        _store(library, "kept", "one", "two")
        _store(library, "s", "two", "three")
        before = rows_of(tmp_path / "l.db")
        library.forget("s")
        library.erase()
        _store(library, "s", "two", "three")
        assert rows_of(tmp_path / "l.db") == before


def test_forgetting_what_was_not_imported_is_refused(library: Library) -> None:
    with pytest.raises(InputError, match="is not imported"):
        library.forget("/nowhere")


def _holding(folder: Path, text: str) -> list[str]:
    return [file.name for file in folder.iterdir() if text.encode() in file.read_bytes()]


def test_no_byte_of_what_was_forgotten_is_left_in_any_file(tmp_path: Path) -> None:
    with (
        closing(Library.open(tmp_path / "l.db")) as library,
        closing(Library.open(tmp_path / "l.db")) as other_window,
    ):
        _store(library, "/kept", *(f"page {number}" * 50 for number in range(200)))
        long = [f"{SENTENCE} {number} " * (1 + number * 40) for number in range(20)]
        _store(library, f"/home/{SENTENCE}", *long, file=SENTENCE)
        library.write([StoreDocument(f"/home/{SENTENCE}", "f", 0, _page("x", title=SENTENCE))])
        other_window.imports()
        assert _holding(tmp_path, SENTENCE)
        library.forget(f"/home/{SENTENCE}")
        assert library.erase()
        assert _holding(tmp_path, SENTENCE) == []
        assert len(other_window.imports()) == 1


def test_erasing_that_a_reader_hinders_is_said_and_made_good(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = library.store.path.parent
    _store(library, "/s", SENTENCE)
    library.store.db.conn.execute("PRAGMA busy_timeout = 50")
    reader = sqlite3.connect(library.store.path)
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM parts").fetchone()
    library.forget("/s")
    with pytest.raises(StoreError, match="another window"):
        library.erase()
    reader.close()
    with closing(Library.open(library.store.path)) as later:
        assert later.erase()
        assert not later.erase()
    assert _holding(folder, SENTENCE) == []


class Imports(RuleBasedStateMachine):
    """Imports, files and texts as a dictionary; every observable answer must follow from it."""

    imports = st.sampled_from(["/a", "/b"])
    files = st.sampled_from(["x", "y"])
    texts = st.lists(st.sampled_from(["one", "two", "three", "four"]), min_size=1, max_size=3)

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.library = Library.open(Path(self.folder.name) / "library.db")
        self.expected: dict[str, dict[str, list[str]]] = {}

    @rule(import_path=imports, file=files, texts=texts)
    def read(self, import_path: str, file: str, texts: list[str]) -> None:
        _store(self.library, import_path, *texts, file=file)
        self.expected.setdefault(import_path, {})[file] = texts

    @rule(import_path=imports)
    def forget(self, import_path: str) -> None:
        if import_path in self.expected:
            self.library.forget(import_path)
            del self.expected[import_path]

    @invariant()
    def texts_are_those_of_all_documents(self) -> None:
        texts = {t for files in self.expected.values() for stored in files.values() for t in stored}
        digests = sorted(_page(text).digest for text in texts)
        assert self.library.digests() == digests
        assert [self.library.read(digest)[0].text for digest in digests] == [
            text for _, text in sorted((_page(text).digest, text) for text in texts)
        ]

    @invariant()
    def imports_add_up(self) -> None:
        listed = {stored.path: stored for stored in self.library.imports()}
        assert set(listed) == set(self.expected)
        for path, files in self.expected.items():
            documents = [text for stored in files.values() for text in stored]
            assert listed[path].files == len(files)
            assert listed[path].documents == len(documents)
            assert listed[path].characters == sum(map(len, documents))

    def teardown(self) -> None:
        self.library.close()
        self.folder.cleanup()


TestImports = Imports.TestCase
TestImports.settings = settings(
    max_examples=30,
    stateful_step_count=15,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


LARGE = """
import resource, sys
from pathlib import Path
from datastores.library.documents import NOTES, Document, FinishFile, Part, StoreDocument
from datastores.library.library import Library

library = Library.open(Path(sys.argv[1]))
for number in range(40):
    text = Document("", (Part(NOTES, f"{number} " * 2**19),))
    library.write([StoreDocument("/s", "f", number, text), FinishFile("/s", "f", "d", number + 1)])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
match sys.argv[2]:
    case "source":
        library.forget("/s")
    case "file":
        library.forget_files("/s", ["f"])
    case "rest":
        library.write([FinishFile("/s", "f", "e", 0)])
library.erase()
assert library.text_count == 0
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="others count memory in other units")
@pytest.mark.parametrize("what", ["source", "file", "rest"])
def test_forgetting_takes_no_memory_for_what_is_forgotten(tmp_path: Path, what: str) -> None:
    command = [sys.executable, "-c", LARGE, str(tmp_path / "library.db"), what]
    grown = subprocess.run(command, check=True, capture_output=True, text=True)
    assert int(grown.stdout) < 20, "MiB, of 60 that were forgotten"

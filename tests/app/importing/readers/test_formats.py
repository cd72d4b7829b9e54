"""Notes, code, pages, notebooks and histories: recognised, and read as they were meant."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.importing import import_file
from app.importing.readers.shell_history import unmetafy
from app.importing.readers.text import kind_of
from app.importing.reading import redacted
from datastores.library.documents import CODE, NOTES, SHELL, Document, Part
from tests.app.importing.texts import pdf, read


def _parts(name: str, content: bytes) -> list[tuple[str, str]]:
    (document,), skipped = read(name, content)
    assert not skipped
    return [(part.kind, part.text) for part in document.parts]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("readme.md", NOTES),
        ("notes.txt", NOTES),
        ("a.rst", NOTES),
        ("a.tex", NOTES),
        ("thoughts", NOTES),
        ("a.log", NOTES),
        ("a.py", CODE),
        ("makefile", CODE),
        ("dockerfile", CODE),
        ("cmakelists.txt", CODE),
        ("a.rs", CODE),
        ("a.ts", CODE),
        ("a.css", CODE),
        ("a.yaml", CODE),
        ("a.sh", CODE),
    ],
)
def test_names_distinguish_code_from_notes(name: str, kind: str) -> None:
    assert kind_of(name) == kind


def test_text_is_kept_as_it_is() -> None:
    assert _parts("deep/Note.MD", b"# Title\r\n\r\ntext\r\n") == [(NOTES, "# Title\n\ntext\n")]
    assert _parts("x.py", "π = 3\n".encode()) == [(CODE, "π = 3\n")]


def test_decomposed_characters_are_composed() -> None:
    written = Document("a.md", (Part(NOTES, "Mu\u0308hle \u1103\u1173\u11bc ﬁx"),))
    assert redacted(written)[0].parts == (Part(NOTES, "Mühle 등 ﬁx"),)


def test_pages_become_markdown() -> None:
    page = """<!DOCTYPE html><html><head><title>t</title><script>var x = 1</script></head><body>
        <nav><a href="/">home</a></nav>
        <main><h1>Ropes</h1><p>Tie <b>two</b>&nbsp;knots &amp; pull.</p>
        <pre><code>tie --twice
pull</code></pre><ul><li>one</li><li>two</li></ul></main><footer>imprint</footer></body></html>"""
    for name in ("page.html", "page", "page.txt"):
        ((kind, text),) = _parts(name, page.encode())
        assert kind == NOTES
        assert text.startswith("# Ropes\n\nTie **two**\xa0knots & pull.")
        assert "```\ntie --twice\npull\n```" in text
        assert "* one\n* two" in text
        assert not {"home", "imprint", "var"} & set(text.split())


def test_a_page_nested_deeper_than_the_stack_gives_its_words() -> None:
    page = b"<html><body>" + b"<div>" * 2000 + b"in the middle"
    assert _parts("deep.html", page) == [(NOTES, "in the middle")]


def test_pdfs_give_their_words() -> None:
    assert _parts("a.pdf", pdf("Seventeen knots")) == [(NOTES, "Seventeen knots")]
    assert _parts("without a suffix", pdf("Seventeen knots")) == [(NOTES, "Seventeen knots")]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (pdf("Seventeen knots")[:100], "damaged or truncated PDF"),
        (b"%PDF-1.4 and nothing", "damaged or truncated PDF"),
        (pdf(""), "no text in it"),
    ],
)
def test_pdfs_that_cannot_be_read_say_why(content: bytes, reason: str) -> None:
    found, skipped = read("a.pdf", content)
    assert not found
    assert [skipped_file.reason for skipped_file in skipped] == [reason]


def test_notebooks_give_runs_of_cells_of_one_kind() -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "words"]},
        {"cell_type": "code", "source": "x = 1", "outputs": [{"text": "output"}]},
        {"cell_type": "code", "source": ""},
        {"cell_type": "code", "source": ["y = 2\n", "z = 3"], "outputs": []},
        {"cell_type": "markdown", "source": "end"},
    ]
    notebook = {"cells": cells, "nbformat": 4, "metadata": {}}
    assert _parts("n.ipynb", json.dumps(notebook).encode()) == [
        (NOTES, "# Title\nwords"),
        (CODE, "x = 1\n\ny = 2\nz = 3"),
        (NOTES, "end"),
    ]


def test_old_notebooks_keep_their_cells_in_worksheets() -> None:
    sheet = {"cells": [{"cell_type": "code", "input": ["x = 1"]}]}
    notebook = {"nbformat": 3, "worksheets": [sheet]}
    assert _parts("n.ipynb", json.dumps(notebook).encode()) == [(CODE, "x = 1")]


@pytest.mark.parametrize("content", [b"{", b"[]", b"{}", b"null", b"[" * 90_000 + b"]" * 90_000])
def test_notebooks_with_nothing_in_them_are_named(content: bytes) -> None:
    found, skipped = read("n.ipynb", content)
    assert not found
    assert len(skipped) == 1


def test_bash_history_with_and_without_times() -> None:
    timed = b"#1700000000\nls -l\n#1700000001\nfor f in *; do\n  echo $f\ndone\n"
    expected = [(SHELL, "ls -l\nfor f in *; do\n  echo $f\ndone\n")]
    assert _parts(".bash_history", timed) == expected
    assert _parts("saved", timed) == expected
    assert _parts(".bash_history", b"ls\n# a comment\npwd\n") == [(SHELL, "ls\n# a comment\npwd\n")]


def test_only_a_whole_line_is_a_time() -> None:
    inside = b"#1700000000\necho a #1700000000\nls\n#1700000001"
    assert _parts(".bash_history", inside) == [(SHELL, "echo a #1700000000\nls\n")]
    assert _parts(".history", b"#+1700000000\nls\n#+1700000001\npwd\n") == [(SHELL, "ls\npwd\n")]


def _metafied(typed: bytes) -> bytes:
    """As zsh writes it: bytes it uses itself (0x83–0xa2) behind 0x83, with bit 5 flipped."""
    return b"".join(
        bytes([0x83, byte ^ 0x20]) if 0x83 <= byte <= 0xA2 else bytes([byte]) for byte in typed
    )


def test_zsh_history_with_its_metafied_bytes() -> None:
    typed = "echo 'Größe à ’'\n"
    plain = b": 1700000000:0;ls -l\n: 1700000001:5;for f in *; do\\\n  echo $f\\\ndone\n"
    history = plain + b": 1700000002:0;" + _metafied(typed.encode())
    expected = [(SHELL, f"ls -l\nfor f in *; do\n  echo $f\ndone\n{typed}")]
    assert _parts(".zsh_history", history) == expected
    assert _parts("saved", history) == expected
    assert _parts(".zsh_history", b"ls\npwd\n") == [(SHELL, "ls\npwd\n")]


def test_zsh_history_in_plain_utf8_beside_metafied_lines() -> None:
    typed = "echo 'ă Ã → 你好 é'\n"
    plain = f": 1700000000:0;{typed}".encode()
    metafied = b": 1700000001:0;" + _metafied(typed.encode())
    assert _parts(".zsh_history", plain) == [(SHELL, typed)]
    assert _parts(".zsh_history", plain + metafied) == [(SHELL, typed * 2)]


@given(st.binary(max_size=100))
def test_metafied_bytes_come_back(typed: bytes) -> None:
    assert unmetafy(_metafied(typed)) == typed


@given(st.binary(max_size=100))
def test_unmetafying_never_fails(content: bytes) -> None:
    unmetafy(content)


def test_fish_history() -> None:
    history = (
        b"- cmd: ls -l\n  when: 1700000000\n"
        b"- cmd: for f in *\\n  echo a\\\\b\\nend\n  when: 1700000001\n  paths:\n    - x\n"
    )
    expected = [(SHELL, "ls -l\nfor f in *\n  echo a\\b\nend")]
    assert _parts("fish_history", history) == expected
    assert _parts("saved", history) == expected


def test_json_that_is_no_export_is_the_text_it_is() -> None:
    assert _parts("package.json", b'{"name": "x"}') == [(CODE, '{"name": "x"}')]
    assert _parts("tsconfig.json", b'{"a": 1, // why\n}') == [(CODE, '{"a": 1, // why\n}')]


def test_letters_that_json_escapes_can_be_searched() -> None:
    escaped = rb'{"a": "\u0414\u0430 \ud83d\ude00 \n \\u0414 \u003c\u0414 \ud83d"}'
    read_as = '{"a": "Да 😀 \\n \\\\u0414 \\u003cД \ufffd"}'
    assert _parts("a.json", escaped) == [(CODE, read_as)]


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("deep.json", b"[" * 100_000 + b"]" * 100_000, "JSON nested more than 200 deep"),
        ("open.json", b'{"a":' * 100_000, "JSON nested more than 200 deep"),
        ("conversations.json", b"[{", "not a known chat export, or a damaged one"),
        ("big.json", b"[" + b"1," * import_file.MAX_JSON_BYTES, "larger than 1 MiB"),
        ("x.txt", b"\0\1\2", "binary"),
        ("x.txt", b"\xff\x00\x01" * 100, "binary"),
        ("x.txt", b" \n\t ", "empty"),
        ("x.zip", b"PK\x03\x04 and nothing", "damaged or truncated archive"),
        ("x.tar.gz", b"no tar", "damaged or truncated archive"),
    ],
)
def test_what_cannot_be_used_says_why(name: str, content: bytes, reason: str) -> None:
    found, skipped = read(name, content)
    assert not found
    assert [(skipped_file.name, skipped_file.reason) for skipped_file in skipped] == [
        (name, reason)
    ]


@given(
    name=st.sampled_from(
        ["a.json", "a.jsonl", "a.ipynb", "a.txt", "fish_history", ".zsh_history", "a.zip", "a.tar"]
    ),
    content=st.binary(max_size=200)
    | st.sampled_from([b"[{", b"{", b"PK\x03\x04", b"- cmd: ", b": 1:0;"]).flatmap(
        lambda start: st.binary(max_size=100).map(lambda rest: start + rest)
    ),
)
def test_no_bytes_break_a_reader(name: str, content: bytes) -> None:
    read(name, content)

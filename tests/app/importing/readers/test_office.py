"""Documents of word processors: read as Markdown, or refused with what helps."""

from __future__ import annotations

from pathlib import Path

import pytest

from datastores.library.documents import NOTES
from tests.app.importing.texts import read, zipped

W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
ODF = (
    'xmlns:t="urn:oasis:names:tc:opendocument:xmlns:text:1.0"'
    ' xmlns:b="urn:oasis:names:tc:opendocument:xmlns:table:1.0"'
)
DOCX = f"""<w:document {W}><w:body>
<w:p><w:pPr><w:pStyle w:val="Heading2"/></w:pPr><w:r><w:t>Gate</w:t></w:r></w:p>
<w:p><w:r><w:t xml:space="preserve">It is </w:t></w:r><w:r><w:t>open.</w:t></w:r></w:p>
<w:p><w:pPr><w:numPr/></w:pPr><w:r><w:t>oak</w:t></w:r></w:p>
<w:tbl><w:tr><w:tc><w:p><w:r><w:t>planks</w:t></w:r></w:p></w:tc>
<w:tc><w:p><w:r><w:t>11</w:t></w:r></w:p></w:tc></w:tr></w:tbl></w:body></w:document>"""
ODT = f"""<d {ODF}><t:h t:outline-level="2">Gate</t:h>
<t:p>It is <t:span>open.</t:span></t:p><t:list><t:list-item><t:p>oak</t:p></t:list-item></t:list>
<b:table><b:table-row><b:table-cell><t:p>planks</t:p></b:table-cell>
<b:table-cell><t:p>11</t:p></b:table-cell></b:table-row></b:table></d>"""


def _document(folder: Path, name: str, member: str, content: str) -> bytes:
    return zipped(folder / name, {member: content.encode()}).read_bytes()


@pytest.mark.parametrize(
    ("name", "member", "content"),
    [("a.docx", "word/document.xml", DOCX), ("a.odt", "content.xml", ODT)],
)
def test_a_document_is_its_text(tmp_path: Path, name: str, member: str, content: str) -> None:
    (found,), skipped = read(name, _document(tmp_path, name, member, content))
    assert [(part.kind, part.text) for part in found.parts] == [
        (NOTES, "## Gate\n\nIt is open.\n\n- oak\n\n| planks | 11 |")
    ]
    assert not skipped


def test_a_damaged_document_is_named(tmp_path: Path) -> None:
    bomb = f'<!DOCTYPE d [<!ENTITY a "b">]>{DOCX}'
    for member, content in (
        ("other.xml", DOCX),
        ("word/document.xml", "<w"),
        ("word/document.xml", bomb),
    ):
        found, (skipped,) = read("a.docx", _document(tmp_path, "a.docx", member, content))
        assert (found, skipped.reason.split()[0]) == ([], "damaged")


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.doc", b"\xd0\xcf\x11\xe0" + bytes(99), ".doc is not read: save it as .docx"),
        ("a.rtf", b"{\\rtf1 gate}", ".rtf is not read: save it as .docx"),
        ("a.xlsx", b"PK\x03\x04", ".xlsx is not read: save it as CSV"),
    ],
)
def test_what_is_not_read_says_what_helps(name: str, content: bytes, reason: str) -> None:
    assert [one.reason for one in read(name, content)[1]] == [reason]


def test_a_text_with_such_a_name_is_text() -> None:
    (found,), _ = read("notes.key", b"The key is behind the clock.")
    assert found.parts[0].text == "The key is behind the clock."

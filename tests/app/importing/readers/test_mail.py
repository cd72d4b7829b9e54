"""Mails: subject, sender and text, whatever they are wrapped in; attachments read or named."""

from __future__ import annotations

from email.message import EmailMessage

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.importing.readers import mail
from datastores.library.documents import NOTES
from tests.app.importing.texts import pdf, read


def _text(name: str, content: bytes) -> str:
    (document,), skipped = read(name, content)
    assert not skipped
    (part,) = document.parts
    assert part.kind == NOTES
    return part.text


def _mail(text: str = "The ferry leaves at nine.\n") -> EmailMessage:
    message = EmailMessage()
    message["Subject"] = "Überfahrt nach Aspholm"
    message["From"] = "Märta <marta@example.org>"
    message["To"] = "all@example.org"
    message["Date"] = "Thu, 01 May 2025 09:00:00 +0200"
    message["Received"] = "from a.example.org by b.example.org"
    message.set_content(text)
    return message


def _attach(message: EmailMessage, name: str, content: bytes) -> None:
    message.add_attachment(content, maintype="application", subtype="octet-stream", filename=name)


def test_a_mail_is_its_subject_sender_and_text() -> None:
    expected = (
        "# Überfahrt nach Aspholm\n\nFrom: Märta <marta@example.org>\nTo: all@example.org\n"
        "Date: Thu, 01 May 2025 09:00:00 +0200\n\nThe ferry leaves at nine."
    )
    content = _mail().as_bytes()
    assert _text("a.eml", content) == expected
    assert _text("without a suffix", content) == expected
    assert _text("a.emlx", b"%d\n%s<?xml?><plist/>" % (len(content), content)) == expected


@pytest.mark.parametrize("encoding", ["quoted-printable", "base64"])
def test_texts_are_decoded(encoding: str) -> None:
    message = _mail()
    message.set_content("Die Fähre kostet 5 €.\n", charset="cp1252", cte=encoding)
    assert _text("a.eml", message.as_bytes()).endswith("Die Fähre kostet 5 €.")


def test_headers_in_bytes_and_an_unknown_charset_are_guessed() -> None:
    content = (
        "From: a@example.org\nSubject: Fähre\nMIME-Version: 1.0\n"
        "Content-Type: text/plain; charset=x-none\n\nDie Fähre fährt über den Fluß.\n"
    ).encode("latin-1")
    assert _text("a.eml", content).endswith("Die Fähre fährt über den Fluß.")


def test_of_alternatives_the_plain_one_is_read() -> None:
    message = _mail()
    message.add_alternative("<p>The <b>ferry</b> leaves.</p>", subtype="html")
    assert _text("a.eml", message.as_bytes()).endswith("\n\nThe ferry leaves at nine.")
    empty = _mail(" \n")
    empty.add_alternative("<p>The <b>ferry</b> leaves.</p>", subtype="html")
    assert _text("a.eml", empty.as_bytes()).endswith("\n\nThe **ferry** leaves.")


def test_attachments_with_text_are_read_and_others_named() -> None:
    message = _mail()
    message.add_attachment("Adults nine crowns.", filename="prices.txt")
    _attach(message, "table.md", b"| child | four |\n")
    message.add_attachment(b"\x89PNG\0", maintype="image", subtype="png", filename="map.png")
    _attach(message, "all.zip", b"PK\x03\x04\0\1\2")
    message.add_attachment(
        pdf("Seventeen knots"), maintype="application", subtype="pdf", filename="knots.pdf"
    )
    message.add_attachment(_mail("An older mail."))
    text = _text("a.eml", message.as_bytes())
    assert "Attachment prices.txt:\n\nAdults nine crowns." in text
    assert "Attachment table.md:\n\n| child | four |" in text
    assert "Attachment map.png: not read (image)" in text
    assert "Attachment all.zip: not read (binary)" in text
    assert "Attachment knots.pdf:\n\nSeventeen knots" in text
    assert text.endswith("\n\nAn older mail.")


def test_a_saved_page_is_its_text() -> None:
    page = (
        b"From: <Saved by Blink>\r\nSnapshot-Content-Location: https://example.org/\r\n"
        b"Subject: Mills\r\nDate: Thu, 1 May 2025 09:00:00 -0000\r\nMIME-Version: 1.0\r\n"
        b'Content-Type: multipart/related; type="text/html"; boundary="--x"\r\n\r\n\r\n'
        b"----x\r\nContent-Type: text/html\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n"
        b'<html><head><meta charset=3D"utf-8"></head><body><h2>Weir</h2><p>L=C3=A4uft =\r\n'
        b"wieder.</p></body></html>\r\n"
        b"----x\r\nContent-Type: text/css\r\n\r\nbody { color: red }\r\n----x--\r\n"
    )
    text = _text("mills.mhtml", page)
    assert text.startswith("# Mills\n\nDate: ")
    assert text.endswith("## Weir\n\nLäuft wieder.")


@pytest.mark.parametrize("named", ["", '; start="<page>"', '; type="text/html"'])
def test_a_saved_page_need_not_be_the_first_part(named: str) -> None:
    mail = (
        f'MIME-Version: 1.0\nContent-Type: multipart/related{named}; boundary="b"\n\n'
        "--b\nContent-Type: text/css\n\nbody {}\n"
        "--b\nContent-Type: text/html\nContent-ID: <page>\n\n<p>The gate is open.</p>\n--b--\n"
    )
    (found,), _ = read("a.mht", mail.encode())
    assert found.parts[0].text == "The gate is open."


def test_each_mail_of_a_box_is_a_document() -> None:
    first = b"From - Thu May 1 09:00:00 2025\n" + _mail("One.\n\nFrom here on, two.\n").as_bytes()
    second = b"\nFrom b@example.org Fri May 2 09:00:00 2025\n" + _mail(">From me.\n").as_bytes()
    for name in ("Inbox", "old.mbox"):
        documents, skipped = read(name, first + second)
        assert not skipped
        assert [document.title for document in documents] == [f"{name}, mail 1", f"{name}, mail 2"]
        texts = [document.parts[0].text for document in documents]
        assert texts[0].endswith("One.\n\nFrom here on, two.")
        assert texts[1].endswith("\n\nFrom me.")


def test_a_large_mail_in_a_box_costs_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mail, "MAX_ENTRY_BYTES", 1000)
    start = b"From a@example.org Fri May 2 09:00:00 2025\n"
    large = start + _mail("x\n" * 2000).as_bytes() + b"\n"
    (document,), (skipped,) = read("old.mbox", large + start + _mail().as_bytes())
    assert document.title == "old.mbox, mail 2"
    assert skipped.name == "old.mbox, mail 1"
    assert skipped.reason.startswith("larger than")


def test_parts_nested_too_deeply_are_refused() -> None:
    content = b"From: a@example.org\nMIME-Version: 1.0\n"
    for number in range(500):
        content += b"Content-Type: multipart/mixed; boundary=b%d\n\n--b%d\n" % (number, number)
    documents, (skipped,) = read("a.eml", content + b"\ntext")
    assert not documents
    assert skipped.reason == "parts nested too deeply"


def test_a_damaged_mail_in_a_box_costs_no_other() -> None:
    start = b"From a@example.org Fri May 2 09:00:00 2025\n"
    odd = b"From: a\nContent-Type: text/plain; charset*=ascii; charset*0=x\n\ntext\n\n"
    (document,), (skipped,) = read("old.mbox", start + odd + start + _mail().as_bytes())
    assert document.title == "old.mbox, mail 2"
    assert skipped.reason == "damaged mail"


@given(
    st.binary(max_size=200).map(
        lambda body: b"From: a\nSubject: =?utf-8?b?x?=\nContent-Type: " + body + b"\n\n--x\n"
    )
)
def test_no_bytes_break_a_mail(content: bytes) -> None:
    read("a.eml", content)
    read("a.mbox", b"From a 2025\n" + content)

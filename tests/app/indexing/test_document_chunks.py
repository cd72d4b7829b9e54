"""Chunks say what they are about: their note's name, their chat's title and question."""

from __future__ import annotations

import pytest

from app.indexing.document_chunks import MAX_QUESTION, chunks_of, document_name
from datastores.library.documents import CHATS, NOTES, Part
from datastores.passages.chunks import MAX_CHARACTERS


def asked(text: str) -> Part:
    return Part(CHATS, text, "user")


def answered(text: str) -> Part:
    return Part(CHATS, text, "assistant")


@pytest.mark.parametrize(
    ("file", "title", "name"),
    [
        ("bike.md", "bike.md", "bike"),
        ("house/front door.md", "house/front door.md", "front door"),
        ("archive/mail.mbox", "mail.mbox, mail 3", "mail"),
        ("conversations.json", "Knitting socks (2023-12-19)", "Knitting socks (2023-12-19)"),
    ],
)
def test_a_document_is_called_by_its_title_or_its_file(file: str, title: str, name: str) -> None:
    assert document_name(file, title) == name


def test_a_note_is_named_in_headings_that_do_not_name_it() -> None:
    text = f"Front 4.5 bar.\n\n# Tyres\n\n{'Marathon. ' * 60}\n\n# My bike\n\nRed."
    headings = [chunk.heading for _, chunk in chunks_of([Part(NOTES, text)], "Bike")]
    assert headings == ["Bike", "Bike > Tyres", "My bike"] or headings == ["Bike", "My bike"]


def test_a_question_stays_with_its_answers() -> None:
    parts = [asked("socks for 38?"), answered("60 stitches."), asked("and 44?"), answered("68.")]
    found = list(chunks_of(parts, "Knitting"))
    assert [(part, chunk.heading, chunk.content) for part, chunk in found] == [
        (0, "Knitting", "socks for 38?\n\n60 stitches."),
        (2, "Knitting", "and 44?\n\n68."),
    ]


def test_a_chat_may_begin_with_an_answer_and_have_several_to_a_question() -> None:
    parts = [answered("Hello."), asked("a?"), answered("b"), answered("c")]
    found = list(chunks_of(parts, ""))
    assert [(part, chunk.content) for part, chunk in found] == [(0, "Hello."), (1, "a?\n\nb\n\nc")]


def test_the_rest_of_a_long_answer_is_headed_by_its_question() -> None:
    question = "how do I\nknit a heel? " + "x" * 200
    parts = [asked(question), answered("\n\n".join(["stitch " * 100] * 4))]
    (_, first), *rest = chunks_of(parts, "Socks")
    assert first.heading == "Socks"
    assert len(rest) == 3
    for _, chunk in rest:
        assert chunk.heading.startswith("Socks > how do I knit a heel? xx")
        assert len(chunk.heading) == len("Socks > ") + MAX_QUESTION
        assert len(chunk.content) <= MAX_CHARACTERS

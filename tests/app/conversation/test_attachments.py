"""Files that go with a question: read, put before it, and found again in what is stored."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.conversation import attachments as module
from app.conversation.assistant import Assistant
from app.conversation.attachments import (
    Attachment,
    attachments_of,
    compose,
    question_of,
    read_attachment,
)
from datastores.chats.history import History
from datastores.chats.records import USER, StoredMessage
from datastores.errors import ContextOverflowError, InputError
from tests.app.importing.texts import pdf
from tests.app.scripted import scripted_engine

_TEXT = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=20)
_ATTACHMENTS = st.lists(
    st.builds(Attachment, _TEXT, st.integers(0, 9), _TEXT, st.integers(1, 3)), max_size=3
)


@given(_TEXT, _ATTACHMENTS)
def test_what_was_composed_is_taken_apart_again(
    question: str, attachments: list[Attachment]
) -> None:
    content, places = compose(question, attachments)
    stored = StoredMessage(1, 1, None, USER, content, (), "", "", "stop", {}, 0.0, places)
    assert question_of(stored) == question
    assert attachments_of(stored) == tuple(attachments)


def test_files_go_before_the_question_under_their_names(tmp_path: Path) -> None:
    path = tmp_path / "notes.md"
    path.write_bytes(b"\xef\xbb\xbfline\r\n")
    read = read_attachment(path)
    assert read == Attachment("notes.md", 9, "line")
    assert compose("what?", [read])[0] == "File notes.md:\n\nline\n\nwhat?"


def test_a_pdf_and_a_web_page_are_attached_as_text(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(pdf("Walrus tusks"))
    (tmp_path / "b.html").write_text("<html><body><p>Walrus tusks</p></body></html>")
    for name in ("a.pdf", "b.html"):
        read = read_attachment(tmp_path / name)
        assert "Walrus tusks" in read.text
        assert "<" not in read.text


def test_a_folder_is_attached_as_an_import_would_find_it(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    (folder / "src").mkdir()
    for name, content in {
        ".gitignore": b"*.log\n",
        "a.md": b"first",
        "b.log": b"ignored",
        "c.png": b"\x89PNG\0\0",
        "src/d.py": b"pass",
    }.items():
        (folder / name).write_bytes(content)
    read = read_attachment(folder)
    assert (read.name, read.files, read.size) == ("project/", 3, 15)
    assert read.text == (
        "File project/.gitignore:\n\n*.log\n\nFile project/a.md:\n\nfirst"
        "\n\nFile project/src/d.py:\n\npass"
    )
    assert compose("?", [read])[0].startswith("Folder project/:\n\nFile project/.gitignore:")


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("picture.png", b"\x89PNG\0\0", "binary"),
        ("gone.txt", None, "cannot be read: no such file or directory"),
        ("empty.txt", b"", "empty"),
        ("blank.txt", b" \n", "empty"),
        (".env", b"TOKEN=x", "usually holds secrets"),
        ("broken.pdf", b"%PDF-1.7 nothing", "damaged or truncated PDF"),
    ],
)
def test_what_cannot_be_attached_is_named_with_the_reason(
    tmp_path: Path, name: str, content: bytes | None, reason: str
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_attachment(path)
    assert str(caught.value) == f"cannot attach {path}: {reason}"


def test_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_text("x" * 100)
    monkeypatch.setattr(module, "MAX_ATTACHMENT_BYTES", 99)
    with pytest.raises(InputError, match="attach a part of it"):
        read_attachment(tmp_path / "a.txt")
    monkeypatch.setattr(module, "MAX_ATTACHMENT_BYTES", 1000)
    (tmp_path / "b.txt").write_text("x")
    monkeypatch.setattr(module, "MAX_FILES", 1)
    with pytest.raises(InputError, match="more than 1 files"):
        read_attachment(tmp_path)


def test_the_model_reads_the_files_and_the_chat_is_titled_by_the_question(
    tmp_path: Path, history: History
) -> None:
    assistant = Assistant(scripted_engine(tmp_path), history)
    chat = history.create_chat().id
    with pytest.raises(ContextOverflowError, match=r"remove an attachment$"):
        list(assistant.answer(chat, None, "What?", [Attachment("notes.txt", 8, "x" * 600)]))
    assert history.tree(chat) == []
    notes = Attachment("notes.txt", 8, "walruses")
    list(assistant.answer(chat, None, "How do I feed them all?", [notes]))
    question, answer = history.thread(chat)
    assert question.content == "File notes.txt:\n\nwalruses\n\nHow do I feed them all?"
    assert answer.statistics["prompt_tokens"] == len(question.content) + 2
    assert history.chat(chat).title == "Feed them all"
    list(assistant.edit(question.id, "And now?", attachments_of(question)))
    assert question_of(history.thread(chat)[0]) == "And now?"
    assert attachments_of(history.thread(chat)[0]) == (notes,)

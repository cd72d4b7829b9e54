"""Passages for a model that is told what to say if they do not answer: which, in which words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from app.conversation.assistant import Assistant
from app.conversation.attachments import Attachment
from app.conversation.imported_texts import INSTRUCTION, ImportedTexts, chat_material, with_notes
from app.engine.engine import PassageForm
from app.indexing.passage_index import FoundPassage, Gate, find, update
from app.locations import Locations
from datastores.chats.history import History
from datastores.chats.records import ASSISTANT, SYSTEM, USER
from datastores.library.documents import NOTES, Document, Part, StoreDocument
from datastores.library.library import Library
from datastores.passages.chunks import Chunk
from datastores.passages.embeddings import Embedder, Encoding, UnrelatedTexts, Vectors
from datastores.passages.store import PassageStore
from engines.chat_template.placement import Placer
from engines.chat_template.prompt_builder import Content, Literal, Message
from engines.chat_template.render_process import RenderProcess
from engines.retrieval.dense import MISSING, DenseRetriever
from engines.retrieval.late_interaction import AskedTokens, Matches
from engines.retrieval.protocol import ScoredPassage
from tests.app.scripted import scripted_engine
from tests.engines.chat_template.test_template import PUBLIC

FILLER = [f"Some other note, number {number}." for number in range(40)]
CODE = "```python\ndef parse_rows(lines):\n    return [line.split() for line in lines]\n```"


@pytest.fixture
def imports(tmp_path: Path) -> Iterator[ImportedTexts]:
    locations = Locations(data=tmp_path, cache=tmp_path / "cache", config=tmp_path)
    with closing(ImportedTexts.open(locations)) as opened:
        put(opened, {f"{number}.md": text for number, text in enumerate(FILLER)})
        yield opened


def put(imports: ImportedTexts, texts: Mapping[str, str]) -> None:
    for name, text in texts.items():
        document = Document(name, (Part(NOTES, text),))
        imports._library.write([StoreDocument("/notes", name, 0, document)])
    list(update(imports._library, imports._passages))


class Similar:
    """A dense retriever with given similarities of passages and their tokens, in standard
    deviations of unrelated texts."""

    unrelated = UnrelatedTexts(0.0, 1.0)
    embedder = Embedder("a fingerprint", "/models/embedder.gguf", 1, unrelated, unrelated)

    def __init__(self, library: Library, store: PassageStore, near: Mapping[str, float]) -> None:
        files = {key: library.places(key)[0].file for key in library.digests()}
        found = store.of_texts(list(files))
        scored = [ScoredPassage(one, near.get(files[one.text], 0.0)) for one in found]
        self.found = sorted(scored, key=lambda one: -one.score)

    def encode(self, queries: Sequence[str]) -> list[Encoding]:
        return [Encoding(np.ones(1, np.float32), np.empty((0, 1), np.float32)) for _ in queries]

    def search_vectors(self, queries: Vectors, limit: int) -> list[list[ScoredPassage]]:
        return [self.found[:limit] for _ in queries]

    def score_vector(self, query: Vectors, passages: Sequence[int]) -> list[float]:
        scores = {one.passage.id: one.score for one in self.found}
        return [scores.get(number, MISSING) for number in passages]

    def match_tokens(self, query: AskedTokens, passages: Sequence[int]) -> dict[int, Matches]:
        scores = self.score_vector(np.ones(1, np.float32), passages)
        return {one: np.array([score]) for one, score in zip(passages, scores, strict=True)}


def leading(
    imports: ImportedTexts,
    question: str,
    near: Mapping[str, float] | None = None,
    chat: Sequence[str] = (),
) -> list[str]:
    """The files whose passages lead."""
    library, store = imports._library, imports._passages
    dense = cast(DenseRetriever, Similar(library, store, near)) if near is not None else None
    found = find(library, store, question, 4, gate=Gate.LEADING, chat=chat, dense=dense)
    return [one.file for one in found]


def test_a_passage_leads_by_words_by_meaning_or_by_both(imports: ImportedTexts) -> None:
    put(imports, {"rent.md": "The contract for the flat ends in May. Deposit: two rents."})
    assert leading(imports, "When does the contract for my flat end?") == ["rent.md"], "words"
    assert leading(imports, "Until when can I live at home?") == []
    assert leading(imports, "Until when can I live at home?", {"rent.md": 5.0}) == ["rent.md"]
    one_word = "Which animal is on the deposit stamp?"
    assert leading(imports, one_word, {"rent.md": -3.0}) == [], "a coincidence of words"
    assert leading(imports, one_word, {"rent.md": 3.0}) == ["rent.md"]


def test_what_leads_far_less_than_the_best_stays_out(imports: ImportedTexts) -> None:
    put(imports, {"rent.md": "The contract for the flat.", "car.md": "A car.", "bus.md": "A bus."})
    near = {"rent.md": 20.0, "car.md": 16.0, "bus.md": 3.5}
    assert leading(imports, "Until when can I live at home?", near) == ["rent.md", "car.md"]
    assert leading(imports, "Until when can I live at home?", {"bus.md": 3.5}) == ["bus.md"]


def test_in_other_languages_a_share_of_the_words_suffices(imports: ImportedTexts) -> None:
    put(imports, {"chor.md": "Hauptprobe am Freitag, Konzert am Samstag."})
    assert leading(imports, "Wann findet unsere Hauptprobe statt?") == ["chor.md"]
    assert leading(imports, "Wann findet unsere Hauptprobe statt?", {}) == ["chor.md"]
    assert leading(imports, "Welche Farbe hatte das Fahrrad meiner Schwester?") == []


@pytest.mark.parametrize(
    "message",
    ["hi", "good morning!", "Thanks, that was great!", "ok", "Danke", "¡Gracias!", "谢谢"],
)
def test_small_talk_is_about_no_passage(imports: ImportedTexts, message: str) -> None:
    words = "Good morning, thanks, that is great, ok, danke, gracias, 谢谢: what we say."
    put(imports, {"words.md": words})
    assert leading(imports, message, {"words.md": 9.0}) == []


def test_the_better_the_chat_explains_it_the_more_a_passage_has_to_lead(
    imports: ImportedTexts,
) -> None:
    stranger = "def test_rows():\n    assert parse([]) == []  # a list of rows, an empty one"
    put(imports, {"test_rows.py": stranger})
    question, near = "Why does parse_rows return a list of empty rows?", {"test_rows.py": 2.0}
    assert leading(imports, question, near) == ["test_rows.py"]
    assert leading(imports, question, near, [CODE]) == []
    assert leading(imports, question, near, ["A text about umbrellas."]) == ["test_rows.py"]
    put(imports, {"parse_rows.md": "parse_rows returns a list of empty rows without a separator."})
    assert leading(imports, question, {"parse_rows.md": 3.5}, [CODE]) == ["parse_rows.md"]


def test_code_and_files_of_the_chat_count_and_answers_from_notes_do_not(
    tmp_path: Path, history: History, imports: ImportedTexts, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Sequence[str]] = []

    def found(*arguments: object) -> tuple[FoundPassage, ...]:
        seen.append(cast(Sequence[str], arguments[-1]))
        return ()

    monkeypatch.setattr(imports, "find", found)
    assistant = Assistant(scripted_engine(tmp_path, context_length=4096), history, imports)
    chat = history.create_chat().id
    asked = history.add_message(chat, None, USER, "Please write parse_rows.")
    wrote = history.add_message(chat, asked.id, ASSISTANT, CODE)
    cited = {"citations": [{"import_path": "/a", "file": "a", "first_line": 1, "last_line": 1}]}
    for kept in ([CODE], [CODE, "File a.py:\n\nx = 1\n\nIs it fast?"]):
        attached = [Attachment("a.py", 5, "x = 1")][: len(kept) - 1]
        list(assistant.answer(chat, wrote.id, "Is it fast?", attached))
        list(assistant.answer_unsaved(wrote.id, "Is it fast?", attachments=attached))
        assert seen == [tuple(kept)] * 2
        seen.clear()
    noted = replace(wrote, statistics=cited)
    assert chat_material([asked, noted], "Is it fast?", "Is it fast?") == ()
    assert chat_material([replace(noted, statistics={})], CODE, CODE) == (CODE, CODE)
    assert chat_material([replace(asked, content="long " * 99)], "And?", "And?") == ("long " * 99,)


def test_each_passage_names_its_source_and_the_instruction_comes_first() -> None:
    first = FoundPassage(
        "/n", "flat/rent.md", "rent", b"", 0, Chunk("rent > Rent > May", 1, 1, "940"), 1.0
    )
    second = FoundPassage(
        "/c", "chats.json", "A chat\nin May", b"", 0, Chunk("A chat\nin May", 1, 1, "Hello"), 1.0
    )
    before, notes, question = with_notes(
        PassageForm(), [Message(USER, "hi"), Message(USER, "How much?")], [first, second]
    )
    assert (before.content, question.content) == ("hi", "How much?")
    assert notes.role == SYSTEM
    assert notes.content.split("\n\n") == [
        INSTRUCTION,
        "[1] flat/rent.md > Rent > May\n940",
        "[2] chats.json > A chat in May\nHello",
    ]


@pytest.mark.skipif(not PUBLIC, reason="there is no folder of public templates")
@pytest.mark.parametrize("path", PUBLIC[::6], ids=lambda path: str(path.stem))
def test_templates_without_system_messages_in_mid_chat_show_the_notes(path: Path) -> None:
    passage = FoundPassage("/n", "rent.md", "rent", b"", 0, Chunk("", 1, 1, "940 euro"), 1.0)
    chat = [Message(USER, "Hello"), Message(ASSISTANT, "Hi"), Message(USER, "How much?")]
    renderer = RenderProcess(path.read_text(), {"bos_token": "<s>", "eos_token": "</s>"})
    placed = Placer(renderer).place(with_notes(PassageForm(), chat, [passage]))
    assert placed.segments is not None
    text = "".join(
        one.text if isinstance(one, Literal | Content) else "" for one in placed.segments
    )
    assert INSTRUCTION in text
    assert text.index("[1] rent.md\n940 euro") < text.rindex("How much?")

"""The questions of tests/evaluation: their answers stand in the documents that they name."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from app.bench.questions import is_right, read_questions
from tests.app.importing.texts import read

EVALUATION = Path(__file__).parents[2] / "evaluation"
CORPORA = sorted(path.parent for path in EVALUATION.glob("*/questions.jsonl"))


def texts(folder: Path) -> dict[str, str]:
    """What is imported from `folder`, by the file's path and by the document's title."""
    found: defaultdict[str, str] = defaultdict(str)
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = str(path.relative_to(folder))
        documents, skipped = read(name, path.read_bytes())
        assert not skipped
        for document in documents:
            for key in {name, document.title}:
                found[key] += "\n".join(part.text for part in document.parts) + "\n"
    return dict(found)


@pytest.mark.parametrize("corpus", CORPORA, ids=lambda path: path.name)
def test_answers_stand_in_the_documents_and_not_in_the_question(corpus: Path) -> None:
    known = texts(corpus / "documents")
    questions = read_questions(corpus / "questions.jsonl")
    assert len({(question.text, question.before) for question in questions}) == len(questions)
    for question in filter(lambda question: question.answer, questions):
        said = "\n".join(known[document] for document in question.documents)
        assert is_right(said, question.answer), question
        assert not is_right(question.text, question.answer), question
        assert question.kind != "two" or len(question.documents) == 2, question

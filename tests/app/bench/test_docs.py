"""`bench docs` on four documents: their ranks, the passages in prompts, and judging answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.bench.__main__ import papers
from app.bench.docs import Answered, spread
from app.bench.questions import KINDS, NOTHING, GradedQuestion, declines, is_right, read_questions
from app.cli.main import run
from datastores.errors import InputError

TEXTS = {
    "bikes.md": "# Bikes\n\nThe rear tyre of the Gazelle takes 5.5 bar.\n",
    "commands.md": "# tar\n\n- Unpack to the folder walrus:\n\n`tar xf {{a.tar}} -C walrus`\n",
    "box.mbox": "".join(
        f"From a@b.c Mon Jan  5 10:00:00 2026\nFrom: a@b.c\nSubject: {subject}\n\n{text}\n\n"
        for subject, text in (("Telescopes", "Seventeen brass ones."), ("Boiler", "Code E57."))
    ),
}
QUESTIONS = (
    {"question": "rear tyre pressure of the Gazelle", "kind": "one", "documents": ["bikes.md"]}
    | {"answer": [["5.5 bar"]]},
    {"question": "boiler code and telescopes", "kind": "two", "answer": [["E57"], ["17"]]}
    | {"documents": ["box.mbox, mail 1", "box.mbox, mail 2"]},
    {"question": "unpack to the folder walrus", "kind": "followup"}
    | {"documents": ["commands.md"], "answer": [["-C walrus"]], "before": ["what is tar?"]},
    {"question": "who won the chess tournament?", "kind": "nothing"},
)  # fmt: skip
Bench = Callable[..., Any]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "corpus"
    (folder / "documents").mkdir(parents=True)
    for name, text in TEXTS.items():
        (folder / "documents" / name).write_text(text)
    questions = folder / "questions.jsonl"
    questions.write_text("\n".join(map(json.dumps, QUESTIONS)))
    return questions


@pytest.fixture
def bench(tmp_path: Path, corpus: Path, capsys: pytest.CaptureFixture[str]) -> Bench:
    """Runs it over the corpus; the corpus's part of the report, and what was printed."""

    def call(*options: str, model: str = "") -> tuple[Any, str]:
        chosen = ["--model", model] if model else []
        data = ["--data-dir", str(tmp_path / "data"), *chosen, "--max-tokens", "16"]
        assert run([*data, "docs", str(corpus), "--json", *options], papers) == 0
        printed = capsys.readouterr().out
        return json.loads(printed.splitlines()[-1])["corpora"][0], printed

    return call


def test_documents_are_ranked_by_kind_without_a_model(bench: Bench, tmp_path: Path) -> None:
    report, _ = bench()
    rows = {row["kind"]: row for row in report["rows"]}
    assert list(rows) == ["one", "two", "followup", "all"]
    assert rows["all"]["questions"] == 3
    assert (rows["one"]["at_1"], rows["one"]["both_at_3"]) == (1.0, None)
    assert (rows["two"]["at_1"], rows["two"]["both_at_3"]) == (1.0, 1.0)
    first, both, _, none = report["ranks"]
    assert (first, sorted(both), none) == ([1], [1, 2], [])
    assert report["answers"] == []
    assert not list((tmp_path / "data").rglob("*.db")), "the person's own stores were touched"


def test_a_model_answers_as_many_questions_as_asked(bench: Bench) -> None:
    report, printed = bench("--show", "--limit", "1", model="built-in")
    rows = {row["kind"]: row for row in report["answers"]}
    assert [row["answered"] for row in rows.values()] == [1, 0, 0, 0]
    assert rows["one"]["cited"] == 1
    assert rows["one"]["right"] + rows["one"]["declined"] + rows["one"]["invented"] == 1
    assert rows["two"]["right"] is rows["nothing"]["declined"] is None
    assert rows["followup"]["cited"] == 1
    assert "answered [two] boiler code and telescopes" in printed


def test_a_document_that_is_not_there_is_named(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (corpus.parent / "documents" / "bikes.md").unlink()
    assert run(["--data-dir", str(tmp_path / "data"), "docs", str(corpus)], papers) == 1
    assert "holds no document 'bikes.md'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"question": "a"}', "not a question"),
        ('{"question": "a", "kind": "odd"}', "'odd' is none of the kinds"),
        ('{"question": "a", "kind": "one"}', "every other kind has both"),
        ('{"question": "a", "kind": "nothing", "answer": [["b"]]}', "has neither"),
        ('{"question": "a", "kind": "one", "documents": "b", "answer": [["c"]]}', "not a question"),
        ("", "holds no questions"),
    ],
)  # fmt: skip
def test_a_line_that_is_no_question_is_named(line: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "questions.jsonl"
    path.write_text(line)
    with pytest.raises(InputError, match=message):
        read_questions(path)


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("The rear tyre takes **5.5 bar**.", "5.5bar"),
        ("Es sind 5,5 bar.", "5.5 bar"),
        ("It costs 1,250 euros", "1250 euro"),
        ("There are three of them.", "3"),
        ("The code is `E-57`", "e57"),
        ("Café Léon, at 14:30.", "cafe leon"),
        ("It leaves at 14:30.", "14:30"),
        ("On Tuesdays", "tuesday"),
        ("答えは東京です", "東京"),
    ],
)
def test_right_whatever_the_form(answer: str, gold: str) -> None:
    assert is_right(answer, ((gold,),))


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("It takes 15.5 bar", "5.5 bar"),
        ("It takes 5.55", "5.5"),
        ("14", "4"),
        ("4.5", "4"),
        ("at 14:30", "14"),
        ("catalogue", "cat"),
    ],
)
def test_part_of_a_word_or_number_is_not_right(answer: str, gold: str) -> None:
    assert not is_right(answer, ((gold,),))


def test_every_group_needs_one_alternative() -> None:
    groups = (("14 March", "March 14"), ("20 minutes", "20 min"))
    assert is_right("From March 14, for twenty minutes", groups)
    assert not is_right("From March 14", groups)
    assert not is_right("From March 14", ())


@pytest.mark.parametrize(
    "answer",
    [
        "The notes don't mention the tyre pressure of the car.",
        "I'm sorry, but I cannot find that in the notes.",
        "There is no information about your dentist in the notes provided.",
        "Your blood type is not specified.",
        "The provided notes do not contain the answer.",
        "I do not know.",
        "I don't have access to your personal data.",
        "The insurer is unknown.",
        "Nothing in your notes is about a boat.",
        "I am unable to answer this.",
        "As an AI developed by others, I can't assist with that.",
        "However, I cannot provide specific information about your personal situation.",
        "In den Notizen gibt es keine Angaben dazu.",
        "Les notes ne mentionnent pas cela ; aucune information.",
        "Las notas no mencionan el precio.",
    ],
)
def test_declining(answer: str) -> None:
    assert declines(answer)


@pytest.mark.parametrize(
    "answer",
    [
        "The rear tyre takes 2.4 bar.",
        "You do not have to pay before Friday.",
        "It is not far from the station, on the left.",
        "No, the boat is called Halcyon.",
        "Do not run before 14 March.",
        "We do not sell the boat if it is in a good condition.",
    ],
)
def test_not_declining(answer: str) -> None:
    assert not declines(answer)


def test_an_answer_is_right_declined_or_invented() -> None:
    asked = GradedQuestion("How much?", "one", ("a.md",), (("5.5",),))
    assert Answered(asked, (), "5.5 bar, which the notes do not mention").right
    for text, outcome in (("5.5", "right"), ("I do not know.", "declined"), ("7", "invented")):
        one = Answered(asked, (), text)
        assert [name for name in ("right", "declined", "invented") if getattr(one, name)] == [
            outcome
        ]
        assert one.failed == (outcome != "right")
    uncovered = GradedQuestion("How much?", NOTHING)
    assert not Answered(uncovered, (), "I do not know.").failed
    assert Answered(uncovered, (), "7").invented


def test_answered_questions_are_spread_over_the_kinds() -> None:
    questions = [GradedQuestion("?", kind) for kind in (*KINDS, *reversed(KINDS))]
    for limit in range(len(questions) + 5):
        chosen = spread(questions, limit)
        assert len(chosen) == min(limit, len(questions))
    assert {questions[number].kind for number in spread(questions, len(KINDS))} == set(KINDS)

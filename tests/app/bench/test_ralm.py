"""`bench ralm` on the embedded model: the report, its parts, and that the texts are the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count, product
from pathlib import Path
from typing import Any, cast
from xml.etree import ElementTree

import pytest

from app.bench.__main__ import papers
from app.bench.ralm import RalmAnswer, RalmRow, answer, drafts_inside, summarise
from app.bench.ralm_corpus import knowledge_base
from app.bench.ralm_tables import FULL, SEQUENTIAL, TABLES, RalmMethod, paper_tables
from app.cli.main import run
from app.engine.engine import Engine
from datastores.errors import InputError
from engines.ralm.events import RalmStatistics

Call = Callable[..., Any]
TOPICS = ("archive", "snapshot", "volume", "network", "printer", "keyboard")


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    folder = tmp_path / "pages"
    folder.mkdir()
    for topic in TOPICS:
        task = f"- List every {topic}:\n\n`{topic}ctl list`\n"
        page = f"# {topic}ctl\n\n> Manage each {topic}.\n\n{task}"
        (folder / f"{topic}.md").write_text(page)
    return folder


@pytest.fixture
def bench(texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Call:
    chats = tmp_path / "chats.jsonl"
    question = {"role": "user", "content": "How do I list every snapshot?"}
    chats.write_text(json.dumps({"messages": [question]}))

    def call(*arguments: str) -> Any:
        data = ["--data-dir", str(tmp_path / "data"), "--exact", "ralm"]
        paths = ["--workload", str(chats), "--texts", str(texts), "--corpus", "500"]
        assert run([*data, *paths, "--tokens", "16", "--runs", "1", *arguments], papers) == 0
        return capsys.readouterr().out

    return call


@pytest.mark.parametrize("retriever", ["edr", "adr", "sr"])
def test_every_method_writes_the_same_text(bench: Call, retriever: str) -> None:
    output = bench("--retriever", retriever, "--table", "full", "--table", "2", "--json")
    report = json.loads(output.splitlines()[-1])
    methods = [(row["method"], row["drafters"]) for row in report["rows"]]
    assert methods[0] == ("RaLMSeq", "none")
    assert ("RaLMSpec+P(20)SA", "prompt,recycle") in methods
    assert ("RaLMSpec+P(256)", "none") in methods
    assert [row["identical"] for row in report["rows"]] == [1.0] * len(methods)
    assert report["passages"] == 500
    assert report["r"] > 0
    for row in report["rows"]:
        parts = row["generation"] + row["encoding"] + row["retrieval"]
        assert 0 < parts <= row["seconds"]
        assert row["bound"] >= 1.0
    assert list(report["ms_per_query"]) == ["1", "2", "4", "8", "16"]


def test_texts_are_searched_as_answers_search_them(bench: Call, tmp_path: Path) -> None:
    question = {"question": "How do I list every snapshot?", "kind": "one", "answer": [["list"]]}
    graded = json.dumps(question | {"documents": ["snapshot.md"]})
    (tmp_path / "chats.jsonl").write_text(graded)
    output = bench("--retriever", "product", "--table", "full", "--drafters", "none", "--json")
    report = json.loads(output.splitlines()[-1])
    assert report["passages"] == len(TOPICS), "without random ones"
    assert [row["method"] for row in report["rows"]] == ["RaLMSeq", "RaLMSpec+P(20)SA"]
    assert {row["identical"] for row in report["rows"]} == {1.0}


def test_drafts_may_come_from_the_texts_and_from_earlier_answers(
    bench: Call, tmp_path: Path
) -> None:
    past = tmp_path / "past.jsonl"
    question = {"role": "user", "content": "how do I list each snapshot"}
    past.write_text(json.dumps({"messages": [question]}))
    sets = ("--drafters", "crest", "--table", "full", "--history", str(past), "--json")
    forced = ("--draft-tokens", "4")  # whether drafts pay depends on how busy the machine is
    report = json.loads(bench("--retriever", "sr", *sets, *forced).splitlines()[-1])
    assert report["past"] == 1
    passes = {(row["method"], row["drafters"]): row["passes"] for row in report["rows"]}
    assert passes["RaLMSeq", "crest"] < passes["RaLMSeq", "none"]
    assert {row["identical"] for row in report["rows"]} == {1.0}


def test_a_history_that_nothing_drafts_from_is_an_error(
    texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chats = tmp_path / "chats.jsonl"
    chats.write_text(json.dumps({"messages": [{"role": "user", "content": "Hello?"}]}))
    paths = ["--workload", str(chats), "--history", str(chats), "--texts", str(texts)]
    data = ["--data-dir", str(tmp_path / "data")]
    assert run([*data, "ralm", *paths, "--drafters", "prompt"], papers) == 1
    assert "--history needs --drafters with crest or dense" in capsys.readouterr().err


def test_it_prints_a_table_and_draws_charts(bench: Call, tmp_path: Path) -> None:
    picture = tmp_path / "ralm.svg"
    output = bench("--table", "full", "--drafters", "none", "--plot", str(picture))
    assert "RaLMSpec+P(20)SA" in output
    assert "edr over 500 passages; r = " in output
    assert "table" not in output, "one method is no table of the paper"
    assert ElementTree.parse(picture).getroot().tag.endswith("svg")


def test_interrupted_it_shows_the_questions_that_all_methods_answered(
    bench: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chats = tmp_path / "chats.jsonl"
    chats.write_text(3 * (chats.read_text() + "\n"))
    asked = count()

    def interrupted(*arguments: Any, **named: Any) -> RalmAnswer:
        if next(asked) == 5:  # of two methods, one has answered the third question
            raise KeyboardInterrupt
        return answer(*arguments, **named)

    monkeypatch.setattr("app.bench.commands.ralm.answer", interrupted)
    output = bench("--table", "full", "--drafters", "none", "--retriever", "sr", "--json")
    rows = json.loads(output.splitlines()[-1])["rows"]
    assert [row["answers"] for row in rows] == [2, 2]


def test_identity_needs_no_times_and_fails_where_texts_differ(
    bench: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = ("--identity", "--table", "full", "--drafters", "prompt")
    output = bench(*wanted)
    assert "RaLMSpec+P(20)SA" in output
    assert "r = " not in output
    monkeypatch.setattr(
        "app.bench.commands.ralm.summarise",
        lambda row, plain: {**summarise(row, plain), "identical": 0.5},
    )
    with pytest.raises(AssertionError):
        bench(*wanted)


@pytest.mark.parametrize("retriever", ["edr", "adr"])
def test_knn_writes_the_same_text_for_every_k(bench: Call, retriever: str) -> None:
    wanted = ("--knn", "--retriever", retriever, "--drafters", "prompt", "--tokens", "6")
    output = bench(*wanted, "--json")
    report = json.loads(output.splitlines()[-1])
    rows = report["rows"]
    compared = {(row["k"], row["method"], row["drafters"]) for row in rows}
    methods = ("RaLMSeq", "RaLMSpec", "RaLMSpec s=5", "RaLMSpec+S")
    assert compared == set(product((1, 16, 256, 1024), methods, ("none", "prompt")))
    assert [row["identical"] for row in rows] == [1.0] * len(rows)
    assert report["states"] == 500
    assert set(report["r"]) == {"1", "16", "256", "1024"}


def test_knn_has_no_words_to_search(texts: Path, tmp_path: Path) -> None:
    chats = tmp_path / "chats.jsonl"
    chats.write_text(json.dumps({"messages": [{"role": "user", "content": "Hello?"}]}))
    paths = ["--workload", str(chats), "--texts", str(texts)]
    assert run(["ralm", *paths, "--knn", "--retriever", "sr"], papers) == 1


def test_the_papers_tables_are_complete() -> None:
    names = {method.name for name in ("1", "4") for method in TABLES[name].columns.values()}
    assert names == {
        *("RaLMSeq", "RaLMSpec", "RaLMSpec+P(20)", "RaLMSpec+S", "RaLMSpec+A", "RaLMSpec+P(20)S"),
        *("RaLMSpec+P(20)A", "RaLMSpec+SA", "RaLMSpec+P(20)SA"),
    }
    assert FULL in TABLES["1"].columns.values()
    assert SEQUENTIAL.name == "RaLMSeq"
    assert RalmMethod(prefetch=20, stride=8).name == "RaLMSpec+P(20) s=8"
    assert RalmMethod(stride=0, papers=True).name == "RaLMSpec+S(0.6)"


def test_the_papers_tables_are_laid_out_as_there() -> None:
    methods = [one for name in ("4", "5") for one in TABLES[name].columns.values()]
    figures = [
        {"method": method.name, "drafters": drafters, "seconds": seconds / (1 + bool(at))}
        for at, drafters in enumerate(("none", "prompt"))
        for seconds, method in enumerate(dict.fromkeys(methods), start=2)
    ]
    fourth, fifth = paper_tables(figures, ("4", "5", "full"))
    assert fourth.splitlines() == [
        "table 4: seconds     B     P     S     A    PS    SA    PA   PSA",
        "none              2.00  3.00  4.00  5.00  6.00  7.00  8.00  9.00",
        "prompt            1.00  1.50  2.00  2.50  3.00  3.50  4.00  4.50",
    ]
    assert fifth.splitlines()[0].split("seconds")[1].split() == [
        *("S=1", "S=2", "S=4", "S=8", "S=16", "OS3", "OS3,", "γ≤0.6"),
    ]


def test_what_drafts_and_retrieval_gain_together_is_paired_by_question() -> None:
    def row(method: RalmMethod, drafters: str, seconds: tuple[float, ...]) -> RalmRow:
        answers = [RalmAnswer((), (), one, one, RalmStatistics()) for one in seconds]
        return RalmRow(method, drafters, cast(Engine, None), [answers, answers])

    without, drafted = row(FULL, "none", (3, 4, 90)), row(SEQUENTIAL, "prompt", (6, 8, 10))
    both = row(FULL, "prompt", (2, 2, 10))
    figures = {"drafts_inside": "prompt", "over_drafts": 3.0, "over_retrieval": 2.0}
    assert drafts_inside([drafted, without, both]) == [figures]
    assert drafts_inside([drafted, both]) == []
    assert drafts_inside([row(SEQUENTIAL, "none", (5, 5, 5)), without]) == []


def test_a_folder_without_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no text: name a folder"):
        knowledge_base(tmp_path, "sr", 10, 28)


@pytest.mark.parametrize(("retriever", "size"), [("edr", 300), ("adr", 300), ("sr", 300)])
def test_guesses_are_scored_as_in_a_search(texts: Path, retriever: str, size: int) -> None:
    base, found = knowledge_base(texts, retriever, size, 28)
    assert found == size
    queries = [base.encode(f"how do I list the {topic}", None) for topic in TOPICS]
    for query, ranked, topic in zip(queries, base.search(queries, 20), TOPICS, strict=True):
        assert f"{topic}ctl" in ranked[0].passage.chunk.content
        passages = [one.passage for one in ranked]
        assert base.score(query, passages) == pytest.approx([one.score for one in ranked])
        assert base.search([query], 1) == [ranked[:1]]

"""`bench crest`: what is compared, on recordings small enough to be checked."""

from __future__ import annotations

import json
import lzma
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from app.bench.__main__ import papers
from app.bench.crest import BUDGETS
from app.bench.report import Chart, svg, ticks
from app.bench.workloads import history_texts, load_encoder, read_chats, recordings, simulated_chats
from datastores.errors import InputError

FIELDS = {
    "method", "selection", "budget", "store_bytes", "entries", "max_n", "tokens_per_step",
    "mean_acceptance_rate", "drafted_per_step", "lookup_us_median", "lookup_us_p99",
    "build_seconds",
}  # fmt: skip
WORDS = "the a list of files in this folder that you can open is shown by ls and du with sizes"


def chat(number: int, question: str, answer: str) -> dict[str, object]:
    messages = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    return {"id": f"made-{number}", "messages": messages}


def written(path: Path, chats: list[dict[str, object]]) -> Path:
    text = "".join(json.dumps(one) + "\n" for one in chats)
    data = text.encode()
    path.write_bytes(lzma.compress(data) if path.suffix == ".xz" else data)
    return path


def made(path: Path, first: int, number: int) -> Path:
    """Chats whose sentences recur from chat to chat, each about a name that recurs in it alone."""
    draw = np.random.default_rng(7)
    words = WORDS.split()
    sentences = [
        " ".join([*draw.choice(words, 5), "NAME", *draw.choice(words, 4)]) + ". " for _ in range(30)
    ]
    chats = []
    for index in range(first + number):
        name = " ".join(draw.choice([*"zqxvkjw"], 6))
        answer = "".join(draw.choice(sentences, 9)).replace("NAME", name)
        chats.append(chat(index, f"question {index} about {name}", answer))
    return written(path, chats[first:])


def run(*arguments: str) -> Result:
    return CliRunner().invoke(papers, ["crest", *arguments], catch_exceptions=False)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, float | str]]]:
    """One run over made-up chats with the embedded model's tokenizer."""
    folder = tmp_path_factory.mktemp("bench")
    history = made(folder / "history.jsonl.xz", 0, 80)
    answers = made(folder / "answers.jsonl", 600, 4)
    plot = folder / "plot.svg"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("app.bench.crest.TIMED_LOOKUPS", 20)
        result = run(
            "--simulate", str(answers), "--history", str(history), "--sizes", "96K,128K",
            "--jobs", "1", "--json", "--plot", str(plot),
        )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert ElementTree.fromstring(plot.read_text()).tag.endswith("svg")
    return dict(json.loads(result.stdout.splitlines()[-1]))


def best(report: dict[str, list[dict[str, float | str]]], method: str, budget: int) -> float:
    return max(
        float(row["tokens_per_step"])
        for row in report["rows"]
        if row["method"] == method and row["budget"] == budget
    )


def test_the_report_has_its_shape(report: dict[str, list[dict[str, float | str]]]) -> None:
    assert set(report) == {"history_tokens", "test_tokens", "rows"}
    methods = {row["method"] for row in report["rows"]}
    assert methods == {"prompt", "recycle", "rest", "suffix", "crest", "all"}
    for row in report["rows"]:
        assert set(row) == FIELDS
        assert row["budget"] in BUDGETS
        assert float(row["tokens_per_step"]) >= 1.0


def test_every_figure_of_the_paper_is_there(
    report: dict[str, list[dict[str, float | str]]],
) -> None:
    selections = {(row["method"], row["selection"]) for row in report["rows"]}
    assert {("rest", "all"), ("rest", "1/4 of the messages"), ("crest", "worth")} <= selections
    assert ("all", "worth + suffix index") in selections
    for longest in range(1, 6):
        assert ("crest", f"equal t, n<={longest}, longest match") in selections
    for length in range(2, 6):
        assert ("crest", f"top t, n={length}, longest match") in selections


def test_drafting_from_all_beats_each_part(
    report: dict[str, list[dict[str, float | str]]],
) -> None:
    for budget in (4, 16):
        parts = [best(report, part, budget) for part in ("prompt", "recycle", "crest", "rest")]
        assert best(report, "all", budget) > max(parts) > 1.2


def test_stores_are_within_their_sizes(report: dict[str, list[dict[str, float | str]]]) -> None:
    sizes = [float(row["store_bytes"]) for row in report["rows"] if row["method"] == "crest"]
    assert 32 * 1024 < max(sizes) <= 128 * 1024


def test_what_is_simulated_is_not_in_the_history(tmp_path: Path) -> None:
    chats = [chat(599, "one  question", "no"), chat(600, "another", "yes"), chat(3, "third", "hm")]
    file = written(tmp_path / "file.jsonl", chats)
    simulated = simulated_chats([file], 600)
    assert [one.number for one in simulated] == [600]
    texts = [message.content for message in history_texts([file, file], simulated)]
    assert texts == ["one  question", "no", "third", "hm"]
    other = written(tmp_path / "other.jsonl", [chat(1, "one question", "also no")])
    assert simulated_chats([other], 600)
    assert not list(history_texts([other], [*read_chats(file)]))


def test_every_answer_of_a_chat_is_simulated(tmp_path: Path) -> None:
    turns = [("user", "a"), ("assistant", "b"), ("user", "c"), ("assistant", "")]
    messages = [{"role": role, "content": text} for role, text in turns]
    file = written(tmp_path / "file.jsonl", [{"messages": messages}])
    found = recordings(list(read_chats(file)), lambda texts: [list(map(ord, t)) for t in texts], 0)
    assert [(one.prompt, one.answer) for one in found] == [((97,), (98, 0))]


@pytest.mark.parametrize(
    "line", ["no json", "[]", '{"messages": []}', '{"messages": [{"role": "user"}]}', "[" * 9999]
)
def test_a_line_that_is_no_chat_is_named(tmp_path: Path, line: str) -> None:
    file = tmp_path / "file.jsonl"
    file.write_text(json.dumps(chat(1, "a", "b")) + "\n" + line + "\n")
    with pytest.raises(InputError, match=r"file\.jsonl, line 2"):
        list(read_chats(file))


@pytest.mark.parametrize("name", ["none.model", "text.json", "text.model", "text.txt"])
def test_a_file_that_is_no_tokenizer_is_named(tmp_path: Path, name: str) -> None:
    for existing in ("text.json", "text.model", "text.txt"):
        (tmp_path / existing).write_text("{}")
    with pytest.raises(InputError, match=name):
        load_encoder(tmp_path / name)


@pytest.mark.parametrize("sizes", ["5", "1T", "", "-64K", "64K,x"])
def test_sizes_that_are_none_are_refused(sizes: str) -> None:
    result = run("--simulate", "a", "--history", "b", "--sizes", sizes)
    assert result.exit_code == 2
    assert "is not a size" in result.output


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (1.2, 2.6), (3.0, 3.0), (0.0, 64.0)])
def test_ticks_span_their_range_in_round_steps(low: float, high: float) -> None:
    found = ticks(low, high)
    assert found[0] <= low <= high <= found[-1]
    assert 2 <= len(found) <= 9


def test_a_chart_holds_every_line_and_no_markup_of_names() -> None:
    lines = {"a <b> & c": [(1e3, 1.0), (1e6, 2.0)], "d": [(1e4, 1.5)]}
    picture = svg([Chart("title", "bytes", "up", lines, logarithmic=True, unit="B")])
    root = ElementTree.fromstring(picture)
    texts = [element.text for element in root.iter() if element.text]
    assert {"title", "a <b> & c", "d", "1 KB", "1 MB"} <= set(texts)
    assert sum(element.tag.endswith("circle") for element in root.iter()) == 3

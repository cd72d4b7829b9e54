"""A real general model: SmolLM2-135M in Q4_1 with its own chat template.

Its 8-bit activations make logits noisy, so drafted and plain answers may differ at near-ties.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from app.bench.decode import DecodeRow, fork_gap, run
from app.bench.forced import forced
from app.bench.workloads import Workload
from app.config import Options
from app.engine.engine import Engine
from app.engine.loading import load, with_drafters
from app.locations import PACKAGED_MODELS_VARIABLE, locate
from app.runtime.open_model import open_model
from datastores.chats.history import History
from engines.chat_template.prompt_builder import Message
from engines.sampler import Sampling
from tests.app.cli.test_ask import SHORT, specchat

GREEDY = Sampling(temperature=0.0)
ROUNDING_GAP = 1.0
"""Between the two best logits where rounding alone may change the winner; twice what two plain runs
differ by in the median, if they read the same prompt in other chunks."""
PASSAGE = (
    "The harbour master counted nine boats before the storm: three trawlers, two ferries, a yacht"
    " called Heron, and a tug that nobody had seen since spring. By noon the tide had taken the"
    " northern pier, and the lamps along the quay went out one after another."
)
EDITED = Workload(
    "edited",
    (
        "Write a Python function that adds two numbers. Only code.",
        "Rename it to total and show the whole function again.",
    ),
)
REPEATED = Workload("repeated", ("Repeat ten times: one two three four.",))
SETTINGS = "context = 512\n"
pytestmark = pytest.mark.usefixtures("unhurried_close")


def opened(model: Path, folder: Path, *, exact: bool = False) -> Engine:
    (folder / "config.toml").write_text(SETTINGS)
    options, locations = Options(model=str(model), max_tokens=20, exact=exact), locate(folder)
    locations.create()
    return load(options, locations, light=True)


@pytest.fixture(scope="module")
def engine(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with closing(opened(smollm2, tmp_path_factory.mktemp("smollm2"))) as loaded:
        yield loaded


@pytest.fixture
def data(smollm2: Path, tmp_path: Path) -> Path:
    """A data directory whose settings name SmolLM2, with a short context."""
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "config.toml").write_text(f"model = {json.dumps(str(smollm2))}\n{SETTINGS}")
    return folder


def plain_and_drafted(
    engine: Engine, chat: Workload, sampling: Sampling
) -> tuple[DecodeRow, DecodeRow]:
    """The same chat without drafts, and with as many as possible."""
    plain = DecodeRow("none", with_drafters(engine, (), 0))
    drafted = DecodeRow("all", with_drafters(engine, ("prompt", "recycle"), 6))
    assert list(run([plain, drafted], [chat], sampling)) == [1]
    assert sum(answer.statistics.accepted for answer in drafted.answers()) > 0
    return plain, drafted


def test_it_is_opened_where_none_was_chosen_and_says_what_it_is(
    smollm2: Path, tmp_path: Path, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "package"
    folder.mkdir()
    alone = folder / smollm2.name
    alone.symlink_to(smollm2)
    monkeypatch.setenv(PACKAGED_MODELS_VARIABLE, str(folder))
    (tmp_path / "config.toml").write_text(SETTINGS)
    options = Options(drafters=())
    with closing(open_model(options, locate(tmp_path), history, lambda *_: None)) as model:
        assert model.path is not None
        assert model.path.samefile(alone)
        assert "SmolLM2-135M" in model.hint
        assert "general model" in model.hint
        assert "often wrong" in model.hint


def test_notes_reach_the_prompt_between_the_system_message_and_the_question(
    engine: Engine,
) -> None:
    messages = [
        Message("system", "Be brief."),
        Message("system", "Notes:\n\nThe code is 4711."),
        Message("user", "Which code?"),
    ]
    text = "".join(engine.vocabulary.text(token) for token in engine.render(messages))
    assert text.replace("Ġ", " ").replace("Ċ", "\n") == (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>system\nNotes:\n\nThe code is 4711.<|im_end|>\n"
        "<|im_start|>user\nWhich code?<|im_end|>\n<|im_start|>assistant\n"
    )


def test_drafted_answers_leave_plain_ones_at_near_ties_only(engine: Engine) -> None:
    plain, drafted = plain_and_drafted(engine, EDITED, GREEDY)
    for ours, theirs in zip(drafted.answers(), plain.answers(), strict=True):
        assert fork_gap(plain.engine, GREEDY, ours, theirs) < ROUNDING_GAP


def test_exact_answers_are_identical(smollm2: Path, tmp_path: Path) -> None:
    with closing(opened(smollm2, tmp_path, exact=True)) as engine:
        for sampling in (GREEDY, Sampling(temperature=0.8, seed=3)):
            plain, drafted = plain_and_drafted(engine, REPEATED, sampling)
            assert [one.tokens for one in drafted.answers()] == [
                one.tokens for one in plain.answers()
            ]


def test_a_passage_that_is_copied_is_drafted_to_its_end(engine: Engine) -> None:
    chat = Workload("copy", (f"Repeat this: {PASSAGE}",), (PASSAGE,))
    copying = forced(replace(engine, defaults=replace(engine.defaults, max_tokens=200)))
    row = DecodeRow("prompt", with_drafters(copying, ("prompt",), 4))
    list(run([row], [chat], GREEDY))
    (answer,) = row.answers()
    length = len(engine.vocabulary.encode(PASSAGE))
    assert answer.text == PASSAGE
    assert answer.statistics.steps <= 4 + -(-length // 5), "all but the first few tokens"


def test_ask_answers_and_stops_before_a_text(data: Path) -> None:
    question = ("ask", "--json", "Count from one to ten in digits.", *SHORT)
    whole = json.loads(specchat(data, *question).stdout)
    assert "SmolLM2-135M-Instruct" in whole["model"]
    stop = whole["text"][3:8]
    stopped = json.loads(specchat(data, *question, "--stop", stop).stdout)
    assert stopped["finish_reason"] == "stop"
    assert stopped["text"].strip() == whole["text"].split(stop)[0].strip()


def test_a_full_context_drops_old_messages_and_refuses_a_longer_one(data: Path) -> None:
    filler, short = "The harbour was quiet that day. " * 35, ("--max-tokens", "4")
    first = specchat(data, "ask", f"{filler} What was quiet?", *short)
    assert (bool(first.stdout), first.stderr) == (True, b"")
    second = specchat(data, "ask", "-c", f"{filler} When?", *short)
    assert (bool(second.stdout), second.stderr) == (
        True,
        b"the oldest 2 messages no longer fit\n",
    )
    refused = specchat(data, "ask", filler * 4, *short, code=1)
    assert b"context" in refused.stderr
    assert refused.stdout == b""


def test_an_imported_note_is_answered_from_and_cited(data: Path, tmp_path: Path) -> None:
    note = tmp_path / "router.md"
    note.write_text("# Router\n\nThe password of the guest network is swordfish-77.\n")
    specchat(data, "import", str(note))
    question = "What is the password of the guest network?"
    report = json.loads(specchat(data, "ask", "--json", question, *SHORT).stdout)
    assert "swordfish-77" in report["text"]
    (cited,) = report["citations"]
    assert (cited["import_path"], cited["first_line"]) == (str(note), 1)

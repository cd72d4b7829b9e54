"""Simulating chats: true figures for what is known, and an estimate that follows from them."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest

from app.bench.simulation import (
    ALL,
    BUDGETS,
    MAX_BUDGET,
    Simulated,
    Simulation,
    empty_history,
    recordings,
    tokens_of,
)
from app.bench.workloads import PastConversation, from_files, from_history
from app.cli.main import run
from app.conversation.export import as_json
from app.engine.learned_state import LearnedState
from app.locations import locate
from app.models.discovery import embedded
from datastores.chats.history import History
from datastores.chats.records import ASSISTANT, USER, StoredMessage
from datastores.errors import InputError
from engines.budget.acceptance_model import AcceptanceModel
from engines.budget.cost_model import CostModel
from engines.budget.loss_limit import DrafterBackoffs
from engines.drafter_simulation import SimulationCounts
from engines.fingerprint import fingerprint
from tests.app.characters import Characters

ANSWER = "To list the files of a folder by size, type ls -lS and press enter."
VOCABULARY = Characters()
FLAT = [0.0, *[0.01] * 64]
STEEP = [0.0, *[0.01 * rows for rows in range(1, 65)]]


def _chat(*texts: str, tokens: tuple[int, ...] = (), tokenizer: str = "") -> PastConversation:
    """Questions and answers by turns; `tokens` are kept of the answers."""
    messages = []
    for number, text in enumerate(texts, start=1):
        answer = not number % 2
        messages.append(
            StoredMessage(
                id=number,
                chat=0,
                parent=number - 1 or None,
                role=ASSISTANT if answer else USER,
                content=text,
                tokens=tokens if answer else (),
                model="",
                tokenizer=tokenizer if answer else "",
                finish="stop",
                statistics={},
                created=0.0,
            )
        )
    return messages


def _recorded(chat: PastConversation, context: int = 8192) -> list[tuple[str, str]]:
    said = {message.id: tokens_of(message, VOCABULARY) for message in chat}

    def text(tokens: tuple[int, ...]) -> str:
        return b"".join(map(VOCABULARY.piece, tokens)).decode()

    found = recordings(chat, said, context)
    return [(text(one.prompt), text(one.answer)) for one in found]


def test_every_answer_follows_its_own_branch() -> None:
    chat = _chat("a?", "first", "b?", "second")
    other = StoredMessage(9, 0, 1, ASSISTANT, "again", (), "", "", "stop", {}, 0.0)
    branched = [*chat, other]
    assert _recorded(branched) == [("a?", "first"), ("a?firstb?", "second"), ("a?", "again")]
    assert _recorded(branched, context=3)[1] == ("tb?", "second")


def test_what_nothing_came_before_or_no_call_gave_is_left_out() -> None:
    assert _recorded(_chat("", "answer", "b?", "x")) == []


def test_stored_tokens_count_where_this_tokenizer_made_them() -> None:
    stored = tuple(VOCABULARY.encode("stored"))
    assert _recorded(_chat("a?", "text", tokens=stored, tokenizer=VOCABULARY.fingerprint)) == [
        ("a?", "stored")
    ]
    assert _recorded(_chat("a?", "text", tokens=stored, tokenizer="other")) == [("a?", "text")]


def _run(
    chats: list[PastConversation], table: list[float], remembered: int = 0
) -> dict[str, Simulated]:
    with empty_history() as past:
        simulate = Simulation(VOCABULARY, 8192, past, table)
        simulate.remember(chats[:remembered])
        for chat in chats[remembered:]:
            assert simulate.run(chat) == sum(len(said.content) for said in chat[1::2])
    return simulate.drafters


@pytest.mark.parametrize("remembered", [0, 3])
def test_a_chat_is_drafted_from_those_before_it(remembered: int) -> None:
    chats = [_chat(f"{number}?", ANSWER) for number in range(4)]
    drafters = _run(chats, FLAT, remembered)
    assert set(drafters) == {"prompt", "recycle", "suffix", "crest", ALL}
    rates = [chat[15].tokens_per_step for chat in drafters["crest"].chats]
    assert len(rates) == 4 - remembered
    assert rates[-1] > 8
    assert drafters["prompt"].chats[-1][15].tokens_per_step < 2
    if not remembered:
        assert rates[0] < 2, "nothing was said yet"


def test_together_they_draft_what_pays_here_and_no_more() -> None:
    chats = [_chat(f"{number}?", ANSWER) for number in range(5)]
    cheap, dear = (_run(chats, table)[ALL] for table in (FLAT, STEEP))
    assert set(cheap.total()) == {MAX_BUDGET}
    assert cheap.total()[MAX_BUDGET].drafted > dear.total()[MAX_BUDGET].drafted
    assert cheap.total()[MAX_BUDGET].tokens_per_step > dear.total()[MAX_BUDGET].tokens_per_step
    best = max(chat.tokens_per_step for chat in _run(chats, FLAT)["crest"].total().values())
    assert cheap.total()[MAX_BUDGET].tokens_per_step > 0.8 * best


def test_the_speedup_is_that_of_whole_cycles() -> None:
    simulated = Simulated(
        [{1: SimulationCounts(10, 15, 10), 3: SimulationCounts(5, 15, 15)}], [0.001, 0.003]
    )
    table = [0.0, 0.01, 0.014, 0.016, 0.018]
    total = simulated.total()
    assert simulated.speedup(total[1], table) == pytest.approx(1.5 * 0.010 / (0.014 + 0.002))
    assert simulated.speedup(total[3], table) == pytest.approx(3.0 * 0.010 / (0.018 + 0.002))
    assert simulated.best(table) == 3
    assert simulated.speedup(SimulationCounts(), table) == 1.0


def _tell(history: History, texts: list[tuple[str, str]], *, private: bool = False) -> None:
    for question, answer in texts:
        chat = history.create_chat("t", private=private).id
        asked = history.add_message(chat, None, USER, question)
        history.add_message(chat, asked.id, ASSISTANT, answer, tokens=(1, 2), tokenizer="x")


def test_private_chats_are_not_simulated(history: History, tmp_path: Path) -> None:
    _tell(history, [("a?", "so"), ("b?", "yes")])
    _tell(history, [("c?", "psst")], private=True)
    export = tmp_path / "export.json"
    chats = sorted(history.chats(), key=lambda chat: chat.id)
    export.write_text("".join(as_json(history, chats)))
    for found in (from_history(history), from_files([export])):
        messages = list(found)
        assert [said[1].content for said in messages] == ["so", "yes"]
        assert messages[0][1].tokens == (1, 2), "an export of ours keeps token ids"


def test_exports_of_other_programs_are_simulated(tmp_path: Path) -> None:
    lines = tmp_path / "chats.jsonl"
    chat = {"messages": [{"role": "user", "content": "a?"}, {"role": "assistant", "content": "b"}]}
    lines.write_text(f"{json.dumps(chat)}\n" * 2)
    found = list(from_files([lines]))
    assert [[(said.role, said.content) for said in one] for one in found] == [
        [(USER, "a?"), (ASSISTANT, "b")]
    ] * 2
    notes = tmp_path / "notes.md"
    notes.write_text("no chat")
    with pytest.raises(InputError, match=r"notes\.md holds no chats"):
        list(from_files([lines, notes]))
    with pytest.raises(InputError, match="cannot read"):
        list(from_files([tmp_path / "nothing.json"]))


@pytest.fixture
def told(tmp_path: Path) -> list[str]:
    """The command line for a folder whose history holds four chats."""
    places = locate(tmp_path / "data")
    places.create()
    with closing(History.open(places.history)) as history:
        _tell(history, [(f"{number}?", ANSWER) for number in range(4)])
    return ["--data-dir", str(tmp_path / "data"), "bench", "simulate"]


def test_a_person_reads_one_line(told: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(told) == 0
    line = capsys.readouterr().out
    assert line.count("\n") == 1
    assert "in your last 4 chats: " in line
    assert "a guess: this model's speed is not measured yet" in line


def test_a_script_reads_one_object(
    told: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    costs = CostModel()
    for _ in range(9):
        costs.observe(1, 100, 0.02)
        costs.observe(8, 100, 0.021)
    kept = LearnedState(locate(tmp_path / "data").costs, f"{fingerprint(embedded())}/some build")
    kept.save(costs, AcceptanceModel(), DrafterBackoffs())
    assert run([*told, "--limit", "3", "--json"]) == 0
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert set(report) == {
        "model", "machine", "measured", "verify_ms", "tokens", "rows", "chats",
    }  # fmt: skip
    assert report["measured"]
    assert report["verify_ms"]["8"] == pytest.approx(21.0)
    rows = {(row["drafters"], row["budget"]): row for row in report["rows"]}
    assert set(rows) == {
        *(
            (name, budget)
            for name in ("prompt", "recycle", "suffix", "crest")
            for budget in BUDGETS
        ),
        (ALL, None),
    }
    assert rows[ALL, None]["speedup"] > 2
    assert len(report["chats"]) == 3
    assert report["tokens"] == sum(chat["tokens"] for chat in report["chats"])
    for chat in report["chats"]:
        assert chat["tokens_per_step"]["crest"] > chat["tokens_per_step"]["prompt"]


def test_what_is_done_is_printed_after_an_interrupt(
    told: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    once = Simulation.run
    seen: list[PastConversation] = []

    def interrupted(self: Simulation, conversation: PastConversation) -> int:
        seen.append(conversation)
        if len(seen) == 3:
            raise KeyboardInterrupt
        return once(self, conversation)

    monkeypatch.setattr(Simulation, "run", interrupted)
    assert run(told) == 0
    assert "in your last 2 chats" in capsys.readouterr().out


def test_without_chats_there_is_nothing_to_simulate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["--data-dir", str(tmp_path / "new"), "bench", "simulate"]) == 1
    assert "no chats yet" in capsys.readouterr().err

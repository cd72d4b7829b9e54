"""The agent's session asks every endpoint the same, each with its own conversation."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from app.bench.__main__ import papers
from app.bench.agent import MeasuredServer, run_session
from app.bench.workloads import read_chats
from app.cli.main import run
from datastores.errors import ModelError

SESSION = Path(__file__).parents[2] / "evaluation" / "agent" / "session.jsonl"


@contextmanager
def server(
    name: str, asked: list[tuple[str, list[dict[str, str]]]], status: int = 200
) -> Iterator[MeasuredServer]:
    """Answers each request with its name and the number of messages."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append((name, body["messages"]))
            answer = {
                "choices": [{"message": {"content": f"{name} {len(body['messages'])}"}}],
                "usage": {"prompt_tokens": 10},
                "timings": {
                    "prompt_n": 4,
                    "predicted_n": 6,
                    "predicted_ms": 3.0,
                    **({"draft_n_accepted": 3} if name == "drafts" else {}),
                },
            }
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as made:
        thread = Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield MeasuredServer(name, f"http://127.0.0.1:{made.server_address[1]}/v1")
        made.shutdown()
        thread.join()


def test_endpoints_are_asked_in_turn_with_their_own_answers() -> None:
    chats = list(read_chats(SESSION))[:2]
    asked: list[tuple[str, list[dict[str, str]]]] = []
    with server("drafts", asked) as one, server("plain", asked) as other:
        done = list(run_session([one, other], chats, 9))
    assert done == list(range(1, 11))
    assert [name for name, _ in asked[:4]] == ["drafts", "plain", "plain", "drafts"]
    for name in ("drafts", "plain"):
        lengths = [len(messages) for by, messages in asked if by == name]
        assert lengths == [2, 4, 6, 8, 10] * 2
        said = [messages for by, messages in asked if by == name][4]
        assert [one["role"] for one in said[:4]] == ["system", "user", "assistant", "user"]
        assert said[2]["content"] == f"{name} 2"
    row = one.row()
    assert (row["requests"], row["tokens"], row["read_per_request"]) == (10, 60, 4.0)
    assert (row["tokens_per_step"], other.row()["tokens_per_step"]) == (2.0, 1.0)


def test_the_session_has_forty_requests() -> None:
    chats = list(read_chats(SESSION))
    assert sum(len(chat.contents("user")) for chat in chats) == 40


def test_a_refused_request_names_the_server() -> None:
    chats = list(read_chats(SESSION))[:1]
    with server("plain", [], 400) as one, pytest.raises(ModelError, match="plain refused"):
        list(run_session([one], chats, 9))


def test_sets_of_drafters_are_compared(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[str, list[dict[str, str]]]] = []

    def serving(_model: Path, _folder: Path, drafters: str) -> Any:
        return server(drafters, asked)

    monkeypatch.setattr("app.bench.agent.specchat", serving)
    sets = [part for name in ("prompt,crest", "none") for part in ("--drafters", name)]
    options = ["--workload", str(SESSION), "--limit", "1", "--json", *sets]
    assert run(["--model", "built-in", "agent", *options], papers, "python -m app.bench") == 0
    rows = json.loads(capsys.readouterr().out.splitlines()[-1])["rows"]
    assert [(row["server"], row["requests"]) for row in rows] == [("prompt,crest", 5), ("none", 5)]

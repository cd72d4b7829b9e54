"""The endpoint over HTTP, with engines that write known texts: forms, errors, order, access."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app.config import Options
from app.conversation.events import Declined
from app.engine.engine import Engine
from app.locations import Locations
from app.runtime.engine_client import sockets
from app.runtime.wire import AskRequest, decode, encode
from app.serve import answering
from app.serve.answering import MAX_WAITING
from datastores.chats.history import History
from tests.app.serve.speaking import Client, SpeakingTarget, endpoint, speaking_engine
from tests.waiting import TIMEOUT_S, until

HOSTILE = 'a\x1b[31m\x9bé🦭\u202e</script>"\n'
"""Text that controls terminals, reorders, needs four bytes, and has to be escaped in JSON."""


def answer(prompt: str) -> bytes:
    """Repeats the last line of the prompt."""
    return prompt.splitlines()[-1].partition(": ")[2].encode()


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return speaking_engine(tmp_path, answer)


@pytest.fixture
def client(engine: Engine, locations: Locations, history: History) -> Iterator[Client]:
    with endpoint(engine, locations, history) as found:
        yield found


def events(response: httpx2.Response) -> list[Any]:
    """The events of a stream, without the one that ends it."""
    *data, done, rest = response.text.split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    return [json.loads(one.removeprefix("data: ")) for one in data]


def test_an_answer_has_openai_s_form(client: Client) -> None:
    found = client.ask("hello").json()
    assert found["object"] == "chat.completion"
    assert found["model"] == "speaking"
    [choice] = found["choices"]
    assert choice["message"] == {"role": "assistant", "content": "hello", "refusal": None}
    assert choice["finish_reason"] == "stop"
    usage = found["usage"]
    assert usage["prompt_tokens"] == len("user: hello\n")
    assert usage["completion_tokens"] == len("hello") + 1
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert found["timings"]["prompt_n"] + found["timings"]["cache_n"] == usage["prompt_tokens"]


@pytest.mark.parametrize("text", ["hello hello hello hello", HOSTILE * 3])
def test_a_stream_says_the_same_as_a_whole_answer(client: Client, text: str) -> None:
    text = text.replace("\n", " ")
    whole = client.ask(text).json()["choices"][0]["message"]["content"]
    options = {"include_usage": True}
    *chunks, usage = events(client.ask(text, stream=True, stream_options=options))
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas[0]["role"] == "assistant"
    assert "".join(delta.get("content", "") for delta in deltas) == whole == text
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks][-1] == "stop"
    assert "timings" in chunks[-1]
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == len(text.encode()) + 1


def test_json_is_ascii_so_that_no_terminal_obeys_it(client: Client) -> None:
    response = client.ask(HOSTILE.replace("\n", " "))
    assert response.content.isascii()
    assert b"\x1b" not in response.content


def test_half_a_character_becomes_a_replacement(
    tmp_path: Path, locations: Locations, history: History
) -> None:
    engine = speaking_engine(tmp_path, lambda _: b"a\xc3")
    with endpoint(engine, locations, history) as client:
        assert client.ask("?").json()["choices"][0]["message"]["content"] == "a\ufffd"


def test_a_text_is_continued(client: Client) -> None:
    body = {"prompt": "one: two", "max_tokens": 2}
    whole = client.post("/v1/completions", json=body).json()
    assert whole["object"] == "text_completion"
    assert whole["choices"][0]["text"] == "tw"
    assert whole["choices"][0]["finish_reason"] == "length"
    chunks = events(client.post("/v1/completions", json={**body, "stream": True}))
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == "tw"


def test_stop_sequences_and_lengths_end_an_answer(client: Client) -> None:
    found = client.ask("one two three", stop=["wo"]).json()["choices"][0]
    assert (found["message"]["content"], found["finish_reason"]) == ("one t", "stop")
    found = client.ask("one two three", max_completion_tokens=3).json()["choices"][0]
    assert (found["message"]["content"], found["finish_reason"]) == ("one", "length")


def test_probabilities_cover_the_text_that_is_shown(client: Client) -> None:
    asked = {"logprobs": True, "top_logprobs": 2, "stop": "wo"}
    whole = client.ask("one two", **asked).json()["choices"][0]["logprobs"]["content"]
    assert "".join(one["token"] for one in whole) == "one t"
    assert all(one["logprob"] <= 0 and len(one["top_logprobs"]) == 2 for one in whole)
    assert all(one["top_logprobs"][0]["token"] == one["token"] for one in whole)
    chunks = events(client.ask("one two", stream=True, **asked))
    found = [chunk["choices"][0]["logprobs"] for chunk in chunks]
    assert [one for part in found if part for one in part["content"]] == whole
    body = {"prompt": "a: bc", "logprobs": 1}
    found = client.post("/v1/completions", json=body).json()["choices"][0]["logprobs"]
    assert (found["tokens"], found["text_offset"]) == (["b", "c"], [0, 1])


def test_reasoning_is_apart(tmp_path: Path, locations: Locations, history: History) -> None:
    engine = speaking_engine(tmp_path, lambda _: b"<think>\nwhy\n</think>\n\nso")
    with endpoint(engine, locations, history) as client:
        message = client.ask("?").json()["choices"][0]["message"]
        assert (message["content"], message["reasoning_content"]) == ("so", "why")
        deltas = [one["choices"][0]["delta"] for one in events(client.ask("?", stream=True))]
        assert "".join(one.get("content", "") for one in deltas) == "so"
        assert "".join(one.get("reasoning_content", "") for one in deltas) == "why"


CALL = '<tool_call>\n{"name": "look", "arguments": {"path": "a.py"}}\n</tool_call>'
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]


def test_calls_come_back_as_data(tmp_path: Path, locations: Locations, history: History) -> None:
    engine = speaking_engine(tmp_path, lambda _: f"I look.\n{CALL}\n{CALL}".encode())
    with endpoint(engine, locations, history) as client:
        whole = client.ask("?", tools=TOOLS).json()["choices"][0]
        assert whole["finish_reason"] == "tool_calls"
        assert whole["message"]["content"] == "I look."
        functions = [call["function"] for call in whole["message"]["tool_calls"]]
        assert functions == [{"name": "look", "arguments": '{"path": "a.py"}'}] * 2
        chunks = events(client.ask("?", tools=TOOLS, stream=True))
        deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
        calls = [call for delta in deltas for call in delta.get("tool_calls", ())]
        assert [call["function"] for call in calls] == functions
        assert [call["index"] for call in calls] == [0, 1]
        assert len({call["id"] for call in calls}) == 2
        assert "".join(delta.get("content", "") for delta in deltas) == "I look."
        plain = client.ask("?", tools=TOOLS, tool_choice="none").json()["choices"][0]
        assert plain["message"]["content"].endswith(CALL)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "written",
    [
        f"<think>\n{CALL}\n</think>\n\nI look.\n{CALL}\n{CALL}",
        '{"name": "look", "parameters": {"path": "a.py"}}; {"name": "look", "parameters": {}}',
        '[TOOL_CALLS][{"name": "look", "arguments": {"path": "a.py"}}, {"name": "look"}]',
    ],
)
def test_one_call_ends_an_answer_where_no_more_are_wanted(
    tmp_path: Path, locations: Locations, history: History, written: str, stream: bool
) -> None:
    engine = speaking_engine(tmp_path, lambda _: written.encode())
    with endpoint(engine, locations, history) as client:
        asked = client.ask("?", tools=TOOLS, parallel_tool_calls=False, stream=stream)
        if stream:
            parts = [chunk["choices"][0]["delta"] for chunk in events(asked)]
        else:
            parts = [asked.json()["choices"][0]["message"]]
        (call,) = [call for part in parts for call in part.get("tool_calls", ())]
        assert call["function"] == {"name": "look", "arguments": '{"path": "a.py"}'}
        content = "".join(part.get("content") or "" for part in parts)
        assert content == ("I look." if "I look." in written else "")


def test_calls_are_forced_only_where_a_grammar_can(client: Client) -> None:
    """The scripted engine has none."""
    named = {"type": "function", "function": {"name": "look"}}
    for choice in ("required", named):
        error = client.ask("?", tools=TOOLS, tool_choice=choice).json()["error"]
        assert "GGUF" in error["message"]


def strict(**properties: object) -> list[dict[str, object]]:
    """A strict tool."""
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    function = {"name": "look", "strict": True, "parameters": parameters}
    return [{"type": "function", "function": function}]


@pytest.mark.parametrize("stream", [False, True])
def test_a_strict_call_counts_only_if_it_obeys(
    tmp_path: Path, locations: Locations, history: History, stream: bool
) -> None:
    engine = speaking_engine(tmp_path, lambda _: CALL.encode())
    with endpoint(engine, locations, history) as client:
        for kind, called in (("string", True), ("integer", False)):
            tools = strict(path={"type": kind})
            asked = client.ask("?", tools=tools, stream=stream)
            choices = [one["choices"][0] for one in (events(asked) if stream else [asked.json()])]
            parts = [choice["delta" if stream else "message"] for choice in choices]
            assert choices[-1]["finish_reason"] == ("tool_calls" if called else "stop")
            assert any(part.get("tool_calls") for part in parts) == called
            content = "".join(part.get("content") or "" for part in parts)
            assert content == ("" if called else CALL)
        plain = client.ask("?", tools=strict(path={"type": "integer"}), tool_choice="none")
        assert plain.json()["choices"][0]["message"]["content"] == CALL


@pytest.mark.parametrize(
    "schema", [{"type": "nothing"}, {"$ref": "https://example.org/s.json"}, {"$ref": "#/none"}]
)
def test_a_strict_tool_needs_a_valid_schema(client: Client, schema: dict[str, str]) -> None:
    response = client.ask("?", tools=strict(path=schema))
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "tools[0].function.parameters"


def test_an_earlier_call_and_its_result_are_sent_back(client: Client) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": "found"}]},
    ]
    found = client.post("/v1/chat/completions", json={"messages": messages, "tools": TOOLS})
    assert found.json()["choices"][0]["message"]["content"] == "found"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 2}, "n"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"response_format": {"type": "yaml"}}, "response_format.type"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice"),
        ({"tool_choice": {"type": "custom", "custom": {"name": "f"}}}, "tool_choice"),
        ({"presence_penalty": 0.5}, "presence_penalty"),
        ({"audio": {"voice": "x"}}, "audio"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"stream_options": {}}, "stream_options"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0]"),
        ({"messages": [{"role": "user", "content": [{"text": "x"}]}]}, "messages[0]"),
        ({"messages": [{"role": "robot", "content": ""}]}, "messages[0].role"),
        ({"messages": [{"role": "system", "content": ""}]}, "messages"),
        ({"stop": [""]}, "stop"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(
    client: Client, fields: dict[str, Any], param: str
) -> None:
    response = client.ask("hello", **fields)
    error = response.json()["error"]
    assert response.status_code == 400
    assert error["type"] == "invalid_request_error"
    assert error["param"].startswith(param)
    assert param.split("[")[0].split(".")[0] in error["message"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"null",
        b"\xff",
        b'{"messages":',
        b'{"messages":[{"role":"user","content":"\\ud800"}]}',
        b'{"messages":[{"role":"user","content":"x"}],"temperature":NaN}',
        b'{"messages":[{"role":"user","content":"x"}],"temperature":1e999}',
        b'{"messages":[{"role":"user","content":"x"}],"seed":' + b"9" * 5000 + b"}",
        b'{"messages":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"messages":[{"role":"user","content":"x"}],"tools":[{"function":{"name":"f",'
        b'"parameters":{"a":' + b"[" * 500 + b"]" * 500 + b"}}}]}",
    ],
)
def test_hostile_json_is_an_error_of_the_request(client: Client, body: bytes) -> None:
    response = client.post("/v1/chat/completions", content=body)
    assert response.status_code == 400
    assert response.json()["error"]["message"]


def test_another_model_is_not_found(client: Client) -> None:
    response = client.ask("hello", model="gpt-4")
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "model_not_found"
    assert client.ask("hello", model="speaking").status_code == 200
    assert "speaking" in [one["id"] for one in client.get("/v1/models").json()["data"]]
    assert client.get("/v1/models/speaking").json()["id"] == "speaking"
    for name in ("gpt-4", "", "speaking/"):
        assert client.get(f"/v1/models/{name}").status_code == 404


@pytest.mark.parametrize("ids", [[1, 2], [[1, 2], [3]], ["text", 3]])
def test_token_ids_are_not_embedded(client: Client, ids: list[object]) -> None:
    response = client.post("/v1/embeddings", json={"input": ids})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "input"
    assert "token ids" in response.json()["error"]["message"]


def test_a_conversation_that_does_not_fit_is_refused_whole(client: Client) -> None:
    response = client.ask("long " * 2000)
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "context_length_exceeded"


def test_paths_and_methods_that_there_are_not(client: Client) -> None:
    assert client.get("/v1/chat/completions").status_code == 405
    response = client.get("/v1/nothing")
    assert response.status_code == 404
    assert response.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("header", [{}, {"Authorization": "Bearer x"}, {"Authorization": "é"}])
def test_without_the_token_nothing_is_answered(client: Client, header: dict[str, str]) -> None:
    encoded = [(name.encode(), value.encode()) for name, value in header.items()]
    for path in ("/v1/models", "/metrics", "/openapi.json", "/nothing"):
        response = httpx2.get(client.base_url.join(path), headers=encoded, trust_env=False)
        assert response.status_code == 401
        assert response.headers["WWW-Authenticate"] == "Bearer"


def test_no_web_page_is_answered(client: Client) -> None:
    for origin in ("https://example.org", "null", f"{client.base_url}"):
        assert client.get("/v1/models", headers={"Origin": origin}).status_code == 403
        assert client.get("/health", headers={"Origin": origin}).status_code == 403
    for host in ("example.org", "localhost.example.org:80", ""):
        assert client.get("/v1/models", headers={"Host": host}).status_code == 403
    for host in ("localhost:1", "127.0.0.1", "[::1]:8137", "192.168.0.9"):
        response = client.get("/v1/models", headers={"Host": host})
        assert response.status_code == 200
        assert not any(name.startswith("access-control") for name in response.headers)


def test_the_token_is_the_owner_s_alone_and_stays(client: Client, locations: Locations) -> None:
    assert locations.token.stat().st_mode & 0o777 == 0o600
    assert len(client.token) >= 32


def test_a_large_body_is_refused(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.serve.access.MAX_BODY_BYTES", 1000)
    assert client.ask("x" * 1000).status_code == 413


def test_a_slow_body_is_given_up(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.serve.access.BODY_TIMEOUT_S", 0.05)
    url = client.base_url
    with socket.create_connection((url.host, url.port or 0)) as slow:
        head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n"
        slow.sendall(f"{head}Authorization: Bearer {client.token}\r\n\r\n".encode())
        assert b" 408 " in slow.recv(4096)


@pytest.mark.parametrize("answered", [0, 1])
def test_a_slow_head_is_given_up(
    client: Client, monkeypatch: pytest.MonkeyPatch, answered: int
) -> None:
    """Of the first request of a connection, or of one after others."""
    monkeypatch.setattr("app.serve.http_server.HEADER_TIMEOUT_S", 0.2)
    url = client.base_url
    with socket.create_connection((url.host, url.port or 0)) as slow:
        slow.settimeout(TIMEOUT_S)
        for _ in range(answered):
            slow.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            answer = b""
            while not answer.endswith(b"}"):  # head and body may come apart
                answer += slow.recv(4096)
            assert b" 200 " in answer
        slow.sendall(b"GET /hea")
        assert slow.recv(4096) == b""


class Gate:
    """Lets the model work only once it is opened."""

    def __init__(self, engine: Engine) -> None:
        assert isinstance(engine.target, SpeakingTarget)
        self.passes = 0
        self.open = threading.Event()
        engine.target.hold = self._wait

    def _wait(self) -> None:
        self.passes += 1
        assert self.open.wait(300)


def active(client: Client) -> int:
    """Number of requests that wait or are being answered."""
    lines = client.get("/metrics").text.splitlines()
    return int(next(line for line in lines if line.startswith("specchat_requests_active"))[-2:])


def test_others_wait_in_order_and_too_many_are_refused(engine: Engine, client: Client) -> None:
    gate = Gate(engine)
    with ThreadPoolExecutor(MAX_WAITING + 1) as pool:
        waiting = []
        for number in range(MAX_WAITING + 1):
            waiting.append(pool.submit(client.ask, f"question {number}"))
            until(lambda: active(client) == len(waiting))
        refused = client.ask("one more")
        assert refused.status_code == 429
        assert int(refused.headers["Retry-After"]) >= 1
        gate.open.set()
        contents = [one.result().json()["choices"][0]["message"]["content"] for one in waiting]
    assert contents == [f"question {number}" for number in range(MAX_WAITING + 1)]
    until(lambda: active(client) == 0)
    assert client.ask("again").status_code == 200


def vanish(client: Client, gate: Gate, body: object, passes: int) -> None:
    """Ask, and go away after some passes."""
    text = json.dumps(body)
    head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
    fields = f"Content-Length: {len(text)}\r\nAuthorization: Bearer {client.token}\r\n\r\n"
    with socket.create_connection((client.base_url.host, client.base_url.port or 0)) as one:
        one.sendall(f"{head}{fields}{text}".encode())
        until(lambda: gate.passes)
        if passes > 1:
            gate.open.set()
        until(lambda: gate.passes >= passes)


@pytest.mark.parametrize("stream", [False, True])
def test_clients_that_vanish_leave_nothing(engine: Engine, client: Client, stream: bool) -> None:
    for number in range(20):
        gate = Gate(engine)
        body = {"messages": [{"role": "user", "content": "long " * 200}], "stream": stream}
        vanish(client, gate, body, 1 + 3 * (number % 2))
        gate.open.set()
        until(lambda: active(client) == 0)
        assert gate.passes < 900, "the answer was not stopped"
    assert not engine.busy.locked()
    assert client.ask("still here").json()["choices"][0]["message"]["content"] == "still here"


def test_two_hundred_connections_at_once(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    url = client.base_url
    idle = [socket.create_connection((url.host, url.port or 0)) for _ in range(200)]
    try:
        assert client.ask("hello").json()["choices"][0]["message"]["content"] == "hello"
    finally:
        for one in idle:
            one.close()
    with ThreadPoolExecutor(50) as pool:
        found = list(pool.map(lambda number: client.ask(f"number {number}"), range(200)))
    for number, response in enumerate(found):
        assert response.status_code in (200, 429)
        if response.status_code == 200:
            content = response.json()["choices"][0]["message"]["content"]
            assert content == f"number {number}", "an answer reached another client"
    assert answering.MAX_WAITING < 200


def test_metrics_count(client: Client) -> None:
    client.ask("hello")
    client.ask("hello", n=2)
    text = client.get("/metrics").text
    assert 'specchat_requests_total{path="/v1/chat/completions",status="200"} 1' in text
    assert 'specchat_requests_total{path="/v1/chat/completions",status="400"} 1' in text
    assert f"specchat_tokens_total {len('hello') + 1}" in text


def test_stopping_the_server_ends_answers_with_an_error(
    engine: Engine, locations: Locations, history: History
) -> None:
    gate = Gate(engine)
    with ThreadPoolExecutor(2) as pool, endpoint(engine, locations, history) as client:
        asked = [pool.submit(client.ask, f"question {number}") for number in range(2)]
        until(lambda: active(client) == 2)
        client.stop()
        gate.open.set()
        found = [one.result() for one in asked]
    assert {response.status_code for response in found} == {503}


def test_commands_can_ask_the_served_model(
    engine: Engine, locations: Locations, history: History
) -> None:
    with endpoint(engine, locations, history):
        (path,) = sockets(locations)
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(path))
            connection.sendall(encode(AskRequest(Options(), locations, "hello")))
            with connection.makefile("rb") as stream:
                assert decode(stream.readline()) == Declined("another model is open")
    assert sockets(locations) == []

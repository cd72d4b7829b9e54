"""Real clients against the embedded models: the `openai` package, unchanged."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import openai
import pytest

from app.config import Options
from app.engine.chat_states import ChatStates
from app.engine.loading import load, open_chat_states
from app.locations import Locations, locate
from datastores.chats.history import History
from tests.app.serve.speaking import Client, endpoint

QUESTION = "How do I extract a tar archive?"
OPTIONS = Options(drafters=("prompt", "recycle"), max_tokens=40, temperature=0.0)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Locations:
    found = locate(tmp_path_factory.mktemp("clients"))
    found.create()
    return found


@pytest.fixture(scope="module")
def client(places: Locations) -> Iterator[Client]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("engines.llama.probe._probe", lambda *_, **__: None)
        options = replace(OPTIONS, model="built-in")
        with (
            closing(load(options, places, light=True)) as engine,
            closing(History.open(places.history)) as history,
            endpoint(engine, places, history) as found,
        ):
            yield found


@pytest.fixture(scope="module")
def package(client: Client) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=client.url, api_key=client.token, max_retries=0) as made:
        yield made


def ask(package: openai.OpenAI, question: str = QUESTION) -> openai.types.chat.ChatCompletion:
    return package.chat.completions.create(
        model="built-in", messages=[{"role": "user", "content": question}]
    )


def test_a_chat_whole_and_streamed(package: openai.OpenAI) -> None:
    whole = ask(package)
    assert "tar" in (whole.choices[0].message.content or "")
    stream = package.chat.completions.create(
        model="built-in",
        messages=[{"role": "user", "content": QUESTION}],
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    text = "".join(one.choices[0].delta.content or "" for one in chunks if one.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage is not None
    assert whole.usage is not None
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens


def test_the_next_question_reads_only_what_is_new(package: openai.OpenAI) -> None:
    first = ask(package)
    following = package.chat.completions.create(
        model="built-in",
        messages=[
            {"role": "user", "content": QUESTION},
            {"role": "assistant", "content": first.choices[0].message.content},
            {"role": "user", "content": "And list it?"},
        ],
    )
    assert first.usage is not None
    assert following.usage is not None
    details = following.usage.prompt_tokens_details
    assert details is not None
    assert (details.cached_tokens or 0) >= first.usage.total_tokens - 1


def test_a_text_and_its_probabilities(package: openai.OpenAI) -> None:
    found = package.completions.create(
        model="built-in", prompt="tar xvf", max_tokens=4, logprobs=2, seed=1, temperature=0.5
    )
    logprobs = found.choices[0].logprobs
    assert logprobs is not None
    assert "".join(logprobs.tokens or ()) == found.choices[0].text
    assert all(len(top) == 2 for top in logprobs.top_logprobs or ())


def test_embeddings_and_models(package: openai.OpenAI) -> None:
    chat, embedding = [model.id for model in package.models.list()]
    assert chat == "built-in"
    found = package.embeddings.create(model=embedding, input=["one text", "another"])
    floats = package.embeddings.create(
        model=embedding, input=["one text", "another"], encoding_format="float"
    )
    for one, other in zip(found.data, floats.data, strict=True):
        assert one.embedding == pytest.approx(other.embedding, abs=1e-6)
        assert sum(value * value for value in one.embedding) == pytest.approx(1, abs=1e-3)
    assert found.usage.prompt_tokens > 2
    with pytest.raises(openai.BadRequestError, match="tokens"):
        package.embeddings.create(model=embedding, input="word " * 5000)


SIZE = {
    "type": "object",
    "properties": {"size": {"enum": ["small", "large"]}},
    "required": ["size"],
    "additionalProperties": False,
}


def test_an_answer_obeys_a_schema(package: openai.OpenAI) -> None:
    found = package.chat.completions.create(
        model="built-in",
        messages=[{"role": "user", "content": QUESTION}],
        response_format={"type": "json_schema", "json_schema": {"name": "size", "schema": SIZE}},
    )
    assert json.loads(found.choices[0].message.content or "")["size"] in ("small", "large")
    with pytest.raises(openai.BadRequestError, match="'minimum', which is not supported"):
        package.chat.completions.create(
            model="built-in",
            messages=[{"role": "user", "content": QUESTION}],
            response_format={
                "type": "json_schema",
                "json_schema": {"name": "n", "schema": {"type": "integer", "minimum": 1}},
            },
        )


def test_errors_are_the_package_s_own(client: Client, package: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="no model 'gpt-4'"):
        package.embeddings.create(model="gpt-4", input="x")
    with pytest.raises(openai.BadRequestError) as refused:
        package.chat.completions.create(
            model="built-in", messages=[{"role": "user", "content": "x"}], n=2
        )
    assert refused.value.param == "n"
    with pytest.raises(openai.BadRequestError, match="no place for tools"):
        package.chat.completions.create(
            model="built-in",
            messages=[{"role": "user", "content": "x"}],
            tools=[{"type": "function", "function": {"name": "f"}}],
        )
    with (
        openai.OpenAI(base_url=client.url, api_key="wrong", max_retries=0) as stranger,
        pytest.raises(openai.AuthenticationError),
    ):
        stranger.models.list()


def test_after_a_restart_only_what_is_new_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saving = partial(ChatStates, min_reading_s=0.0)
    monkeypatch.setattr("app.engine.loading.ChatStates", saving)
    places = locate(tmp_path)
    places.create()
    messages: list[dict[str, object]] = [
        {"role": "system", "content": "Answer with a command. " * 12},
        {"role": "user", "content": QUESTION},
    ]
    read = []
    for following in ("And list it?", "And test it?"):
        with (
            closing(load(replace(OPTIONS, model="built-in"), places)) as engine,
            closing(History.open(places.history)) as history,
        ):
            open_chat_states(engine, places.chat_states, 2**30)
            with endpoint(engine, places, history) as client:
                found = client.post("/v1/chat/completions", json={"messages": messages}).json()
        timings = found["timings"]
        read.append((timings["prompt_n"], timings["cache_n"]))
        messages.append(found["choices"][0]["message"])
        messages.append({"role": "user", "content": following})
    (first, _), (second, cached) = read
    assert cached >= first
    assert second < first / 2

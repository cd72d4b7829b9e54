"""The endpoint: routes, and the HTTP server that runs them.

`access` decides who is answered, `schema` and `requests` read what is asked, `answering` brings it
to the model, and `responses` writes what comes back.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from app.conversation.events import Event
from app.conversation.programs import ProgramRequest
from app.engine.engine import Engine
from app.serve.access import error_response, read_body, until_gone
from app.serve.answering import Answering
from app.serve.embedding import Embeddings
from app.serve.errors import RequestError, as_request_error
from app.serve.logprobs import TokenLogprobs
from app.serve.metrics import CONTENT_TYPE, Metrics
from app.serve.openapi import openapi
from app.serve.requests import (
    answer_schema,
    chat_request,
    completion_request,
    required_calls,
)
from app.serve.responses import DONE, AnswerParts, ResponseForm, as_json, server_sent
from app.serve.schema import ChatRequest, CompletionRequest, EmbeddingRequest, Sampled, read
from datastores.errors import InputError, SpecchatError
from engines.sampler import Constrain

NO_GRAMMARS = "needs a GGUF model: others have no grammars"
CLIENT_GONE = 499
"""Nginx' status for a client that went away; nobody gets it, but it is counted."""

Handler = Callable[[Request], Coroutine[Any, Any, Response]]
T = TypeVar("T")


class Endpoint:
    """Answers requests with one loaded model."""

    def __init__(self, engine: Engine, answering: Answering, embeddings: Embeddings) -> None:
        self._engine = engine
        # A file outside of the folders of models is named by its path.
        self._name = Path(engine.name).stem if os.sep in engine.name else engine.name
        self._answering = answering
        self._embeddings = embeddings
        self._metrics = Metrics()

    def app(self) -> Starlette:
        """The endpoint as an ASGI application, without access control."""
        routes = (
            ("/health", "GET", self._health),
            ("/metrics", "GET", self._show_metrics),
            ("/openapi.json", "GET", self._describe),
            ("/v1/models", "GET", self._models),
            ("/v1/models/{model:path}", "GET", self._model),
            ("/v1/chat/completions", "POST", self._chat),
            ("/v1/completions", "POST", self._complete),
            ("/v1/embeddings", "POST", self._embed),
        )
        return Starlette(
            routes=[
                Route(path, self._counted(path, answer), methods=[method])
                for path, method, answer in routes
            ],
            exception_handlers={HTTPException: _http_error},
        )

    def _counted(self, path: str, answer: Handler) -> Handler:
        """`answer` with errors as responses, and counted."""

        async def respond(request: Request) -> Response:
            try:
                response = await answer(request)
            except SpecchatError as error:
                response = error_response(as_request_error(error))
            except ClientDisconnect:
                response = Response(status_code=CLIENT_GONE)
            self._metrics.count_request(path, response.status_code)
            return response

        return respond

    async def _health(self, request: Request) -> Response:
        return _json({"status": "ok"})

    async def _show_metrics(self, request: Request) -> Response:
        return Response(self._metrics.text(self._answering.active), media_type=CONTENT_TYPE)

    async def _describe(self, request: Request) -> Response:
        return _json(openapi())

    async def _models(self, request: Request) -> Response:
        return _json({"object": "list", "data": [_model(name) for name in self._names()]})

    async def _model(self, request: Request) -> Response:
        name = request.path_params["model"]
        self._require_model(name, self._names())
        return _json(_model(name))

    async def _chat(self, request: Request) -> Response:
        body = read(await read_body(request), ChatRequest)
        asked = chat_request(body)
        asked = await self._constrained(body, asked)
        top = body.top_logprobs or 0
        logprobs = TokenLogprobs(self._engine.vocabulary, top) if asked.logits else None
        takes = asked.takes if asked.tools else None
        parts = AnswerParts(takes=takes, single_call=asked.single_call, logprobs=logprobs)
        return await self._answer(request, body, asked, parts)

    async def _constrained(self, body: ChatRequest, asked: ProgramRequest) -> ProgramRequest:
        """`asked` with what restricts the answer: the schema of its JSON, or tools that have to be
        called, or to be called as they say.

        Raises:
            RequestError: it is invalid or not supported.
        """
        schema, engine = answer_schema(body), self._engine
        called, many = required_calls(body, asked.tools), not asked.single_call
        free = not called and schema is None
        if schema is not None:
            constrain = await _grammar("response_format", engine.json_form, schema)
        elif called:
            constrain = await _grammar(
                "tool_choice", engine.call_form, called, asked.strict, many, free
            )
        elif asked.strict and engine.call_form is not None:
            constrain = await _grammar(
                "tools", engine.call_form, asked.tools, asked.strict, many, free
            )
        else:
            return asked
        return replace(asked, constrain=constrain, free=free)

    async def _complete(self, request: Request) -> Response:
        body = read(await read_body(request), CompletionRequest)
        asked = completion_request(body)
        logprobs = TokenLogprobs(self._engine.vocabulary, body.logprobs or 0)
        parts = AnswerParts(plain=True, logprobs=logprobs if asked.logits else None)
        return await self._answer(request, body, asked, parts)

    async def _answer(
        self, request: Request, body: Sampled, asked: ProgramRequest, parts: AnswerParts
    ) -> Response:
        self._require_model(body.model or self._name, [self._name])
        options = body.stream_options
        form = ResponseForm(
            self._name,
            isinstance(body, ChatRequest),
            parts,
            include_usage=options is not None and options.include_usage,
        )
        ready = (parts.logprobs.prepare,) if parts.logprobs is not None else ()
        events = self._answering.events(asked, *ready)
        if not body.stream:
            return await _unless_gone(request, self._whole(events, form))
        first = await _unless_gone(request, anext(events))
        return AnswerResponse(self._streamed(first, events, form), events)

    async def _whole(self, events: AsyncGenerator[Event], form: ResponseForm) -> Response:
        async with aclosing(events):
            async for event in events:
                form.take(event)
        self._metrics.count_answer(form.parts.statistics)
        return _json(form.whole())

    async def _streamed(
        self, first: Event, events: AsyncGenerator[Event], form: ResponseForm
    ) -> AsyncIterator[bytes]:
        """The answer as events of a stream; an error is the last of them."""
        for chunk in form.chunks(first):
            yield server_sent(chunk)
        try:
            async for event in events:
                for chunk in form.chunks(event):
                    yield server_sent(chunk)
        except SpecchatError as error:
            yield server_sent(as_request_error(error).body)
            return
        self._metrics.count_answer(form.parts.statistics)
        yield DONE

    async def _embed(self, request: Request) -> Response:
        body = read(await read_body(request), EmbeddingRequest)
        name = self._embeddings.name
        self._require_model(body.model or name, [name])
        return _json(await self._embeddings.respond(body))

    def _names(self) -> list[str]:
        return list(filter(None, (self._name, self._embeddings.name)))

    def _require_model(self, name: str, served: list[str]) -> None:
        """Check that a request for the model `name` is for one that is `served`.

        Raises:
            RequestError: it is for another.
        """
        if name not in served:
            raise RequestError(
                f"no model '{name}' here: leave out `model`, or ask for {' or '.join(served)}",
                404,
                param="model",
                code="model_not_found",
            )


class AnswerResponse(StreamingResponse):
    """A stream of an answer, which is stopped however the stream ends."""

    def __init__(self, content: AsyncIterator[bytes], events: AsyncGenerator[Event]) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(content, headers=headers, media_type="text/event-stream")
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._events.aclose()


async def _grammar(param: str, make: Callable[..., Constrain] | None, *of: object) -> Constrain:
    """What `make` makes of the field `param`.

    Raises:
        RequestError: it cannot be obeyed.
    """
    if make is None:
        raise RequestError(f"{param} {NO_GRAMMARS}", param=param)
    try:
        return await asyncio.to_thread(make, *of)
    except InputError as error:
        raise RequestError(f"{param}: {error}", param=param) from error


async def _unless_gone(request: Request, work: Awaitable[T]) -> T:
    """The result of `work`, which is cancelled when the client of `request` goes away.

    Raises:
        ClientDisconnect: it did.
    """
    working = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(until_gone(request))
    try:
        await asyncio.wait({working, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        for task in (working, gone):
            task.cancel()


async def _http_error(request: Request, error: Exception) -> Response:
    """The response for a path or a method that there is not."""
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    message = f"{request.method} {request.url.path}: {error.detail.lower()}"
    return error_response(RequestError(message, error.status_code, headers=headers))


def _json(value: object) -> Response:
    return Response(as_json(value), media_type="application/json")


def _model(name: str) -> dict[str, object]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "specchat"}

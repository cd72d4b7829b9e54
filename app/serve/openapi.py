"""The endpoint's own description, for `/openapi.json`: made from the classes that read bodies."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version
from typing import Any

import msgspec

from app.serve.schema import ChatRequest, CompletionRequest, EmbeddingRequest

REFERENCE = "#/components/schemas/{name}"
BODIES = (ChatRequest, CompletionRequest, EmbeddingRequest)
PROBLEMS = {
    400: "The request is invalid, asks for what is not supported, or does not fit.",
    401: "The token is missing or wrong.",
    403: "The request is from a web page, or to another name of this machine.",
    404: "There is no such model.",
    408: "The body did not arrive in time.",
    413: "The body is too large.",
    429: "Too many requests are waiting; `Retry-After` says for how long.",
}
"""What each status of a request that is not answered means."""
READING, ASKING = (401, 403), (400, 401, 403, 404, 408, 413, 429)
"""The statuses of routes that only tell something, and of those that ask a model."""
JSON, STREAM, TEXT = "application/json", "text/event-stream", "text/plain"


@cache
def openapi() -> dict[str, Any]:
    """The description in OpenAPI's form, version 3.1."""
    _, schemas = msgspec.json.schema_components(BODIES, ref_template=REFERENCE)
    token = {"token": {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "specchat", "version": version("specchat")},
        "security": [{"token": list[str]()}],
        "paths": _paths(),
        "components": {"schemas": {**schemas, "Error": _error()}, "securitySchemes": token},
    }


def _paths() -> dict[str, Any]:
    model = {"name": "model", "in": "path", "required": True, "schema": {"type": "string"}}
    reading = {"responses": _responses(READING, JSON)}
    one = {"parameters": [model], "responses": _responses((*READING, 404), JSON)}
    counters = {"responses": _responses(READING, TEXT)}
    return {
        "/health": {"get": {**reading, "summary": "Whether it runs.", "security": []}},
        "/metrics": {"get": {**counters, "summary": "Counters, in Prometheus' form."}},
        "/openapi.json": {"get": {**reading, "summary": "This description."}},
        "/v1/models": {"get": {**reading, "summary": "The models."}},
        "/v1/models/{model}": {"get": {**one, "summary": "A model."}},
        "/v1/chat/completions": {"post": _asking("ChatRequest", "Answer a chat.", JSON, STREAM)},
        "/v1/completions": {"post": _asking("CompletionRequest", "Continue a text.", JSON, STREAM)},
        "/v1/embeddings": {"post": _asking("EmbeddingRequest", "Embed texts.", JSON)},
    }


def _asking(body: str, summary: str, *kinds: str) -> dict[str, Any]:
    """A route that takes the class `body`, and answers with the content types `kinds`."""
    content = {JSON: {"schema": {"$ref": REFERENCE.format(name=body)}}}
    return {
        "summary": summary,
        "requestBody": {"required": True, "content": content},
        "responses": _responses(ASKING, *kinds),
    }


def _responses(problems: tuple[int, ...], *kinds: str) -> dict[str, Any]:
    good = {kind: {"schema": {"type": "object"} if kind == JSON else {}} for kind in kinds}
    error = {JSON: {"schema": {"$ref": REFERENCE.format(name="Error")}}}
    refused = {
        str(status): {"description": PROBLEMS[status], "content": error} for status in problems
    }
    return {"200": {"description": "The answer.", "content": good}, **refused}


def _error() -> dict[str, Any]:
    text, maybe = {"type": "string"}, {"type": ["string", "null"]}
    fields = {"message": text, "type": text, "param": maybe, "code": maybe}
    error = {"type": "object", "properties": fields, "required": list(fields)}
    return {"type": "object", "properties": {"error": error}, "required": ["error"]}

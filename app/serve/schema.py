"""What programs send: OpenAI's request bodies, as far as they are supported.

A body is read into these classes, which refuse whatever is not declared here, with its name. Fields
that are declared with one value, such as `n`, exist since clients send them. `app.serve.openapi`
describes the same classes.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from app.chat_settings import MAX_SEQUENCE_CHARACTERS, MAX_SEQUENCES
from app.serve.errors import RequestError

MAX_BODY_BYTES = 16 * 2**20
"""Largest body of a request."""
MAX_DEPTH = 64
"""Deepest nesting of a body."""
MAX_TOP = 20
"""Most alternatives of a token whose probabilities can be asked for."""
MAX_TEXTS = 256
"""Most texts embedded by one request."""
MAX_COUNT = 2**31 - 1

_UNKNOWN = re.compile(r"Object contains unknown field `([^`]{1,64})`")

Body = TypeVar("Body")
Name = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[a-zA-Z0-9_.-]+$")]
Text = Annotated[str, Meta(min_length=1)]
Count = Annotated[int, Meta(ge=1, le=MAX_COUNT)]
StopSequence = Annotated[str, Meta(min_length=1, max_length=MAX_SEQUENCE_CHARACTERS)]
StopSequences = Annotated[list[StopSequence], Meta(max_length=MAX_SEQUENCES)]
Zero = Annotated[float, Meta(ge=0, le=0)]
Nothing = Annotated[dict[str, Any], Meta(max_length=0)]


class Object(Struct, forbid_unknown_fields=True):
    """Base of everything in a body."""


class TextPart(Object):
    """A part of a message's content."""

    type: Literal["text"]
    text: str


Content = str | list[TextPart]


class SystemMessage(Object, tag_field="role", tag="system"):
    """Instructions before a conversation, or within it."""

    content: Content


class DeveloperMessage(Object, tag_field="role", tag="developer"):
    """The same, under its present name in OpenAI's API."""

    content: Content


class UserMessage(Object, tag_field="role", tag="user"):
    """A question."""

    content: Content


class CalledFunction(Object):
    """The function of a call; its arguments are JSON in a text."""

    name: Name
    arguments: str


class CallMessage(Object):
    """A call in an earlier answer."""

    id: str
    function: CalledFunction
    type: Literal["function"] = "function"


class AssistantMessage(Object, tag_field="role", tag="assistant"):
    """An earlier answer. Its reasoning is accepted and left out, as models expect."""

    content: Content | None = None
    tool_calls: list[CallMessage] | None = None
    reasoning_content: str | None = None
    refusal: None = None
    audio: None = None
    function_call: None = None
    annotations: Annotated[list[Any], Meta(max_length=0)] | None = None


class ToolMessage(Object, tag_field="role", tag="tool"):
    """The result of a call."""

    content: Content
    tool_call_id: str
    name: str | None = None


ChatMessage = SystemMessage | DeveloperMessage | UserMessage | AssistantMessage | ToolMessage


class Function(Object):
    """A function that the model may call, with a JSON schema of its parameters."""

    name: Name
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class FunctionTool(Object):
    """A tool."""

    function: Function
    type: Literal["function"] = "function"


class FunctionName(Object):
    """The name of a function."""

    name: Name


class FunctionChoice(Object):
    """A function that has to be called."""

    function: FunctionName
    type: Literal["function"] = "function"


class StreamOptions(Object):
    """Options of a stream."""

    include_usage: bool = False
    include_obfuscation: Literal[False] | None = None


class TextFormat(Object, tag_field="type", tag="text"):
    """Any text."""


class JsonFormat(Object, tag_field="type", tag="json_object"):
    """Any JSON object."""


class JsonSchema(Object):
    """A JSON schema; strict or not, it is obeyed."""

    name: Name
    schema: dict[str, Any]
    description: str | None = None
    strict: bool | None = None


class SchemaFormat(Object, tag_field="type", tag="json_schema"):
    """JSON that a schema allows."""

    json_schema: JsonSchema


class Sampled(Object, kw_only=True):
    """What both kinds of completion share. Without a setting, specchat's own decides."""

    model: str = ""
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: Annotated[float, Meta(ge=0, le=100)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=0, le=MAX_COUNT)] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    repeat_penalty: Annotated[float, Meta(ge=0.01, le=100)] | None = None
    seed: Annotated[int, Meta(ge=-1, le=2**63 - 1)] | None = None
    stop: StopSequence | StopSequences | None = None
    max_tokens: Count | None = None
    store: bool | None = None
    n: Annotated[int, Meta(ge=1, le=1)] | None = None
    presence_penalty: Zero | None = None
    frequency_penalty: Zero | None = None
    logit_bias: Nothing | None = None
    user: str | None = None
    metadata: dict[str, str] | None = None


class ChatRequest(Sampled, kw_only=True):
    """The body of `/v1/chat/completions`."""

    messages: Annotated[list[ChatMessage], Meta(min_length=1)]
    max_completion_tokens: Count | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=MAX_TOP)] | None = None
    tools: list[FunctionTool] | None = None
    tool_choice: Literal["auto", "none", "required"] | FunctionChoice | None = None
    parallel_tool_calls: bool | None = None
    response_format: TextFormat | JsonFormat | SchemaFormat | None = None
    modalities: list[Literal["text"]] | None = None
    service_tier: Literal["auto", "default"] | None = None
    prompt_cache_key: str | None = None
    safety_identifier: str | None = None


class CompletionRequest(Sampled, kw_only=True):
    """The body of `/v1/completions`. In the prompt, control tokens are recognised."""

    prompt: Text | Annotated[list[Text], Meta(min_length=1, max_length=1)]
    logprobs: Annotated[int, Meta(ge=0, le=MAX_TOP)] | None = None
    echo: Literal[False] | None = None
    suffix: Literal[""] | None = None
    best_of: Annotated[int, Meta(ge=1, le=1)] | None = None


class EmbeddingRequest(Object, kw_only=True):
    """The body of `/v1/embeddings`. Token ids, which are refused, are declared to say why."""

    input: Text | Annotated[list[Text | int | list[int]], Meta(min_length=1, max_length=MAX_TEXTS)]
    model: str = ""
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Count | None = None
    user: str | None = None


def read(body: bytes, kind: type[Body]) -> Body:
    """The body of a request, if it is valid.

    Raises:
        RequestError: what is wrong, and where.
    """
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        problem, _, place = str(error).partition(" - at `$")
        place = place.strip("`.")
        unknown = _UNKNOWN.match(problem)
        if unknown:
            param = f"{place}.{unknown[1]}".strip(".")
            raise RequestError(f"{param} is not supported", param=param) from error
        raise RequestError(f"{place or 'the body'}: {problem}", param=place or None) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RequestError(f"the body is not valid JSON: {error}") from error


def require_shallow(value: object, param: str, depth: int = MAX_DEPTH) -> None:
    """Check that `value`, made of JSON's types, is nested at most `depth` deep.

    Raises:
        RequestError: it is nested deeper.
    """
    if not depth:
        raise RequestError(f"{param} is nested more than {MAX_DEPTH} levels deep", param=param)
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for one in inner:
        require_shallow(one, param, depth - 1)

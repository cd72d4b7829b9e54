"""From request bodies to what the model is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import msgspec
from jsonschema_rs import ValidationError, validator_for

from app.chat_settings import MAX_TOKENS
from app.conversation.programs import ProgramRequest
from app.serve.errors import RequestError
from app.serve.schema import (
    AssistantMessage,
    CallMessage,
    ChatMessage,
    ChatRequest,
    CompletionRequest,
    Content,
    DeveloperMessage,
    FunctionChoice,
    JsonFormat,
    Sampled,
    SystemMessage,
    TextFormat,
    ToolMessage,
    require_shallow,
)
from datastores.chats.records import ASSISTANT, SYSTEM, USER
from engines.chat_template.prompt_builder import TOOL, Message, Tool, ToolCall
from engines.chat_template.tool_calls import Obeys

SETTINGS = ("temperature", "top_p", "top_k", "min_p", "repeat_penalty", "seed", MAX_TOKENS)
"""Settings of a request that have the names of a chat's."""
PART_BREAK = "\n"
"""Joins the parts of a message's content."""


def chat_request(body: ChatRequest) -> ProgramRequest:
    """What the body of a chat completion asks for.

    Raises:
        RequestError: it is not supported, or contradicts itself.
    """
    tools = [] if body.tool_choice == "none" else list(_tools(body))
    if body.top_logprobs and not body.logprobs:
        raise RequestError("top_logprobs needs logprobs: true", param="top_logprobs")
    if body.stream_options is not None and not body.stream:
        raise RequestError("stream_options needs stream: true", param="stream_options")
    sampling = _sampling(body)
    if body.max_completion_tokens is not None:
        sampling[MAX_TOKENS] = body.max_completion_tokens
    messages = [_message(one, f"messages[{index}]") for index, one in enumerate(body.messages)]
    if not any(message.role == USER for message in messages):
        raise RequestError("messages: none of them is the user's", param="messages")
    return ProgramRequest(
        messages,
        tools=tools,
        sampling=sampling,
        stop=_stop(body),
        logits=bool(body.logprobs),
        store=body.store is not False,
        single_call=body.parallel_tool_calls is False,
        strict=_strict(body),
    )


def required_calls(body: ChatRequest, tools: Sequence[Tool]) -> list[Tool]:
    """Those of `tools`, one of which has to be called; none if the model decides.

    Raises:
        RequestError: there is no such tool, or the choice does not fit the rest of the body.
    """
    choice = body.tool_choice
    if choice == "required":
        called = list(tools)
    elif isinstance(choice, FunctionChoice):
        called = [tool for tool in tools if tool["function"]["name"] == choice.function.name]
    else:
        return []
    if not called:
        raise RequestError("tool_choice: there is no such tool", param="tool_choice")
    return called


def _strict(body: ChatRequest) -> dict[str, Obeys]:
    """For the tools whose calls have to obey their schemas, whether arguments do."""
    found: dict[str, Obeys] = {}
    for index, tool in enumerate(body.tools or () if body.tool_choice != "none" else ()):
        if not tool.function.strict:
            continue
        param = f"tools[{index}].function.parameters"
        try:
            validator = validator_for(tool.function.parameters or {}, retriever=_refuse)
        except ValidationError as error:
            raise RequestError(f"{param}: {error.message}", param=param) from error
        found[tool.function.name] = validator.is_valid
    return found


def _refuse(reference: str) -> NoReturn:
    """Keep a schema from being fetched."""
    raise ValueError(f"{reference} is not fetched")


def completion_request(body: CompletionRequest) -> ProgramRequest:
    """What the body of a completion asks for.

    Raises:
        RequestError: it contradicts itself.
    """
    if body.stream_options is not None and not body.stream:
        raise RequestError("stream_options needs stream: true", param="stream_options")
    return ProgramRequest(
        text=body.prompt if isinstance(body.prompt, str) else body.prompt[0],
        sampling=_sampling(body),
        stop=_stop(body),
        logits=body.logprobs is not None,
        store=body.store is not False,
    )


def answer_schema(body: ChatRequest) -> dict[str, Any] | None:
    """The JSON schema of the answer; None for any text.

    Raises:
        RequestError: it cannot be obeyed.
    """
    form = body.response_format
    if form is None or isinstance(form, TextFormat):
        return None
    if body.tools and body.tool_choice != "none":
        raise RequestError("response_format cannot be combined with tools", param="response_format")
    if isinstance(form, JsonFormat):
        return {"type": "object"}
    require_shallow(form.json_schema.schema, "response_format.json_schema.schema")
    return form.json_schema.schema


def _sampling(body: Sampled) -> dict[str, Any]:
    chosen = {name: getattr(body, name) for name in SETTINGS}
    return {name: value for name, value in chosen.items() if value is not None}


def _stop(body: Sampled) -> tuple[str, ...]:
    return (body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ())


def _tools(body: ChatRequest) -> Iterator[Tool]:
    """The tools as the model's chat template gets them: as they were sent."""
    for index, tool in enumerate(body.tools or ()):
        function = tool.function
        require_shallow(function.parameters, f"tools[{index}].function.parameters")
        parameters = function.parameters or {"type": "object", "properties": {}}
        described = {"name": function.name, "description": function.description or ""}
        yield {"type": "function", "function": {**described, "parameters": parameters}}


def _message(message: ChatMessage, where: str) -> Message:
    if isinstance(message, SystemMessage | DeveloperMessage):
        return Message(SYSTEM, _text(message.content))
    if isinstance(message, ToolMessage):
        return Message(TOOL, _text(message.content), call_id=message.tool_call_id)
    if isinstance(message, AssistantMessage):
        calls = [_call(call, where) for call in message.tool_calls or ()]
        if message.content is None and not calls:
            raise RequestError(f"{where} has neither content nor tool_calls", param=where)
        return Message(ASSISTANT, _text(message.content or ""), calls=tuple(calls))
    return Message(USER, _text(message.content))


def _text(content: Content) -> str:
    if isinstance(content, str):
        return content
    return PART_BREAK.join(part.text for part in content)


def _call(call: CallMessage, where: str) -> ToolCall:
    place = f"{where}.tool_calls"
    try:
        arguments = msgspec.json.decode(call.function.arguments or "{}", type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise RequestError(f"{place}: arguments are not a JSON object", param=place) from error
    require_shallow(arguments, place)
    return ToolCall(call.id, call.function.name, arguments)

"""The process that renders a model file's Jinja template: untrusted code, sandboxed and limited.

`render_process` runs this module. Jinja's sandbox keeps the template from reaching outside, and the
limits of the process keep it from filling the memory or running forever, so nothing in here counts
what it does. The helpers are those of transformers' `apply_chat_template`, for which templates are
written.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from time import process_time
from typing import Any, NoReturn

from jinja2 import Template, TemplateError, meta, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from engines.chat_template.render_process import (
    EMPTY,
    FAILED,
    NONE,
    REFUSED,
    SECONDS,
    TEXT,
)
from engines.child_process import emit, receive_requests, run_child

MEMORY_BYTES = 1 << 29
MAX_CHARACTERS = 1 << 22
"""Maximum length of a prompt without its contents, which may be repeated `MAX_REPEATED` times."""
MAX_REPEATED = 4
MAX_REASON = 160

TEMPLATE_ERRORS = (
    TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    OSError,
    TypeError,
    ValueError,
)
"""Exceptions of a template that may still render other conversations."""
LIMIT_ERRORS = (MemoryError, RecursionError, SyntaxError)
"""Exceptions at a limit; Python raises SyntaxError for code nested too deeply."""


class GenerationTag(Extension):
    """Ignores `{% generation %}`, which marks the assistant's text for training."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """Return only the block's body."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class TemplateMessage(dict[str, Any], Namespace):
    """A message whose fields a template may set, as in llama.cpp: `{% set m.content = … %}`.

    Jinja allows that only for namespaces. Each rendering has messages of its own.
    """


class TemplateRenderer:
    """A compiled template.

    Raises:
        TemplateError: it is not valid Jinja; or one of `LIMIT_ERRORS`.
    """

    def __init__(self, source: str, constants: dict[str, str]) -> None:
        """`constants` are defined in every rendering."""
        self._source = source
        self._constants = constants
        self._environment = _environment()
        self._template: Template = self._environment.from_string(source)

    def render(
        self, messages: Sequence[dict[str, Any]], others: str, tools: Sequence[Any] = ()
    ) -> str:
        """See `RenderProcess.render`."""
        variables: dict[str, Any] = {}
        if others == NONE:
            variables = {"tools": None, "documents": None}
        elif others == EMPTY:
            parsed = self._environment.parse(self._source)
            variables = dict.fromkeys(meta.find_undeclared_variables(parsed), "")
        variables |= {**self._constants, "add_generation_prompt": True}
        if tools:
            variables["tools"] = tools
        variables["messages"] = [TemplateMessage(message) for message in messages]
        return self._template.render(variables)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals.update(raise_exception=_raise_exception, strftime_now=_strftime_now)
    return environment


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Like Jinja's filter, without escaping for HTML."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(format: str) -> str:
    return datetime.now().strftime(format)


def main(arguments: Sequence[str]) -> None:
    """Answer requests, each within the seconds in `arguments`: first the template with its
    constants, then conversations."""
    requests = receive_requests(float(arguments[0]))
    _, content = next(requests)
    try:
        renderer = TemplateRenderer(*json.loads(content))
    except (*TEMPLATE_ERRORS, *LIMIT_ERRORS) as error:
        emit({FAILED: _reason(error)})
        return
    emit({})
    for others, content in requests:
        began = process_time()
        answer = _answer(renderer, others, content)
        emit({**answer, SECONDS: process_time() - began})


def _answer(renderer: TemplateRenderer, others: str, content: bytes) -> dict[str, str]:
    try:
        messages, tools = json.loads(content)
        text = renderer.render(messages, others, tools)
    except LIMIT_ERRORS as error:
        return {FAILED: _reason(error)}
    except TEMPLATE_ERRORS as error:
        return {REFUSED: _reason(error)}
    if len(text) > MAX_CHARACTERS + MAX_REPEATED * len(content):
        return {FAILED: f"it writes {len(text):,} characters"}
    return {TEXT: text}


def _reason(error: BaseException) -> str:
    if isinstance(error, MemoryError):
        return "it takes too much memory"
    return " ".join(str(error)[: 2 * MAX_REASON].split())[:MAX_REASON] or type(error).__name__


if __name__ == "__main__":
    run_child(main, memory_bytes=MEMORY_BYTES)

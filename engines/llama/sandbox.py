"""The Jinja environment of a foreign chat template: its helpers, its limits.

Helpers are those of transformers' `apply_chat_template`, for which templates are written; filters
are the ones templates use. Every operation that makes something pays for it
(`engines.llama.ration`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import wraps
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from engines.llama.ration import Ration

PICKING = (
    "abs attr count d default dictsort first float groupby int items last length list map max min"
    " reject rejectattr reverse select selectattr sort unique"
)
"""Filters that look at a value or pick from it: what lies within is not written out."""
WRITING = "capitalize e escape indent join lower replace safe string title trim upper"
"""Filters that make a string of all they are given."""


class Sandbox(ImmutableSandboxedEnvironment):
    """Attributes lead nowhere, values do not change, and `ration` bounds what is made."""

    intercepted_binops = frozenset({"+", "-", "*", "**", "%"})

    def __init__(self) -> None:
        self.ration = Ration()
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            # Folding constants would run a template's expressions before anything is bounded.
            optimized=False,
            finalize=self.ration.spend_on,
            extensions=[GenerationTag, loopcontrols],
        )
        known = self.filters
        self.filters = {
            name: self._paying(name, known[name]) for name in f"{PICKING} {WRITING}".split()
        }
        self.filters["tojson"] = self._to_json
        del self.globals["lipsum"]
        self.globals.update(raise_exception=_raise_exception, strftime_now=_strftime_now)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        """Pay for methods of strings, then call as the sandbox does."""
        owner = getattr(getattr(__obj, "__wrapped__", __obj), "__self__", None)
        if isinstance(owner, str):
            args = tuple(_reckonable(argument) for argument in args)
            values = (*args, *kwargs.values())
            __self.ration.spend_on_method(owner, __obj.__name__, values)
        return super().call(__context, __obj, *args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Pay for an operator, then apply it."""
        self.ration.spend_on_operator(operator, left, right)
        return super().call_binop(context, operator, left, right)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree: nodes.Template = _AddForConcat().visit(super()._parse(source, name, filename))
        return tree

    def _paying(self, name: str, filter_: Callable[..., Any]) -> Callable[..., Any]:
        """`filter_`, paying for its input, and for more where it makes more."""
        skipped = 1 if hasattr(filter_, "jinja_pass_arg") else 0

        @wraps(filter_)
        def paid(*args: Any, **kwargs: Any) -> Any:
            if name in WRITING.split():
                args = (*args[:skipped], *map(_reckonable, args[skipped:]))
            values = (*args[skipped:], *kwargs.values())
            if name == "replace":
                self.ration.spend_on_replace(*values)
            elif name == "join":
                self.ration.spend_on_join(*values[:2])
            elif name == "indent":
                self.ration.spend_on_join(str(values[0]).split("\n"), " " * _width(values[1:]))
            elif name in PICKING.split():
                self.ration.spend_shallow(values[0])
            else:
                self.ration.spend_on(values)
            return filter_(*args, **kwargs)

        return paid

    def _to_json(
        self,
        value: Any,
        ensure_ascii: bool = False,
        indent: int | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        """Unlike Jinja's own, without escapes for HTML."""
        self.ration.spend_on(value)
        return json.dumps(
            value,
            ensure_ascii=ensure_ascii,
            indent=None if indent is None else min(indent, 8),
            separators=separators,
            sort_keys=sort_keys,
        )

    def concat(self, parts: Iterable[str]) -> str:
        """Join the output of a block or macro."""
        texts = list(parts)
        self.ration.spend(sum(map(len, texts)))
        return "".join(texts)


class GenerationTag(Extension):
    """`{% generation %}` marks the assistant's words for training; here it changes nothing."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """The block's body alone."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _AddForConcat(NodeTransformer):
    """a ~ b becomes a|string + b|string: an operator that can be intercepted."""

    def visit_Concat(self, node: nodes.Concat) -> nodes.Expr:  # noqa: N802
        """Fold the parts from the left."""
        self.generic_visit(node)
        texts = [
            nodes.Filter(part, "string", [], [], None, None, lineno=node.lineno)
            for part in node.nodes
        ]
        total: nodes.Expr = texts[0]
        for text in texts[1:]:
            total = nodes.Add(total, text, lineno=node.lineno)
        if node.environment is not None:
            total.set_environment(node.environment)
        return total


def _reckonable(value: Any) -> Any:
    """A generator as the list of its items: what it would yield can be paid for only then."""
    return list(value) if isinstance(value, Iterator) else value


def _width(arguments: tuple[Any, ...]) -> int:
    """Columns an `indent` indents by: its first argument, a number or the text itself."""
    width = arguments[0] if arguments else 4
    return len(width) if isinstance(width, str) else min(int(width), 1 << 20)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(format: str) -> str:
    return datetime.now().strftime(format[:100])

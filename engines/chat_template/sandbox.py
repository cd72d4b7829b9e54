"""A model file's Jinja template, run as the foreign code it is: in a sandbox and within a time.

Owns compiling and rendering. Refuses to know roles, tokens and models.

How much a foreign template may make: every operation that builds something pays beforehand.

The sandbox keeps a template from reaching out; this keeps it from eating memory. A single
expression can ask for gigabytes, so sizes are reckoned before the work is done, not after.

The Jinja environment of a foreign chat template: its helpers, its limits.

Helpers are those of transformers' `apply_chat_template`, for which templates are written; filters
are the ones templates use. Every operation that makes something pays for it
(`engines.chat_template.sandbox`).
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import wraps
from time import monotonic
from types import FrameType
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from datastores.errors import ModelError

RATION = 1 << 22
"""Characters and items one rendering may make in all."""
LARGEST_POWER = 64
WIDTH = re.compile(r"\d{5}|\*")
"""In a format string: a field wider than any in use, or one whose width is an argument."""
PADDING_METHODS = frozenset({"center", "expandtabs", "ljust", "rjust", "zfill"})
FORMATS = frozenset({"format", "format_map"})


class RenderQuota:
    """What is left for the rendering under way."""

    def __init__(self) -> None:
        self._left = RATION

    def renew(self) -> None:
        """Begin another rendering."""
        self._left = RATION

    def spend(self, amount: int) -> None:
        """Take `amount` characters or items.

        Raises:
            SecurityError: there are not that many left.
        """
        self._left -= amount
        if self._left < 0:
            raise SecurityError(f"it makes more than {RATION} characters")

    def spend_on(self, value: Any) -> Any:
        """Pay for writing `value` out, whatever it holds; returns it."""
        waiting = [value]
        while waiting:
            item = waiting.pop()
            if isinstance(item, Mapping):
                waiting.extend([*item.keys(), *item.values()])
            elif isinstance(item, list | tuple | set | frozenset | range):
                waiting.extend(item)
            self.spend(1 + _extent(item))
        return value

    def spend_shallow(self, value: Any) -> None:
        """Pay for going over `value`'s items once."""
        self.spend(1 + _extent(value))

    def spend_on_operator(self, operator: str, left: Any, right: Any) -> None:
        """Pay for `left operator right`."""
        if operator == "**":
            if not isinstance(right, int | float) or abs(right) > LARGEST_POWER:
                raise SecurityError("it raises to a high power")
            self.spend(_extent(left) * LARGEST_POWER)
        elif operator == "*":
            self.spend(_product(left, right))
        elif operator == "%" and isinstance(left, str):
            self.spend_on_format(left, right)
        else:
            self.spend(_extent(left) + _extent(right))

    def spend_on_format(self, template: str, *values: Any) -> None:
        """Pay for filling in a format string."""
        if WIDTH.search(template):
            raise SecurityError("it formats very wide")
        places = 1 + template.count("%") + template.count("{")
        before = self._left
        self.spend_on(values)
        self.spend(len(template) + places * (before - self._left))

    def spend_on_method(self, text: str, name: str, arguments: tuple[Any, ...]) -> None:
        """Pay for a call of `text`'s method `name`."""
        if name in FORMATS:
            self.spend_on_format(text, *arguments)
        elif name in PADDING_METHODS:
            width = max((item for item in arguments if isinstance(item, int)), default=8)
            self.spend((1 + text.count("\t")) * max(width, 8) + len(text))
        elif name == "replace":
            self.spend_on_replace(text, *arguments[:2])
        elif name == "join":
            self.spend_on_join(arguments[0], text)
        else:
            self.spend(4 * len(text))

    def spend_on_replace(self, text: Any, old: Any = "", new: Any = "", *_count: Any) -> None:
        """Pay for replacing `old` by `new` throughout."""
        text, old, new = str(self.spend_on(text)), str(self.spend_on(old)), self.spend_on(new)
        self.spend(len(text) + text.count(old) * len(str(new)))

    def spend_on_join(self, items: Any, separator: Any = "") -> None:
        """Pay for joining `items`."""
        if isinstance(items, list | tuple | str | Mapping):
            self.spend(len(items) * (1 + len(str(separator))))
        self.spend_on(items)


def _extent(value: Any) -> int:
    """Characters or items of a value by itself; bytes of an integer."""
    if isinstance(value, int):
        return value.bit_length() >> 3
    if isinstance(value, str | bytes | list | tuple | Mapping | set | frozenset | range):
        return len(value)
    return 0


def _product(left: Any, right: Any) -> int:
    """What `left * right` makes."""
    for text, count in ((left, right), (right, left)):
        if isinstance(text, str | bytes | list | tuple) and isinstance(count, int):
            return len(text) * max(count, 0)
    return _extent(left) + _extent(right)


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
        self.ration = RenderQuota()
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


PATIENCE = 2.0
"""Seconds for one rendering; templates in use take about a millisecond."""
NAME = "<template>"
"""What Jinja calls the file of code compiled from a string."""
LONGEST_REASON = 160

FAILURES = (
    TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    RecursionError,
    TimeoutError,
    TypeError,
    ValueError,
)
"""All that a template's own code can raise."""


class JinjaTemplate:
    """A compiled template; `variables` are there in every rendering.

    Raises:
        ModelError: it is not valid Jinja.
    """

    def __init__(self, source: str, **variables: str) -> None:
        self._variables = variables
        self._sandbox = Sandbox()
        try:
            self._template = self._sandbox.from_string(source)
        except (TemplateError, RecursionError, MemoryError, SyntaxError) as error:
            raise _unusable(error) from error

    def render(self, messages: Sequence[Mapping[str, str]], *, add_generation_prompt: bool) -> str:
        """The conversation as text.

        Raises:
            ModelError: the template refuses the conversation, fails, or knows no bounds.
        """
        self._sandbox.ration.renew()
        try:
            with _deadline(PATIENCE):
                return self._template.render(
                    messages=messages,
                    add_generation_prompt=add_generation_prompt,
                    tools=None,
                    documents=None,
                    **self._variables,
                )
        except FAILURES as error:
            raise _unusable(error) from error


@contextmanager
def _deadline(seconds: float) -> Iterator[None]:
    """Stop template code that runs longer, wherever it loops.

    Tracing is the one way to stop foreign Python code on this thread; it is on only within the
    template's own frames. A debugger's or coverage's tracing is put back afterwards.
    """
    end = monotonic() + seconds

    def trace(frame: FrameType, event: str, _argument: Any) -> Any:
        if frame.f_code.co_filename != NAME:
            return None
        if monotonic() > end:
            raise TimeoutError(f"it runs longer than {seconds:.0f} s")
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


def _unusable(error: BaseException) -> ModelError:
    reason = " ".join(str(error).split())[:LONGEST_REASON] or type(error).__name__
    return ModelError(f"the model's chat template fails: {reason}")

"""A model file's Jinja template, run as the untrusted code it is: sandboxed and bounded.

Owns compiling and rendering. Refuses to know roles, tokens and models.

Jinja's sandbox keeps a template from reaching outside. A quota keeps it from filling the memory: a
single expression can ask for gigabytes, so every operation that builds something is charged before
the work is done. A deadline stops it from running forever. Helpers are those of transformers'
`apply_chat_template`, for which templates are written; filters are the ones that templates use.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import wraps
from time import thread_time
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

TIMEOUT_S = 2.0
"""Seconds of processor time for one rendering; templates in use take about a millisecond."""
FILE_NAME = "<template>"
"""Jinja's file name for code that it compiles from a string."""
MAX_REASON = 160
MAX_OUTPUT = 1 << 22
"""Characters and items that one rendering may build in all."""
MAX_EXPONENT = 64
WIDE_FIELD = re.compile(r"\d{5}|\*")
"""In a format string: a field wider than any in use, or one whose width is an argument."""
PADDING_METHODS = frozenset({"center", "expandtabs", "ljust", "rjust", "zfill"})
FORMATS = frozenset({"format", "format_map"})
SELECTING_FILTERS = (
    "abs attr count d default dictsort first float groupby int items last length list map max min"
    " reject rejectattr reverse select selectattr sort unique"
)
"""Filters that look at a value or select from it: what it contains is not written out."""
STRING_FILTERS = "capitalize e escape indent join lower replace safe string title trim upper"
"""Filters that build a string from all their arguments."""

TEMPLATE_ERRORS = (
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
"""Everything that a template's code can raise."""


class RenderQuota:
    """What the current rendering may still build, in characters and items."""

    def __init__(self) -> None:
        self._left = MAX_OUTPUT

    def reset(self) -> None:
        """Begin another rendering."""
        self._left = MAX_OUTPUT

    def charge(self, amount: int) -> None:
        """Charge `amount` characters or items.

        Raises:
            SecurityError: fewer are left.
        """
        self._left -= amount
        if self._left < 0:
            raise SecurityError(f"it builds more than {MAX_OUTPUT} characters")

    def charge_value(self, value: Any) -> Any:
        """Charge for writing out `value` with all it contains; returns it."""
        waiting = [value]
        while waiting:
            item = waiting.pop()
            if isinstance(item, Mapping):
                waiting.extend([*item.keys(), *item.values()])
            elif isinstance(item, list | tuple | set | frozenset | range):
                waiting.extend(item)
            self.charge(1 + _size(item))
        return value

    def charge_items(self, value: Any) -> None:
        """Charge for iterating over `value` once."""
        self.charge(1 + _size(value))

    def charge_operator(self, operator: str, left: Any, right: Any) -> None:
        """Charge for `left operator right`."""
        if operator == "**":
            if not isinstance(right, int | float) or abs(right) > MAX_EXPONENT:
                raise SecurityError("it computes a high power")
            self.charge(_size(left) * MAX_EXPONENT)
        elif operator == "*":
            self.charge(_product_size(left, right))
        elif operator == "%" and isinstance(left, str):
            self.charge_format(left, right)
        else:
            self.charge(_size(left) + _size(right))

    def charge_format(self, template: str, *values: Any) -> None:
        """Charge for filling in a format string."""
        if WIDE_FIELD.search(template):
            raise SecurityError("it formats a very wide field")
        places = 1 + template.count("%") + template.count("{")
        before = self._left
        self.charge_value(values)
        self.charge(len(template) + places * (before - self._left))

    def charge_method(self, text: str, name: str, arguments: tuple[Any, ...]) -> None:
        """Charge for a call of `text`'s method `name`."""
        if name in FORMATS:
            self.charge_format(text, *arguments)
        elif name in PADDING_METHODS:
            width = max((item for item in arguments if isinstance(item, int)), default=8)
            self.charge((1 + text.count("\t")) * max(width, 8) + len(text))
        elif name == "replace":
            self.charge_replace(text, *arguments[:2])
        elif name == "join":
            self.charge_join(arguments[0], text)
        else:
            self.charge(4 * len(text))

    def charge_replace(self, text: Any, old: Any = "", new: Any = "", *_count: Any) -> None:
        """Charge for replacing every `old` by `new`."""
        for value in (text, old, new):
            self.charge_value(value)
        text = str(text)
        self.charge(len(text) + text.count(str(old)) * len(str(new)))

    def charge_join(self, items: Any, separator: Any = "") -> None:
        """Charge for joining `items`."""
        if isinstance(items, list | tuple | str | Mapping):
            self.charge(len(items) * (1 + len(str(separator))))
        self.charge_value(items)


def _size(value: Any) -> int:
    """Characters or items of a value without what they contain; bytes of an integer."""
    if isinstance(value, int):
        return value.bit_length() >> 3
    if isinstance(value, str | bytes | list | tuple | Mapping | set | frozenset | range):
        return len(value)
    return 0


def _product_size(left: Any, right: Any) -> int:
    """Size of `left * right`."""
    for text, count in ((left, right), (right, left)):
        if isinstance(text, str | bytes | list | tuple) and isinstance(count, int):
            return len(text) * max(count, 0)
    return _size(left) + _size(right)


class Sandbox(ImmutableSandboxedEnvironment):
    """Jinja's sandbox with immutable values, in which `quota` bounds what is built."""

    intercepted_binops = frozenset({"+", "-", "*", "**", "%"})

    def __init__(self) -> None:
        self.quota = RenderQuota()
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            # Constant folding would evaluate a template's expressions before anything is bounded.
            optimized=False,
            finalize=self.quota.charge_value,
            extensions=[GenerationTag, loopcontrols],
        )
        filters = self.filters
        self.filters = {
            name: self._charging(name, filters[name])
            for name in f"{SELECTING_FILTERS} {STRING_FILTERS}".split()
        }
        self.filters["tojson"] = self._to_json
        del self.globals["lipsum"]
        self.globals.update(raise_exception=_raise_exception, strftime_now=_strftime_now)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        """Charge for methods of strings, then call as the sandbox does."""
        owner = getattr(getattr(__obj, "__wrapped__", __obj), "__self__", None)
        if isinstance(owner, str):
            args = tuple(_as_list(argument) for argument in args)
            values = (*args, *kwargs.values())
            __self.quota.charge_method(owner, __obj.__name__, values)
        return super().call(__context, __obj, *args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Charge for an operator, then apply it."""
        self.quota.charge_operator(operator, left, right)
        return super().call_binop(context, operator, left, right)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree: nodes.Template = _AddForConcat().visit(super()._parse(source, name, filename))
        return tree

    def _charging(self, name: str, filter_: Callable[..., Any]) -> Callable[..., Any]:
        """`filter_`, which charges for its input, and for more where it builds more."""
        skipped = 1 if hasattr(filter_, "jinja_pass_arg") else 0
        selects, builds_text = name in SELECTING_FILTERS.split(), name in STRING_FILTERS.split()

        @wraps(filter_)
        def charged(*args: Any, **kwargs: Any) -> Any:
            if builds_text:
                args = (*args[:skipped], *map(_as_list, args[skipped:]))
            values = (*args[skipped:], *kwargs.values())
            if name == "replace":
                self.quota.charge_replace(*values)
            elif name == "join":
                self.quota.charge_join(*values[:2])
            elif name == "indent":
                self.quota.charge_join(str(values[0]).split("\n"), " " * _indent_width(values[1:]))
            elif selects:
                self.quota.charge_items(values[0])
            else:
                self.quota.charge_value(values)
            return filter_(*args, **kwargs)

        return charged

    def _to_json(
        self,
        value: Any,
        ensure_ascii: bool = False,
        indent: int | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        """Unlike Jinja's own, it escapes nothing for HTML."""
        self.quota.charge_value(value)
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
        self.quota.charge(sum(map(len, texts)))
        return "".join(texts)


class GenerationTag(Extension):
    """`{% generation %}` marks the assistant's text for training; here it has no effect."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """The block's body alone."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _AddForConcat(NodeTransformer):
    """Turns a ~ b into a|string + b|string, whose operator can be intercepted."""

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


def _as_list(value: Any) -> Any:
    """An iterator as a list, so that its items can be charged for; other values as they are."""
    return list(value) if isinstance(value, Iterator) else value


def _indent_width(arguments: tuple[Any, ...]) -> int:
    """Columns that `indent` indents by: its first argument, a number or the text itself."""
    width = arguments[0] if arguments else 4
    return len(width) if isinstance(width, str) else min(int(width), 1 << 20)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(format: str) -> str:
    return datetime.now().strftime(format[:100])


class JinjaTemplate:
    """A compiled template; `variables` are defined in every rendering.

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
            ModelError: the template refuses the conversation, fails, or exceeds its quota or time.
        """
        self._sandbox.quota.reset()
        try:
            with _deadline(TIMEOUT_S):
                return self._template.render(
                    messages=messages,
                    add_generation_prompt=add_generation_prompt,
                    tools=None,
                    documents=None,
                    **self._variables,
                )
        except TEMPLATE_ERRORS as error:
            raise _unusable(error) from error


@contextmanager
def _deadline(seconds: float) -> Iterator[None]:
    """Stop template code that runs longer, wherever it loops.

    Tracing is the only way to interrupt Python code on this thread; it is active in the template's
    own frames only. A debugger's or coverage's trace function is restored afterwards.
    """
    end = thread_time() + seconds

    def trace(frame: FrameType, event: str, _argument: Any) -> Any:
        if frame.f_code.co_filename != FILE_NAME:
            return None
        if thread_time() > end:
            raise TimeoutError(f"it runs longer than {seconds:.0f} s")
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


def _unusable(error: BaseException) -> ModelError:
    reason = " ".join(str(error).split())[:MAX_REASON] or type(error).__name__
    return ModelError(f"the model's chat template fails: {reason}")

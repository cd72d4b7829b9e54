"""A model file's Jinja template, run as the foreign code it is: in a sandbox and within a time.

Owns compiling and rendering. Refuses to know roles, tokens and models.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import monotonic
from types import FrameType
from typing import Any

from jinja2 import TemplateError

from datastores.errors import ModelError
from engines.llama.sandbox import Sandbox

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

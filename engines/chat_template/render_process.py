"""Renders a model file's chat template in a process of its own.

The process is started in the background or on demand, and restarted after a template killed it. It
runs `sandbox`, the only module that imports Jinja.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from threading import Lock, Thread
from typing import Any
from weakref import finalize

from datastores.errors import ModelError
from engines.chat_template.prompt_builder import Tool
from engines.child_process import ChildProcess

TIMEOUT_S = 5.0
"""Limit for the processor time of a rendering or compilation, which usually takes milliseconds."""

NONE, UNDEFINED, EMPTY = "none", "undefined", "empty"
"""Values of variables other than the messages: `tools` and `documents` None, as in transformers; no
variable defined; all that the template mentions an empty text."""
TEXT, REFUSED, FAILED = "text", "refused", "failed"
"""Keys of the process's answers; the value is a text or a reason."""
SECONDS = "seconds"
"""Key of an answer's processor time."""


class TemplateRefusalError(ModelError):
    """The template raises an exception for this conversation; it may render others."""


class RenderProcess:
    """Renders one template. Thread-safe. The process ends with the last reference.

    Attributes:
        seconds: processor time of its renderings so far.
    """

    def __init__(self, source: str, constants: Mapping[str, str]) -> None:
        """`constants` are defined in every rendering."""
        self.seconds = 0.0
        self._compiled = json.dumps([source, constants]).encode()
        self._child: ChildProcess | None = None
        self._problem = ""
        self._lock = Lock()

    def start(self) -> None:
        """Start the process in the background, so that the first rendering need not wait."""
        Thread(target=self._warm_up, name="chat template", daemon=True).start()

    def render(
        self, messages: Sequence[Mapping[str, object]], others: str, tools: Sequence[Tool] = ()
    ) -> str:
        """The conversation as text, up to the beginning of the answer.

        Args:
            others: the value of other variables: `NONE`, `UNDEFINED` or `EMPTY`.
            tools: the value of `tools`, if there are any.

        Raises:
            TemplateRefusalError: the template refuses the conversation.
            ModelError: the template is invalid, or exceeds its time or memory.
        """
        with self._lock:
            child = self._start()
            answer = self._ask(child, others, json.dumps([messages, tools]).encode())
            self.seconds += answer[SECONDS]
        if REFUSED in answer:
            raise TemplateRefusalError(_failing(answer[REFUSED]))
        if FAILED in answer:
            raise ModelError(_failing(answer[FAILED]))
        return str(answer[TEXT])

    def _warm_up(self) -> None:
        with self._lock, suppress(ModelError):  # raised again when the template is used
            self._start()

    def _start(self) -> ChildProcess:
        """The process; started and given the template unless it is running."""
        if self._problem:
            raise ModelError(self._problem)
        if self._child is None or not self._child.is_running():
            self._child = _new_child()
            finalize(self, self._child.close)
            try:
                answer = self._ask(self._child, "", self._compiled)
                self._problem = _failing(answer[FAILED]) if FAILED in answer else ""
            except ModelError as error:
                self._problem = str(error)
            if self._problem:
                raise ModelError(self._problem)
        return self._child

    def _ask(self, child: ChildProcess, message: str, content: bytes) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = child.request(message, content)
        except TimeoutError:
            raise ModelError(_failing(f"it takes longer than {TIMEOUT_S:g} s")) from None
        except EOFError:
            raise ModelError(_failing("it ended its process, or took too much memory")) from None
        return answer


def _new_child() -> ChildProcess:
    try:
        return ChildProcess("engines.chat_template.sandbox", TIMEOUT_S, requests=True)
    except OSError as error:
        raise ModelError(f"no process for the chat template: {error.strerror}") from error


def _failing(reason: str) -> str:
    return f"the model's chat template fails: {reason.rstrip('.')}"

"""A model file's chat template, rendered in a process of its own that may die.

Owns that process: it is started in the background or when it is needed, and again after a template
killed it. What runs in it is `sandbox`, which alone imports Jinja.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from threading import Lock, Thread
from typing import Any
from weakref import finalize

from datastores.errors import ModelError
from engines.child_process import ChildProcess

TIMEOUT_S = 5.0
"""Processor time of one rendering, or of compiling. Templates in use take a few milliseconds."""

NONE, UNDEFINED, EMPTY = "none", "undefined", "empty"
"""What variables beside the messages are: `tools` and `documents` None, as with transformers; none
of them defined; all that the template mentions an empty text."""
TEXT, REFUSED, FAILED = "text", "refused", "failed"
"""Keys of the process's answers, with a text or a reason."""
SECONDS = "seconds"
"""Key of the processor time that an answer took."""


class TemplateRefusalError(ModelError):
    """The template raises an exception over this conversation; it may render another."""


class RenderProcess:
    """Renders one template, for any thread. Ends with the last reference to it.

    Attributes:
        seconds: of processor time that its renderings took so far.
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

    def render(self, messages: Sequence[Mapping[str, object]], others: str) -> str:
        """The conversation as text, up to where the assistant's answer begins.

        Args:
            others: what other variables are: `NONE`, `UNDEFINED` or `EMPTY`.

        Raises:
            TemplateRefusalError: the template refuses the conversation.
            ModelError: it is invalid, or exceeds its time or memory.
        """
        with self._lock:
            child = self._start()
            answer = self._ask(child, others, json.dumps(messages).encode())
            self.seconds += answer[SECONDS]
        if REFUSED in answer:
            raise TemplateRefusalError(_failing(answer[REFUSED]))
        if FAILED in answer:
            raise ModelError(_failing(answer[FAILED]))
        return str(answer[TEXT])

    def _warm_up(self) -> None:
        with self._lock, suppress(ModelError):  # it is raised where the template is used
            self._start()

    def _start(self) -> ChildProcess:
        """The process, started and given the template if it is not running."""
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

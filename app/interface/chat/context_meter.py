"""The context meter at the prompt: tokens of the chat and of the question being written.

Tokens are counted in a thread, `DELAY_S` after the last change; each attached file once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.timer import Timer

from app.conversation.context_use import ContextUse, question_tokens, thread_tokens
from app.interface.chat.attachment_bar import Chip
from app.interface.chat.prompt import Prompt
from app.interface.slash_commands import parse
from app.interface.workers import start_worker
from datastores.chats.records import StoredMessage
from datastores.errors import SpecchatError

if TYPE_CHECKING:
    from app.engine.engine import Engine

DELAY_S = 0.25
"""Seconds without a change before tokens are counted."""


class ContextMeter:
    """Counts for one prompt, and shows the result in its upper border."""

    def __init__(self) -> None:
        self._timer: Timer | None = None
        self._counted: tuple[str, int | None, str, int] | None = None
        self._tokenizer = ""

    def schedule(
        self, prompt: Prompt, engine: Engine | None, system: str, thread: Sequence[StoredMessage]
    ) -> None:
        """Count `thread` and the prompt after a delay; without an engine show nothing."""
        if self._timer is not None:
            self._timer.stop()
        if engine is None:
            show(prompt, None)
            return

        def start() -> None:
            given = (prompt, engine, system, thread)
            start_worker(prompt, self._measure, *given, group="context meter", exclusive=True)

        self._timer = prompt.set_timer(DELAY_S, start)

    async def _measure(
        self, prompt: Prompt, engine: Engine, system: str, thread: Sequence[StoredMessage]
    ) -> None:
        chips = [chip for chip in prompt.attachments.chips if chip.attachment is not None]
        parsed = parse(prompt.text)
        text = parsed if isinstance(parsed, str) else ""  # a command is not sent
        try:
            use = await asyncio.to_thread(self._count, engine, system, thread, text, chips)
        except SpecchatError:
            use = None  # sending names what is wrong with the text
        prompt.attachments.show_tokens()
        show(prompt, use)

    def _count(
        self,
        engine: Engine,
        system: str,
        thread: Sequence[StoredMessage],
        text: str,
        chips: Sequence[Chip],
    ) -> ContextUse:
        vocabulary = engine.vocabulary
        last = thread[-1].id if thread else None
        if self._counted is None or self._counted[:3] != (vocabulary.fingerprint, last, system):
            tokens = thread_tokens(vocabulary, system, thread)
            self._counted = (vocabulary.fingerprint, last, system, tokens)
        for chip in chips:
            if chip.attachment is not None and (
                chip.tokens is None or self._tokenizer != vocabulary.fingerprint
            ):
                chip.tokens = len(vocabulary.encode(chip.attachment.text))
        self._tokenizer = vocabulary.fingerprint
        attached = sum(chip.tokens or 0 for chip in chips)
        tokens = self._counted[3] + question_tokens(engine, text) + attached
        return ContextUse(tokens, engine.target.context_length)


def show(prompt: Prompt, use: ContextUse | None) -> None:
    """Show `use` in the border of the prompt; nothing for None or an empty chat."""
    prompt.border_title = _described(use) if use is not None else ""
    prompt.set_class(use is not None and use.overflows, "-overflows")


def _described(use: ContextUse) -> str:
    """`812 of 2,048 tokens`, or `3,000 tokens, 2,048 fit`; empty for none."""
    if use.tokens > use.limit:
        return f"{use.tokens:,} tokens, {use.limit:,} fit"
    return f"{use.tokens:,} of {use.limit:,} tokens" if use.tokens else ""

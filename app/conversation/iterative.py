"""Answering with documents that change while the answer is written: iterative retrieval.

Owns what such an answer's prompt and queries look like, and that its text and figures come as those
of any other answer. Refuses to know how documents are chosen (`engines.ralm`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from app.conversation.documents import with_notes
from app.conversation.generation import fit
from app.engine.engine import Engine
from datastores.passages.protocol import Passage
from engines.chat_template.prompt_builder import Message
from engines.decode import StopCriteria
from engines.ralm.stride_writer import RalmRequest
from engines.sampler import Sampling, make_sampler

QUERY_TOKENS = 32
"""Last tokens of question and answer that are retrieved for (RaLMSpec, section 5.1)."""
STRIDE_TOKENS = 4
"""k: tokens written before the next retrieval (the same)."""


def make_request(
    engine: Engine, messages: Sequence[Message], sampling: Sampling, stop: StopCriteria
) -> RalmRequest:
    """The last of `messages`, to be answered with one passage before it at a time."""
    return RalmRequest(
        prompt=_prompts(engine, messages, stop.limit),
        query=_queries(engine, messages[-1].content),
        draw=make_sampler(sampling),
        stop=stop,
        temperature=sampling.temperature,
        stride=STRIDE_TOKENS,
    )


def _prompts(
    engine: Engine, messages: Sequence[Message], limit: int
) -> Callable[[Passage | None], Sequence[int]]:
    """A document → the prompt with it; each is rendered once."""
    rendered: dict[int | None, list[int]] = {}

    def prompt(document: Passage | None) -> Sequence[int]:
        number = document.id if document is not None else None
        if number not in rendered:
            passages = () if document is None else (document,)
            rendered[number], _ = fit(engine, with_notes(messages, passages), limit)
        return rendered[number]

    return prompt


def _queries(engine: Engine, question: str) -> Callable[[Sequence[int]], str]:
    """An answer so far → the text of the last tokens of question and answer."""
    asked = engine.vocabulary.encode(question)

    def query(answer: Sequence[int]) -> str:
        last = [*asked, *answer][-QUERY_TOKENS:]
        return b"".join(map(engine.vocabulary.piece, last)).decode("utf-8", "replace")

    return query

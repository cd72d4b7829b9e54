"""Answers to questions that the embedded draft model knows already, rehearsed against forgetting.

Learning from a person's chats alone makes a draft model worse at everything else. So the target
answers questions that come with specchat once on this machine, and the draft model learns from
these answers too; a part of them measures forgetting (`engines.distillation`). Their replay buffer
is a cache that holds nothing personal.

Other models have no such questions; older answers take their place.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from importlib.resources import files
from pathlib import Path

from app.models.discovery import embedded, embedded_draft_model
from datastores.replay_buffer.record import ReplayRecord
from datastores.replay_buffer.store import ReplayBuffer
from engines.chat_template.prompt_builder import Message
from engines.distillation.forced import answer_greedily
from engines.fingerprint import fingerprint
from engines.llama.model import load
from engines.llama.vocabulary import load_vocabulary

QUESTIONS_FILE = "known-questions.txt"
CONTEXT_LENGTH = 1024
MAX_ANSWER = 256
"""Tokens of the longest answer."""
OWNER = "known:questions"


def known_questions(model: Path, draft_model: Path) -> list[str]:
    """Questions whose answers by `model` its original `draft_model` drafts well; only the embedded
    pair has any."""
    if (model, draft_model) != (embedded(), embedded_draft_model()):
        return []
    text = (files("assets") / QUESTIONS_FILE).read_text("utf-8")
    return [line for line in text.splitlines() if line]


def answer_known(model: Path, path: Path, questions: list[str]) -> Generator[int]:
    """Answer those of `questions` that have no answer in the buffer at `path` yet.

    Yields the number of answers. If it is killed, the next call continues from there.

    Raises:
        ModelError: the target cannot be loaded.
        StoreError: the buffer cannot be written.
    """
    if not questions:
        return
    with closing(_open(model, path, load_vocabulary(model).size)) as buffer:
        left = questions[buffer.size :]
        if not left:
            return
        loaded = load(model, gpu_layers=0, threads=1, context_length=CONTEXT_LENGTH)
        for question in left:
            prompt = loaded.render([Message("user", question)])
            given = answer_greedily(loaded.target, prompt, loaded.vocabulary.stops, MAX_ANSWER)
            buffer.add(OWNER, given.record(0, question, question))
            yield buffer.size


def known_records(model: Path, path: Path, vocabulary: int) -> list[ReplayRecord]:
    """The records that `answer_known` stored at `path`, if any.

    Raises:
        StoreError: the buffer cannot be read.
    """
    if not path.exists():
        return []
    with closing(_open(model, path, vocabulary)) as buffer:
        return list(buffer.records())


def _open(model: Path, path: Path, vocabulary: int) -> ReplayBuffer:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return ReplayBuffer.open(path, fingerprint(model), vocabulary)

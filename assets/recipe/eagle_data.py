"""What an EAGLE-3 drafter learns from: a target's answers, and its states as it reads them.

Both steps go on where they ended, so that they can be run in pieces.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

import numpy as np
from numpy.typing import NDArray

from engines.budget.acceptance_model import AcceptanceModel
from engines.budget.cost_model import CostModel
from engines.budget.fixed import FixedBudget
from engines.chat_template.prompt_builder import Message
from engines.decode import StopCriteria, decode
from engines.llama import native
from engines.llama.batch import Batch, evaluate
from engines.llama.context import LlamaContext, Weights
from engines.llama.model import load
from engines.llama.target_states import LayerInputs, view
from engines.sampler import Sampling, make_sampler

ANSWERS, STATES = "answers.jsonl", "states"
MAX_PROMPT, MAX_ANSWER = 600, 224
CONTEXT, ROWS = 2048, 32


@dataclass(frozen=True)
class ReadChat:
    """A chat as the target read it.

    Attributes:
        tokens: int64 [n].
        prompt: how many of them precede the answer.
        inputs: float16 [n, 3 · width], inputs of the layers that the drafter reads.
        hidden: float16 [n, width], last hidden states, from which the target's logits follow.
    """

    tokens: NDArray[np.int64]
    prompt: int
    inputs: NDArray[np.float16]
    hidden: NDArray[np.float16]


def read_layers(layers: int) -> list[int]:
    """The layers whose inputs are read in a target of `layers`; llama.cpp's conversion has these
    where the original does not say."""
    return [2, layers // 2, layers - 3]


def draw_answers(target: Path, questions: Path, work: Path, seconds: float) -> None:
    """Append greedy answers to the first message of each chat in `questions`."""
    path, began = work / ANSWERS, monotonic()
    done = len(path.read_text().splitlines()) if path.exists() else 0
    chats = [json.loads(line) for line in questions.read_text().splitlines()]
    model = load(target, context_length=CONTEXT)
    draw, stop = make_sampler(Sampling(0.0)), StopCriteria(model.vocabulary.stops, MAX_ANSWER)
    with path.open("a") as file:
        for chat in chats[done:]:
            if monotonic() - began > seconds:
                return
            prompt = model.render([Message("user", chat["messages"][0]["content"])])
            answer: list[int] = []
            if len(prompt) <= MAX_PROMPT:
                list(model.target.prefill(prompt))
                budget = FixedBudget(0, CostModel(), AcceptanceModel())
                steps = decode(model.target, [], budget, draw, stop)
                answer = [token for step in steps for token in step.tokens]
            file.write(json.dumps({"prompt": list(prompt), "answer": answer}) + "\n")
            file.flush()


class StateReader:
    """Reads texts with a model, for the states that `ReadChat` keeps."""

    def __init__(self, path: Path) -> None:
        self._path, self._weights = path, Weights(path)
        self._context = LlamaContext(self._weights, CONTEXT, rows=ROWS, threads=1)
        layers = read_layers(self._weights.layers)
        self._given = LayerInputs(self._context.handle, layers, self._weights.width)
        self._batch = Batch(ROWS)

    def read(self, tokens: list[int]) -> tuple[NDArray[np.float16], NDArray[np.float16]]:
        """`inputs` and `hidden` of a `ReadChat`."""
        handle, batch = self._context.handle, self._batch
        native.seq_rm(self._context.memory, 0, 0, native.TO_END)
        inputs, hidden = [], []
        for start in range(0, len(tokens), ROWS):
            part = tokens[start : start + ROWS]
            count = batch.struct.n_tokens = len(part)
            batch.token[:count], batch.position[:count] = part, range(start, start + count)
            evaluate(handle, batch, self._path)
            inputs.append(self._given.rows(range(count)).astype(np.float16))
            rows = view(native.get_embeddings(handle), count, self._weights.width)
            hidden.append(rows.astype(np.float16))
        return np.concatenate(inputs), np.concatenate(hidden)


def read_states(target: Path, work: Path, seconds: float) -> None:
    """Write the target's states for each chat of `draw_answers`."""
    began, folder, reader = monotonic(), work / STATES, StateReader(target)
    folder.mkdir(exist_ok=True)
    for number, line in enumerate((work / ANSWERS).read_text().splitlines()):
        path, chat = folder / f"{number:05d}.npz", json.loads(line)
        if path.exists() or not chat["answer"]:
            continue
        if monotonic() - began > seconds:
            return
        tokens, prompt = [*chat["prompt"], *chat["answer"]], len(chat["prompt"])
        inputs, hidden = reader.read(tokens)
        np.savez(path, tokens=np.array(tokens), prompt=prompt, inputs=inputs, hidden=hidden)


def load_chats(work: Path) -> list[ReadChat]:
    """What `read_states` wrote, in the order of the questions."""
    files = [np.load(path) for path in sorted((work / STATES).glob("*.npz"))]
    return [
        ReadChat(one["tokens"], int(one["prompt"]), one["inputs"], one["hidden"]) for one in files
    ]

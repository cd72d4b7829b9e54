"""What an EAGLE-3 drafter learns from: a target's own answers, and its states as it wrote them.

Answers are drawn in batches: a pass of a small model over 64 rows takes a CPU core no longer than
ten over one. The states are those of the passes that drew them, so that nothing is read twice.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoModelForCausalLM, GgufConfig

from engines.chat_template.prompt_builder import Message
from engines.llama.model import load

ANSWERS = "answers"
MAX_PROMPT, MAX_ANSWER = 300, 192
BATCH = 64
CONTEXT = 2048


@dataclass(frozen=True)
class ReadChat:
    """A chat as the target read it; of the last token it has no states.

    Attributes:
        tokens: int64 [n].
        prompt: how many of them precede the answer.
        inputs: float16 [n - 1, 3 · width], inputs of the layers that the drafter reads.
        hidden: float16 [n - 1, width], last hidden states, from which the target's logits follow.
    """

    tokens: NDArray[np.int64]
    prompt: int
    inputs: NDArray[np.float16]
    hidden: NDArray[np.float16]


def read_layers(layers: int) -> list[int]:
    """The layers whose inputs are read in a target of `layers`; llama.cpp's conversion has these
    where the original does not say."""
    return [2, layers // 2, layers - 3]


def draw_answers(
    target: Path, questions: Path, work: Path, seconds: float, temperature: float
) -> None:
    """Draw answers to the first message of each chat in `questions`, and write them with states.

    A batch that is written already is not drawn again.
    """
    began, folder = monotonic(), work / ANSWERS
    folder.mkdir(exist_ok=True)
    model = load(target, context_length=CONTEXT)
    chats = [json.loads(line)["messages"] for line in questions.read_text().splitlines()]
    prompts = [model.render([Message("user", chat[0]["content"])]) for chat in chats]
    prompts = sorted((one for one in prompts if len(one) <= MAX_PROMPT), key=len)
    writer = BatchAnswerer(target, sorted(model.vocabulary.stops), temperature)
    for start in range(0, len(prompts), BATCH):
        path = folder / f"{questions.stem}-{temperature}-{start:06d}.npz"
        if path.exists():
            continue
        if monotonic() - began > seconds:
            return
        torch.manual_seed(start)
        save_chats(path, writer.answer(prompts[start : start + BATCH]))


class BatchAnswerer:
    """Draws answers from a target in batches.

    Args:
        stops: tokens that end an answer.
    """

    def __init__(self, target: Path, stops: list[int], temperature: float) -> None:
        self._model: Any = AutoModelForCausalLM.from_pretrained(
            target.parent,
            gguf_file=target.name,
            dtype=torch.bfloat16,
            quantization_config=GgufConfig(dequantize=True),
            # torch's fused kernels for a CPU share no key among heads, and take four times as long.
            attn_implementation="eager",
        )
        sampling = {"do_sample": True, "temperature": temperature, "top_k": 0}
        self._stops, self._sampling = stops, sampling if temperature else {"do_sample": False}

    @torch.inference_mode()
    def answer(self, prompts: Sequence[Sequence[int]]) -> list[ReadChat]:
        """Answers to `prompts`, with states."""
        longest = max(map(len, prompts))
        ids, mask = (torch.zeros(len(prompts), longest, dtype=torch.long) for _ in range(2))
        for row, prompt in enumerate(prompts):
            ids[row, longest - len(prompt) :] = torch.tensor(prompt)
            mask[row, longest - len(prompt) :] = 1
        drawn = self._model.generate(
            ids,
            attention_mask=mask,
            max_new_tokens=MAX_ANSWER,
            eos_token_id=self._stops,
            pad_token_id=self._stops[0],
            output_hidden_states=True,
            return_dict_in_generate=True,
            **self._sampling,
        )
        read = [*read_layers(self._model.config.num_hidden_layers), -1]
        inputs = [torch.cat([states[layer] for states in drawn.hidden_states], 1) for layer in read]
        stops, chats = torch.tensor(self._stops), []
        for row, prompt in enumerate(prompts):
            first, tokens = longest - len(prompt), drawn.sequences[row]
            ends = torch.isin(tokens[longest:], stops).nonzero()
            end = longest + int(ends[0]) + 1 if len(ends) else len(tokens)
            states = [part[row, first : end - 1].half().numpy() for part in inputs]
            joined = np.concatenate(states[:-1], axis=1)
            chats.append(ReadChat(tokens[first:end].numpy(), len(prompt), joined, states[-1]))
        return chats


def save_chats(path: Path, chats: Sequence[ReadChat]) -> None:
    """Write a batch, which `load_chats` reads."""
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        np.savez(
            file,
            lengths=[len(chat.tokens) for chat in chats],
            prompts=[chat.prompt for chat in chats],
            tokens=np.concatenate([chat.tokens for chat in chats]),
            inputs=np.concatenate([chat.inputs for chat in chats]),
            hidden=np.concatenate([chat.hidden for chat in chats]),
        )
    partial.rename(path)


def load_chats(work: Path) -> Iterator[ReadChat]:
    """What `draw_answers` wrote, without answers of less than two tokens."""
    for path in sorted((work / ANSWERS).glob("*.npz")):
        with np.load(path) as file:
            lengths, prompts = file["lengths"].tolist(), file["prompts"].tolist()
            tokens, inputs, hidden = file["tokens"], file["inputs"], file["hidden"]
        end = 0
        for number, (length, prompt) in enumerate(zip(lengths, prompts, strict=True)):
            start, end = end, end + length
            rows = slice(start - number, end - number - 1)
            if length - prompt > 1:
                yield ReadChat(tokens[start:end], prompt, inputs[rows], hidden[rows])

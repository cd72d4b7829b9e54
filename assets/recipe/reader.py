"""Answers chats greedily with a model file, and parses the answers.

The GGUF files themselves are loaded, through transformers, so the shipped weights are measured.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor

from assets.recipe.tokens import END_OF_TEXT, IM_END, render_prompt
from assets.recipe.training import pick_device
from assets.recipe.turns import Chat
from datastores.errors import ModelError

_READER_BATCH = 48

UNFINISHED = "<unfinished>"

_FENCE = re.compile(r"```sh\n(.*?)\n```", re.DOTALL)
_NAME = re.compile(r"Use `([^`]+)`")


def command_of(answer: str) -> str:
    """The first fenced command of an answer; empty if there is none."""
    found = _FENCE.search(answer)
    return found[1] if found else ""


def name_of(answer: str) -> str:
    """The command name that an answer gives; empty if there is none."""
    found = _NAME.search(answer)
    return found[1] if found else ""


def well_formed(answer: str) -> bool:
    """Whether an answer is finished, closes its fences, and contains no chat markup."""
    fences = sum(line.startswith("```") for line in answer.splitlines())
    return (
        bool(answer.strip())
        and fences % 2 == 0
        and not re.search(rf"{UNFINISHED}|<\|im_|<\|endoftext", answer)
    )


def fraction(marks: Iterable[bool]) -> float:
    """The fraction of ``marks`` that are true; 0 if there are none."""
    values = list(marks)
    return sum(values) / max(len(values), 1)


class AnswerReader:
    """One model file and its tokenizer."""

    def __init__(self, path: Path, tokenizer: Tokenizer) -> None:
        """Load ``path`` in float32.

        Raises:
            ModelError: there is no such file.
        """
        from transformers import AutoModelForCausalLM

        if not path.exists():
            raise ModelError(f"{path}: no such model file; run the export step first")
        self.tokenizer = tokenizer
        self.model: Any = AutoModelForCausalLM.from_pretrained(
            path.parent, gguf_file=path.name, dtype=torch.float32
        )
        self.device = pick_device()[0]
        self.model.eval().to(self.device)

    def answers(self, chats: Sequence[Chat], most: int = 256) -> list[str]:
        """The greedy answer to each chat, which must end in a question.

        An answer that is not finished within ``most`` tokens ends in ``UNFINISHED``.
        """
        prompts = [self.tokenizer.encode(render_prompt(chat)).ids for chat in chats]
        order = sorted(range(len(prompts)), key=lambda index: len(prompts[index]))
        out = [""] * len(prompts)
        for first in range(0, len(order), _READER_BATCH):
            chosen = order[first : first + _READER_BATCH]
            texts = self._batch([prompts[index] for index in chosen], most)
            for index, text in zip(chosen, texts, strict=True):
                out[index] = text
        return out

    def _batch(self, prompts: list[list[int]], most: int) -> list[str]:
        longest = max(map(len, prompts))
        ids = torch.tensor([[END_OF_TEXT] * (longest - len(p)) + p for p in prompts])
        mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts])
        written = self.model.generate(
            input_ids=ids.to(self.device),
            attention_mask=mask.to(self.device),
            max_new_tokens=most,
            do_sample=False,
            eos_token_id=IM_END,
            pad_token_id=END_OF_TEXT,
        )
        return [self._text(row) for row in written[:, longest:].tolist()]

    def _text(self, row: list[int]) -> str:
        if IM_END not in row:
            return self.tokenizer.decode(row) + UNFINISHED
        return self.tokenizer.decode(row[: row.index(IM_END)], skip_special_tokens=False)

    def probabilities(self, ids: Sequence[int]) -> Tensor:
        """Probabilities of the token after each of ``ids``: (len(ids), vocabulary)."""
        with torch.no_grad():
            logits: Tensor = self.model(torch.tensor([list(ids)], device=self.device)).logits[0]
        return logits.softmax(dim=-1)

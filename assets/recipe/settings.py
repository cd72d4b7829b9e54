"""The sizes, rates and token counts of a run.

``wide`` trains a pair of the shipped shapes on a GPU, ``briefly`` trains it further on a CPU,
``full`` trains a narrower pair on a CPU, and ``tiny`` takes a minute.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from engines.distillation.model import LlamaShape

HEAD_SIZE = 64


@dataclass(frozen=True)
class Shape:
    """A Llama model: head size 64, tied embeddings, as many key heads as query heads.

    In training, the first head of layer ``chooser`` is guided to attend to the requested task, and
    the first heads of layers ``copiers`` to the token to copy next. The model file does not record
    which heads were guided.
    """

    layers: int
    width: int
    hidden: int
    vocabulary: int
    chooser: int = 0
    copiers: tuple[int, ...] = ()
    context: int = 2048
    rope_base: float = 10000.0
    epsilon: float = 1e-5

    @property
    def heads(self) -> int:
        """Attention heads."""
        return self.width // HEAD_SIZE

    @property
    def llama(self) -> LlamaShape:
        """The shape in the form that the model takes."""
        return LlamaShape(
            layers=self.layers,
            width=self.width,
            hidden=self.hidden,
            vocabulary=self.vocabulary,
            heads=self.heads,
            kv_heads=self.heads,
            head_size=HEAD_SIZE,
            context=self.context,
            rope_base=self.rope_base,
            epsilon=self.epsilon,
        )


@dataclass(frozen=True)
class Schedule:
    """How a model is trained: total tokens, chats per step, and learning rates.

    A chat has some 200 tokens. ``matrix_rate`` is Muon's, ``other_rate`` AdamW's; both are constant
    until the fraction ``decay_from`` of the tokens is seen, and then decay to zero. ``dropout`` is
    the dropout rate of what each layer adds.
    """

    tokens: int
    step_chats: int
    matrix_rate: float = 0.02
    other_rate: float = 3e-3
    decay_from: float = 0.4
    warm_steps: int = 40
    dropout: float = 0.0


@dataclass(frozen=True)
class Setting:
    """One run from pages to GGUF files, and the number of questions of each kind in evaluation."""

    longest: int
    target: Shape
    draft_model: Shape
    question_model: Shape
    target_schedule: Schedule
    draft_model_schedule: Schedule
    question_schedule: Schedule
    questions: int
    judged: int = 1_200
    tokenizer_chats: int = 30_000

    @property
    def shapes(self) -> Mapping[str, Shape]:
        """The shapes by role."""
        return {
            "target": self.target,
            "draft-model": self.draft_model,
            "question-model": self.question_model,
        }


FULL = Setting(
    longest=1024,
    target=Shape(layers=8, width=256, hidden=640, vocabulary=4096, chooser=4, copiers=(5, 7)),
    draft_model=Shape(layers=2, width=128, hidden=64, vocabulary=4096),
    question_model=Shape(layers=4, width=256, hidden=640, vocabulary=4096),
    target_schedule=Schedule(tokens=42_000_000, step_chats=40),
    draft_model_schedule=Schedule(tokens=20_000_000, step_chats=40),
    question_schedule=Schedule(
        tokens=18_000_000, step_chats=256, matrix_rate=0.012, other_rate=1.7e-3, decay_from=0.3
    ),
    questions=200,
)
WIDE = replace(
    FULL,
    target=Shape(
        layers=8,
        width=384,
        hidden=1024,
        vocabulary=4096,
        chooser=4,
        copiers=(5, 7),
        rope_base=500_000.0,
    ),
    draft_model=Shape(layers=2, width=192, hidden=256, vocabulary=4096),
    target_schedule=Schedule(tokens=212_000_000, step_chats=768, decay_from=0.45, dropout=0.1),
    draft_model_schedule=Schedule(tokens=62_000_000, step_chats=384),
)
"""Files of 31 MB and 3 MB.

The rates are those of ``full``: Muon's transfer across widths (Large et al., "Scalable Optimization
in the Modular Norm", 2024), and larger steps, which are less noisy, allow higher rates but need
none. At a rotary base of 10,000 only 11 of a head's 32 pairs turn by less than 1.5 over 500 tokens,
so that they can match a question with a task by its words; at 500,000 it is 17. A single head over
bags of tokens learns that sooner (.28 of the tasks of new phrases found after 8,700, not .22), and
ends as well. Dropout is used because each hand-written phrase is seen some forty times.
"""
BRIEFLY = replace(
    WIDE,
    question_schedule=replace(
        FULL.question_schedule, tokens=6_000_000, matrix_rate=0.006, other_rate=0.9e-3
    ),
    target_schedule=Schedule(
        tokens=2_000_000,
        step_chats=72,
        matrix_rate=0.004,
        other_rate=0.6e-3,
        decay_from=0.2,
        warm_steps=15,
        dropout=0.1,
    ),
    draft_model_schedule=Schedule(
        tokens=4_000_000, step_chats=40, matrix_rate=0.006, other_rate=1e-3, decay_from=0.2
    ),
)
TINY = Setting(
    longest=384,
    target=Shape(layers=2, width=64, hidden=128, vocabulary=512, chooser=0, copiers=(1,)),
    draft_model=Shape(layers=1, width=64, hidden=64, vocabulary=512),
    question_model=Shape(layers=1, width=64, hidden=128, vocabulary=512),
    target_schedule=Schedule(tokens=16_000, step_chats=8),
    draft_model_schedule=Schedule(tokens=8_000, step_chats=8),
    question_schedule=Schedule(tokens=8_000, step_chats=8),
    questions=4,
    judged=3,
    tokenizer_chats=300,
)
SETTINGS = {"wide": WIDE, "briefly": BRIEFLY, "full": FULL, "tiny": TINY}

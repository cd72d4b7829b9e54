"""The steps of the recipe: one command for each, and ``all`` for all of them.

The working folder holds ``tokenizer.json`` and the checkpoints ``target``, ``draft-model`` and
``question-model``; the folder of results holds the GGUF files, the word translations and
``figures.json``.
"""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import click
from torch import Tensor

from assets.recipe.chat_stream import ChatSource, stream_chats
from assets.recipe.evaluation import acceptance, evaluate, noted_questions, recall_questions
from assets.recipe.export import DRAFT_MODEL_FILE, FILES, TARGET_FILE, copy_tokenizer, export
from assets.recipe.judged import judge
from assets.recipe.pages import read_pages, split
from assets.recipe.prepare import make_chat, make_pool, prepare
from assets.recipe.questions import ask_for_entry
from assets.recipe.reader import AnswerReader
from assets.recipe.settings import SETTINGS, Schedule, Setting, Shape
from assets.recipe.tokens import load_tokenizer
from assets.recipe.training import (
    Loss,
    TrainingRun,
    load_frozen_target,
    load_weights,
    make_distillation_loss,
    make_next_token_loss,
)
from assets.recipe.translations import translate
from assets.recipe.turns import Kind
from datastores.errors import InputError, SpecchatError
from engines.distillation.model import Llama
from engines.distillation.weights import read_llama_file
from engines.retrieval.translations import TRANSLATIONS_FILE, to_lines, write_translations

_LOG = logging.getLogger("assets.recipe")

_EVALUATION_SEED = 5


@dataclass(frozen=True)
class Recipe:
    """The input of every step.

    ``pages`` is a tldr checkout or archive, ``work`` the folder of checkpoints, ``out`` the folder
    of results; ``seed`` determines the chats and their order. Training starts from the GGUF files
    in the folder ``start``, of a pair or of a target alone, or from random weights if it is None.
    ``tokens`` replaces the setting's count; training pauses after ``minutes``.
    """

    setting: Setting
    pages: Path
    work: Path
    out: Path
    seed: int
    start: Path | None = None
    tokens: int | None = None
    minutes: float = math.inf

    @property
    def tokenizer(self) -> Path:
        """The file of the tokenizer."""
        return self.work / "tokenizer.json"

    def run(self, role: str) -> TrainingRun:
        """The training run of a role, resumed from its checkpoint if there is one."""
        return TrainingRun(self.setting.shapes[role], self.work / role, self.given(role))

    def given(self, role: str) -> Mapping[str, Tensor] | None:
        """The weights to start from; None starts from random ones."""
        path = self.start / FILES[role] if self.start else None
        return read_llama_file(path).weights if path and path.exists() else None

    def frozen_target(self) -> Llama:
        """The trained target, or the given one, frozen.

        Raises:
            InputError: there is neither.
        """
        return load_frozen_target(self.target(), self.setting.target)

    def target(self) -> Mapping[str, Tensor]:
        """The weights of the trained target, or of the given one.

        Raises:
            InputError: there is neither.
        """
        given, checkpoint = self.given("target"), self.work / "target"
        trained = given is None or (checkpoint / "progress.json").exists()
        return load_weights(checkpoint) if given is None or trained else given

    def train(self, run: TrainingRun, schedule: Schedule, loss: Loss, kind: Kind) -> None:
        """Train ``run`` on chats drawn by worker processes; for a GPU, on all cores but one."""
        setting = self.setting
        chats, longest = schedule.step_chats, setting.longest
        source = ChatSource(self.pages, self.tokenizer, kind, chats, longest, self.seed)
        processes = 1 if run.device.type == "cpu" else max(1, (os.cpu_count() or 1) - 1)
        schedule = replace(schedule, tokens=self.tokens or schedule.tokens)
        with closing(stream_chats(source, run.progress.updates, processes)) as steps:
            run.train(steps, schedule, loss, self.minutes * 60)


def step_prepare(recipe: Recipe) -> None:
    """Make the tokenizer from chats about the pages."""
    if recipe.start is not None:
        copy_tokenizer(recipe.start / TARGET_FILE, recipe.tokenizer)
    vocabulary, chats = recipe.setting.target.vocabulary, recipe.setting.tokenizer_chats
    prepare(recipe.pages, recipe.tokenizer, vocabulary, chats, recipe.seed)


def step_translate(recipe: Recipe) -> None:
    """Learn word translations and write the file that retrieval reads."""
    pool = make_pool(split(read_pages(recipe.pages)))
    recipe.out.mkdir(parents=True, exist_ok=True)
    learned = translate(pool.all_tasks, pool.pages, pool.outside.sentences)
    write_translations(recipe.out / TRANSLATIONS_FILE, to_lines(learned))


def step_train(recipe: Recipe) -> None:
    """Train the target, resuming from its checkpoint."""
    loss = make_next_token_loss(recipe.setting.target)
    recipe.train(recipe.run("target"), recipe.setting.target_schedule, loss, make_chat)


def step_learn_questions(recipe: Recipe) -> None:
    """Train the model of questions, starting from the target's first layers if the widths match."""
    role, shape = "question-model", recipe.setting.question_model
    given = recipe.given(role)
    if given is None and recipe.setting.target.width == shape.width:
        given = first_layers(recipe.target(), shape)
    run = TrainingRun(shape, recipe.work / role, given)
    loss = make_next_token_loss(shape)
    recipe.train(run, recipe.setting.question_schedule, loss, ask_for_entry)


def first_layers(weights: Mapping[str, Tensor], shape: Shape) -> Mapping[str, Tensor]:
    """The weights of a model of ``shape``, taken from a deeper one of the same width."""
    return {name: weights[name] for name in Llama(shape.llama).state_dict()}


def step_distil(recipe: Recipe) -> None:
    """Distil the target into the draft model, resuming from its checkpoint."""
    loss = make_distillation_loss(recipe.frozen_target())
    recipe.train(recipe.run("draft-model"), recipe.setting.draft_model_schedule, loss, make_chat)


def step_export(recipe: Recipe) -> None:
    """Write the existing checkpoints as GGUF files.

    Raises:
        InputError: there is none.
    """
    trained = [role for role in FILES if (recipe.work / role / "progress.json").exists()]
    if not trained:
        raise InputError(f"{recipe.work}: no checkpoint here; train a model first")
    for role in trained:
        path, shape = recipe.out / FILES[role], recipe.setting.shapes[role]
        export(recipe.work / role, recipe.tokenizer, shape, f"specchat {role}", path)
        _LOG.info("wrote %s", path)


def step_evaluate(recipe: Recipe) -> None:
    """Measure the GGUF files; the figures are logged and written to ``figures.json``."""
    tokenizer = load_tokenizer(recipe.tokenizer)
    target = AnswerReader(recipe.out / TARGET_FILE, tokenizer)
    draft_model = AnswerReader(recipe.out / DRAFT_MODEL_FILE, tokenizer)
    parts = split(read_pages(recipe.pages))
    pool = make_pool(parts)
    count = recipe.setting.questions
    figures = evaluate(target, parts, pool, count, _EVALUATION_SEED)
    rng = Random(_EVALUATION_SEED)
    questions = noted_questions(parts.held_out or parts.familiar, count // 4, rng)
    questions += recall_questions(pool.core, count // 4, rng)
    figures |= acceptance(target, draft_model, questions)
    figures |= judge(target, parts, recipe.setting.judged, _EVALUATION_SEED)
    line = json.dumps({key: round(value, 3) for key, value in figures.items()})
    (recipe.out / "figures.json").write_text(line + "\n", encoding="utf-8")
    _LOG.info("figures %s", line)


STEPS = {
    "prepare": step_prepare,
    "translate": step_translate,
    "train": step_train,
    "learn-questions": step_learn_questions,
    "distil": step_distil,
    "export": step_export,
    "evaluate": step_evaluate,
}


@click.command()
@click.argument("step", type=click.Choice([*STEPS, "all"]))
@click.option("--setting", type=click.Choice(list(SETTINGS)), default="full", show_default=True)
@click.option(
    "--pages",
    type=click.Path(path_type=Path),
    required=True,
    help="A checkout of github.com/tldr-pages/tldr, or a tar archive of its pages.",
)
@click.option(
    "--work",
    type=click.Path(path_type=Path),
    required=True,
    help="Where the checkpoints lie; a run goes on from what it finds there.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    required=True,
    help="Where the GGUF files and the figures go.",
)
@click.option(
    "--from",
    "start",
    type=click.Path(path_type=Path),
    help="A folder with the GGUF files of a pair, or of a target, to go on from: say, assets.",
)
@click.option("--seed", default=11, show_default=True, help="Fixes the chats and their order.")
@click.option("--tokens", type=int, help="Tokens to train on, in place of the setting's.")
@click.option(
    "--minutes",
    type=float,
    default=math.inf,
    help="Pause training after so many minutes, with a checkpoint.",
)
def main(step: str, setting: str, work: Path, **inputs: Any) -> None:
    """Make specchat's embedded models from the tldr pages."""
    work.mkdir(parents=True, exist_ok=True)
    _log_to(work / "recipe.log")
    recipe = Recipe(SETTINGS[setting], work=work, **inputs)
    try:
        for name in STEPS if step == "all" else [step]:
            STEPS[name](recipe)
    except SpecchatError as error:
        raise click.ClickException(str(error)) from error


def _log_to(path: Path) -> None:
    """Log progress to the terminal and to the file ``path``."""
    formatter = logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S")
    _LOG.setLevel(logging.INFO)
    for handler in (logging.StreamHandler(), logging.FileHandler(path, encoding="utf-8")):
        handler.setFormatter(formatter)
        _LOG.addHandler(handler)

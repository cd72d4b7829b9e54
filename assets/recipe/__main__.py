"""``python -m assets.recipe STEP``: one command for each step, and ``all`` for all of them.

The steps are functions of the same few paths. Owns the layout of the working folder: ``data``,
``target``, ``student`` (checkpoints), and in the folder of results: the two GGUF files and
``figures.json``.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from pathlib import Path
from random import Random

import click

from assets.recipe.batches import Corpus
from assets.recipe.evaluation import acceptance, evaluate, noted_questions, recall_questions
from assets.recipe.export import FILES, STUDENT_FILE, TARGET_FILE, copy_tokenizer, export
from assets.recipe.judged import judge
from assets.recipe.pages import read_pages, split
from assets.recipe.prepare import make_pool, prepare
from assets.recipe.reader import Reader
from assets.recipe.settings import SETTINGS, Schedule, Setting, Shape
from assets.recipe.tokens import load_tokenizer
from assets.recipe.training import (
    TrainingRun,
    load_teacher,
    make_distillation_loss,
    make_next_token_loss,
)
from datastores.errors import SpecchatError
from engines.distillation.weights import read_student

_LOG = logging.getLogger("assets.recipe")
"""Of the package: the name of this module is `__main__` where it runs."""

_EVALUATION_SEED = 5


@dataclass(frozen=True)
class Recipe:
    """The input of every step.

    ``pages`` is a tldr checkout or archive, ``work`` the folder of checkpoints, ``out`` the folder
    of results; ``seed`` determines the chats and their order. ``start`` is a folder with the GGUF
    files of a pair to go on from; None trains from nothing.
    """

    setting: Setting
    pages: Path
    work: Path
    out: Path
    seed: int
    start: Path | None = None

    @property
    def data(self) -> Path:
        """Tokenizer and encoded chats."""
        return self.work / "data"

    def run(self, role: str, shape: Shape) -> TrainingRun:
        """The run of the ``target`` or the ``student``, at its checkpoint if it has one."""
        weights = read_student(self.start / FILES[role]).weights if self.start else None
        return TrainingRun(shape, self.work / role, weights)


def step_prepare(recipe: Recipe) -> None:
    """Make the tokenizer and the encoded chats from the pages."""
    if recipe.start is not None:
        copy_tokenizer(recipe.start / TARGET_FILE, recipe.data / "tokenizer.json")
    prepare(recipe.pages, recipe.data, recipe.setting, recipe.seed)


def step_train(recipe: Recipe) -> None:
    """Train the target on the encoded chats, resuming from its checkpoint."""
    run = recipe.run("target", recipe.setting.target)
    schedule: Schedule = recipe.setting.target_schedule
    loss = make_next_token_loss(recipe.setting.target)
    run.train(Corpus.load(recipe.data), schedule, loss, recipe.seed)


def step_distil(recipe: Recipe) -> None:
    """Distil the target into the student, resuming from its checkpoint."""
    teacher = load_teacher(recipe.work / "target", recipe.setting.target)
    run = recipe.run("student", recipe.setting.student)
    loss = make_distillation_loss(teacher)
    run.train(Corpus.load(recipe.data), recipe.setting.student_schedule, loss, recipe.seed)


def step_export(recipe: Recipe) -> None:
    """Write the checkpoints as GGUF files."""
    tokenizer = recipe.data / "tokenizer.json"
    shapes = {"target": recipe.setting.target, "student": recipe.setting.student}
    for role, file in FILES.items():
        export(recipe.work / role, tokenizer, shapes[role], f"specchat {role}", recipe.out / file)
        _LOG.info("wrote %s", recipe.out / file)


def step_evaluate(recipe: Recipe) -> None:
    """Measure the GGUF files; the figures are logged and written to ``figures.json``."""
    tokenizer = load_tokenizer(recipe.data / "tokenizer.json")
    target = Reader(recipe.out / TARGET_FILE, tokenizer)
    student = Reader(recipe.out / STUDENT_FILE, tokenizer)
    parts = split(read_pages(recipe.pages))
    pool = make_pool(parts)
    count = recipe.setting.questions
    figures = evaluate(target, parts, pool, count, _EVALUATION_SEED)
    rng = Random(_EVALUATION_SEED)
    questions = noted_questions(parts.held_out or parts.familiar, count // 4, rng)
    questions += recall_questions(pool.core, count // 4, rng)
    figures |= acceptance(target, student, questions)
    figures |= judge(target, parts, recipe.setting.judged, _EVALUATION_SEED)
    line = json.dumps({key: round(value, 3) for key, value in figures.items()})
    (recipe.out / "figures.json").write_text(line + "\n", encoding="utf-8")
    _LOG.info("figures %s", line)


STEPS = {
    "prepare": step_prepare,
    "train": step_train,
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
    help="Where chats and checkpoints lie; a run goes on from what it finds there.",
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
    help="A folder with the GGUF files of a pair to go on from, such as assets.",
)
@click.option("--seed", default=11, show_default=True, help="Fixes the chats and their order.")
def main(
    step: str, setting: str, pages: Path, work: Path, out: Path, seed: int, start: Path | None
) -> None:
    """Make specchat's embedded pair from the tldr pages."""
    work.mkdir(parents=True, exist_ok=True)
    _log_to(work / "recipe.log")
    recipe = Recipe(SETTINGS[setting], pages, work, out, seed, start)
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


if __name__ == "__main__":
    main()

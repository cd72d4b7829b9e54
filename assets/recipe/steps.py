"""The steps of the recipe, each a function of the same few paths.

Owns where things lie in the working folder: ``data``, ``target``, ``student`` (checkpoints), and
in the folder of results: the two GGUF files and ``figures.json``.
"""

import json
import logging
from dataclasses import dataclass
from pathlib import Path
from random import Random

from assets.recipe.batches import Corpus
from assets.recipe.distil import load_teacher, make_distillation_loss
from assets.recipe.evaluation import acceptance, evaluate, noted_questions, recall_questions
from assets.recipe.export import export
from assets.recipe.pages import read_pages, split
from assets.recipe.prepare import make_pool, prepare
from assets.recipe.reader import Reader
from assets.recipe.settings import Course, Setting
from assets.recipe.tokens import load_tokenizer
from assets.recipe.training import Run, next_token_loss

_LOG = logging.getLogger(__name__)
TARGET_FILE = "target-f16.gguf"
STUDENT_FILE = "student-f16.gguf"
_EVALUATION_SEED = 5


@dataclass(frozen=True)
class Bench:
    """What every step is given.

    ``pages`` is a tldr checkout or archive, ``work`` the folder of checkpoints, ``out`` the folder
    of results, ``seed`` fixes the chats and their order.
    """

    setting: Setting
    pages: Path
    work: Path
    out: Path
    seed: int

    @property
    def data(self) -> Path:
        """Tokenizer and encoded chats."""
        return self.work / "data"


def step_prepare(bench: Bench) -> None:
    """Pages to tokenizer and encoded chats."""
    prepare(bench.pages, bench.data, bench.setting, bench.seed)


def step_train(bench: Bench) -> None:
    """Encoded chats to a target, going on from its checkpoint."""
    run = Run(bench.setting.target, bench.work / "target")
    course: Course = bench.setting.target_course
    run.train(Corpus.load(bench.data), course, next_token_loss, bench.seed)


def step_distil(bench: Bench) -> None:
    """The target to a student, going on from its checkpoint."""
    teacher = load_teacher(bench.work / "target", bench.setting.target)
    run = Run(bench.setting.student, bench.work / "student")
    loss = make_distillation_loss(teacher)
    run.train(Corpus.load(bench.data), bench.setting.student_course, loss, bench.seed)


def step_export(bench: Bench) -> None:
    """Checkpoints to GGUF files."""
    tokenizer = bench.data / "tokenizer.json"
    pair = (
        ("target", TARGET_FILE, bench.setting.target),
        ("student", STUDENT_FILE, bench.setting.student),
    )
    for role, file, shape in pair:
        export(bench.work / role, tokenizer, shape, f"specchat {role}", bench.out / file)
        _LOG.info("wrote %s", bench.out / file)


def step_evaluate(bench: Bench) -> None:
    """GGUF files to figures, as one line of JSON, in the log and in ``figures.json``."""
    tokenizer = load_tokenizer(bench.data / "tokenizer.json")
    target = Reader(bench.out / TARGET_FILE, tokenizer)
    student = Reader(bench.out / STUDENT_FILE, tokenizer)
    parts = split(read_pages(bench.pages))
    pool = make_pool(parts)
    count = bench.setting.questions
    figures = evaluate(target, parts, pool, count, _EVALUATION_SEED)
    rng = Random(_EVALUATION_SEED)
    questions = noted_questions(parts.held_out or parts.familiar, count // 4, rng)
    questions += recall_questions(pool.core, count // 4, rng)
    figures |= acceptance(target, student, questions)
    line = json.dumps({key: round(value, 3) for key, value in figures.items()})
    (bench.out / "figures.json").write_text(line + "\n", encoding="utf-8")
    _LOG.info("figures %s", line)


STEPS = {
    "prepare": step_prepare,
    "train": step_train,
    "distil": step_distil,
    "export": step_export,
    "evaluate": step_evaluate,
}

"""The demo's stage: an enlarged model, a data directory and a file to import.

The embedded model is too fast to gain from drafts. An enlarged copy generates the same tokens at
the cost of a larger model (`engines.llama.enlarge`), so its speed-up is that of a model of that
size; nothing is simulated. Its draft model is left out, as a downloaded model has none. Everything
is in one temporary directory; the person's own data is never opened.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory

from app.chat_settings import DOCS, DOCS_OFF
from app.config import Options, write_setting
from app.locations import locate
from app.models.discovery import embedded
from datastores.errors import StoreError
from engines.llama.enlarge import Enlargement, enlarge

LARGER = Enlargement(wider=4)
"""About 230 million weights: some 50 tokens per second on two cores."""
DRAFTERS = ("prompt", "recycle", "suffix", "crest")
"""Drafters that need no draft model and no fifty answers before they help."""
MAX_TOKENS = 200

DEMO_MODEL = "built-in model, enlarged"

BEFORE = (
    "How do I change the owner of a file?",
    "How do I show disk usage?",
    "How do I mount a disk?",
)
"""Questions that the file does not answer."""
AFTER = (
    "How do I search for text in files?",
    "How do I resize an image?",
    "How do I find large files?",
    "How do I run a container in the background?",
    "How do I convert a video to mp4?",
)
"""Questions that the file answers."""

INTRODUCTION = (
    "Demo: the built-in model, enlarged so that each word takes as long as with a model of 230"
    " million weights. It writes the same words. specchat asks three questions, imports a file, and"
    " asks five more. Nothing is kept."
)


@dataclass(frozen=True, slots=True)
class DemoStage:
    """A temporary `folder`, the options that open the enlarged model with the data directory in
    it, and the `file` to import."""

    folder: Path
    options: Options
    file: Path

    def make_model(self) -> None:
        """Make the enlarged model, which takes seconds.

        Raises:
            ModelError: it cannot be made.
            StoreError: the temporary directory has no room for it.
        """
        with _room_in(self.folder):
            enlarge(embedded(), LARGER, Path(str(self.options.model)))

    def remove(self) -> None:
        """Remove everything, for an exit that skips the end of `demo_stage`."""
        rmtree(self.folder, ignore_errors=True)


@contextmanager
def demo_stage() -> Iterator[DemoStage]:
    """A new stage without its model, removed at the end.

    Raises:
        StoreError: the temporary directory has no room for it.
    """
    with ExitStack() as steps:
        with _room_in("the temporary directory"):
            name = steps.enter_context(TemporaryDirectory(prefix="specchat-demo-"))
        folder = Path(name)
        options = Options(
            model=str(folder / "built-in, enlarged.gguf"),
            data_dir=folder / "data",
            drafters=DRAFTERS,
            temperature=0.0,
            max_tokens=MAX_TOKENS,
        )
        stage = DemoStage(folder, options, folder / "commands.md")
        with _room_in(folder):
            stage.file.write_bytes(files("assets").joinpath("demo/commands.md").read_bytes())
        # Answers are the model's own, so that drafts are compared on the same text.
        write_setting(locate(options.data_dir), DOCS, DOCS_OFF)
        yield stage


@contextmanager
def _room_in(folder: Path | str) -> Iterator[None]:
    """Translates errors of writing to `folder`."""
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"the demo needs 500 MB in {folder}: {error.strerror}; set TMPDIR to another folder"
        ) from error


@dataclass(frozen=True, slots=True)
class MeasuredAnswer:
    """Time of an answer with drafts, and measured or estimated without."""

    tokens: int
    steps: int
    seconds: float
    plain_seconds: float


def speedup(answers: Sequence[MeasuredAnswer]) -> float:
    """Speed with drafts ÷ speed without; 0 for no answers."""
    seconds = sum(answer.seconds for answer in answers)
    return sum(answer.plain_seconds for answer in answers) / seconds if seconds else 0.0


def tokens_per_step(answers: Sequence[MeasuredAnswer]) -> float:
    """Mean tokens of a step; 0 for no answers."""
    steps = sum(answer.steps for answer in answers)
    return sum(answer.tokens for answer in answers) / steps if steps else 0.0


MIN_SPEEDUP = 1.5
"""A smaller speed-up after the import is explained."""
MIN_DIFFERENCE = 1.15
"""A smaller ratio of speeds counts as none, as few answers are compared."""
MIN_TOKENS_PER_STEP = 1.3
"""Below this, hardly anything was drafted."""


def _compared(ratio: float) -> str:
    """`2.4× as fast`; a small difference may be due to other programs."""
    return f"{ratio:.1f}× as fast" if ratio >= MIN_DIFFERENCE else "about as fast"


def conclusion(before: Sequence[MeasuredAnswer], after: Sequence[MeasuredAnswer]) -> str:
    """The result in words, with the reason where it is small."""
    faster, steps = speedup(after), tokens_per_step(after)
    said = (
        f"Before the import, answers came {_compared(speedup(before))} with drafts as without;"
        f" after it, {_compared(faster)}, with {steps:.1f} tokens per step."
    )
    if faster >= MIN_SPEEDUP or not faster:
        return said
    if steps < MIN_TOKENS_PER_STEP:
        return (
            f"{said} Few drafts were worth checking: checking several tokens at once takes this"
            " machine too long, or other programs are busy."
        )
    return (
        f"{said} A step with drafts took {steps / faster:.1f} times as long as one without: this"
        " machine gains little from checking several tokens at once, or other programs are busy."
    )

"""The draft model that belongs to a model: which file it is, and loading it.

The embedded model brings its own; for others the person names one. Owns the choice, its checks and
its setting. Refuses to know when it drafts.
"""

from __future__ import annotations

from pathlib import Path

from app.config import load_config, write_setting
from app.locations import Locations
from app.models.discovery import EMBEDDED, embedded, embedded_student, resolve_model
from app.models.memory import require_memory
from datastores.errors import InputError, ModelError
from engines.drafters.student import Student, require_same_vocabulary
from engines.target import Vocabulary

MAX_LIGHT_BYTES = 64 * 2**20
"""Largest file that is loaded for a single answer: loading a larger one takes longer than it
saves."""


def student_file(setting: str, model: Path, locations: Locations) -> Path | None:
    """The draft model's file for `model`; None for none.

    Args:
        setting: a name or a file; `embedded` is the embedded model's own student, for models made
            from that one.

    Raises:
        ModelError: there is no model of that name.
    """
    if model == embedded() or setting == EMBEDDED:
        return embedded_student()
    return resolve_model(setting, locations) if setting else None


def open_student(
    path: Path,
    vocabulary: Vocabulary,
    context_length: int,
    *,
    gpu_layers: int | None = None,
    threads: int = 0,
    probe_cache: Path | None = None,
) -> Student:
    """Load the draft model at `path` for a target with `vocabulary`.

    Raises:
        InputError: its vocabulary is another one; the first token that differs is named.
        ModelError: missing, damaged, too large for the memory, or unable to step back.
    """
    from engines.llama.model import load

    require_memory(path, context_length, gpu_layers)
    model = load(
        path,
        gpu_layers=gpu_layers,
        threads=threads,
        context_length=context_length,
        probe_cache=probe_cache,
    )
    if model.target.chains_only or model.target.max_rows == 1:
        raise ModelError(f"{path} cannot draft: its memory cannot step back")
    require_drafts_for(path, model.vocabulary, vocabulary)
    return Student(model.target, vocabulary.stops)


def choose_student(choice: str, locations: Locations) -> None:
    """Make a model, by name or file, the one that drafts for the chosen one; empty for none.

    Raises:
        ModelError: there is no such model, or it or the chosen one cannot be read.
        InputError: its vocabulary is not the chosen model's, or the settings file is invalid.
        StoreError: the settings file cannot be written.
    """
    from engines.llama.vocabulary import load_vocabulary

    path = student_file(choice, Path(), locations)
    if path is not None:
        model = resolve_model(load_config(locations.settings).model, locations)
        require_drafts_for(path, load_vocabulary(path), load_vocabulary(model))
    named_file = choice != EMBEDDED and Path(choice).expanduser().is_file()
    write_setting(locations, "student", str(path.absolute()) if path and named_file else choice)


def require_drafts_for(path: Path, student: Vocabulary, target: Vocabulary) -> None:
    """Check that the model at `path`, of vocabulary `student`, can draft for a target's.

    Raises:
        InputError: the vocabularies differ; the first token that does is named.
    """
    try:
        require_same_vocabulary(student, target)
    except InputError as error:
        raise InputError(
            f"{path.name} cannot draft for this model: {error}. Choose another with `specchat"
            " models use --student NAME`, or none with an empty NAME"
        ) from error

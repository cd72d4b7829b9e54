"""Opens a model together with its background work: the indexer, idle work and training.

Most imports happen when a model is opened, so that they do not delay the interface's first frame.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from app.chat_settings import DOCS_OFF
from app.config import Options
from app.foreground import Foreground
from app.indexing.corpus_index import IndexingProgress
from app.locations import Locations
from app.runtime.idle_work import NotifyIdle
from app.runtime.model_thread import Model
from datastores.chats.history import History
from datastores.errors import SpecchatError

if TYPE_CHECKING:
    from app.conversation.imported_texts import ImportedTexts
    from app.engine.engine import Engine
    from app.indexing.indexer import Indexer, NotifyIndexer
    from app.runtime.idle_encoding import EncodingProgress
    from app.runtime.idle_work import IdleWork
    from app.runtime.learning import Learner, NotifyLearning

PAUSED_FILE = "paused"
"""Names a paused training process; it is next to the folders of versions."""

ABOUT_BUILT_IN = (
    "The built-in model is tiny and only knows shell commands, and English. Try: How do I extract a"
    " tar archive? Type /demo to see what drafts gain with a larger one."
)
ASK_A_COMMAND = "Ask for a shell command"
PACKAGED = (
    "{name} is a tiny general model. It answers anything, in English, and is often wrong: check"
    " facts, sums and code. For shell commands, switch to the built-in model with F5."
)
UNUSED_GPU = "Your {gpu} is not being used: `specchat doctor` shows how to change that."


def open_model(
    options: Options,
    locations: Locations,
    history: History,
    notify_indexer: NotifyIndexer,
    notify_idle: NotifyIdle = lambda progress, error: None,
    notify_learning: NotifyLearning = lambda progress, error: None,
) -> Model:
    """Load the chosen model with an indexer, idle work and training of its draft model.

    `notify_indexer` is called on the indexer's thread, `notify_idle` on the model's and
    `notify_learning` on any.
    """
    from app.config import load_config
    from app.conversation.assistant import Assistant
    from app.engine.loading import load, open_chat_states
    from app.models.discovery import embedded

    config = load_config(locations.settings)
    engine = load(options, locations)
    open_chat_states(engine, locations.chat_states, config.chat_states.max_bytes)
    imports = _imports(locations, engine.resources.errors)
    # A connection of its own, so that no other thread waits with the model's for a lock.
    history = history.new_connection()
    work = _idle_work(engine, locations, history, imports, notify_idle)
    idle = (work, _check_learning(engine, locations, imports, notify_idle))
    indexer = _indexer(engine, locations, notify_indexer, idle)
    learner = _learner(engine, locations, notify_learning, work)

    switch_idle = partial(_switch_idle, engine, idle, indexer, learner)
    if not config.idle:
        switch_idle(False)

    # Closes all of them even if one fails, the last one first: what the engine still records asks
    # whether its chat and its documents exist.
    closing = ExitStack()
    for part in (history, imports, engine, indexer, learner, *idle):
        if part is not None:
            closing.callback(part.close)

    assistant = Assistant(engine, history, imports, default_docs=config.docs)
    works = idle if engine.states is None else (engine.states, *idle)
    return Model(
        engine.name,
        _hint(engine),
        assistant,
        closing.close,
        engine,
        engine.path,
        works,
        learner,
        switch_idle,
        ASK_A_COMMAND if engine.path == embedded() else "",
        options,
        config,
    )


def _switch_idle(
    engine: Engine,
    works: Sequence[IdleWork],
    indexer: Indexer,
    learner: Learner | None,
    enabled: bool,
) -> None:
    """Start all background work, or stop it at once."""
    indexer.switch(enabled)
    if learner is not None:
        learner.switch(enabled and engine.learns)
    for work in works:
        work.enabled = enabled
        if enabled:
            work.wake()


def open_for_one_answer(
    options: Options, locations: Locations, history: History, docs: str = ""
) -> Model:
    """Load the chosen model alone, without drafters that need large libraries.

    Args:
        docs: how the answer uses imported texts, a `DocsSetting` as it is stored; empty leaves it
            to the chat and the settings.
    """
    from app.config import load_config
    from app.conversation.assistant import Assistant
    from app.engine.loading import load, open_chat_states

    config = load_config(locations.settings)
    errors: list[SpecchatError] = []
    with ExitStack() as opened:
        searched = docs != DOCS_OFF
        imports = _imports(locations, errors, searched) if locations.passages.exists() else None
        if imports is not None:
            opened.callback(imports.close)
        engine = load(options, locations, light=True)
        # The list that `imports` reports to becomes the engine's.
        errors[:0] = engine.resources.errors
        engine.resources.errors = errors
        opened.callback(engine.close)
        open_chat_states(engine, locations.chat_states, config.chat_states.max_bytes)
        assistant = Assistant(engine, history, imports, default_docs=config.docs)
        close = opened.pop_all().close
    return Model(engine.name, "", assistant, close, engine, engine.path)


def _hint(engine: Engine) -> str:
    """What a person should know about the model, in one line; may be empty."""
    hints = (_about_model(engine), _about_device(engine.path), *engine.restrictions)
    return " ".join(filter(None, hints))


def _about_model(engine: Engine) -> str:
    """The purpose of a model that came with specchat; empty for any other."""
    from app.models.discovery import default_model, embedded

    if engine.path == embedded():
        return ABOUT_BUILT_IN
    return PACKAGED.format(name=engine.name) if engine.path == default_model() else ""


def _about_device(model: Path) -> str:
    """A note if `model` runs on a slower device than it could; else empty."""
    from app.models.safetensors import CPU, remark, torch_device
    from engines.llama.devices import unused_gpu

    if model.is_dir():
        return f"This model is {remark(CPU)}." if torch_device() == CPU else ""
    gpu = unused_gpu()
    return UNUSED_GPU.format(gpu=gpu) if gpu else ""


def _imports(
    locations: Locations, errors: list[SpecchatError], searched: bool = True
) -> ImportedTexts | None:
    """The imported texts; None if they cannot be opened.

    Args:
        errors: takes the errors, also later ones.
        searched: whether to load the embedding model at once, on a thread.
    """
    from app.conversation.imported_texts import ImportedTexts

    try:
        with ExitStack() as opened:
            imports = ImportedTexts.open(locations, errors.append)
            opened.callback(imports.close)
            if searched:
                imports.warm_up()
            opened.pop_all()
    except SpecchatError as error:
        errors.append(error)
        return None
    return imports


def _idle_work(
    engine: Engine,
    locations: Locations,
    history: History,
    imports: ImportedTexts | None,
    notify: NotifyIdle,
) -> IdleWork:
    """The engine's idle work. Errors of the engine are reported now, later ones when it is idle."""
    from app.engine.loading import adopt_versions
    from app.runtime.idle_encoding import embed_when_idle, encode_when_idle
    from app.runtime.idle_work import IdleWork

    reported = _report_errors(engine, notify, frozenset())

    def begin(texts_changed: bool) -> Generator[EncodingProgress | None]:
        nonlocal reported
        reported = _report_errors(engine, notify, reported)
        engine.save_learned()
        adopt_versions(engine)
        if imports is not None and texts_changed:
            yield from embed_when_idle(imports)
        yield from encode_when_idle(engine, locations, history, texts=texts_changed)

    return IdleWork(begin, notify)


def _check_learning(
    engine: Engine, locations: Locations, imports: ImportedTexts | None, notify: NotifyIdle
) -> IdleWork:
    """Learns to check passages, once texts are imported."""
    from app.runtime.idle_answerability import learn_when_idle
    from app.runtime.idle_work import IdleWork

    def begin(_: bool) -> Generator[EncodingProgress | None]:
        if imports is not None and not imports.empty and engine.answerability is not None:
            yield from learn_when_idle(engine.answerability, locations)

    return IdleWork(begin, notify)


def _indexer(
    engine: Engine, locations: Locations, notify: NotifyIndexer, works: Sequence[IdleWork]
) -> Indexer:
    """The started indexer; idle work wakes whenever it has finished something."""
    from app.indexing.indexer import Indexer

    def changed(progress: IndexingProgress | None, error: SpecchatError | None) -> None:
        notify(progress, error)
        if progress is None:
            for work in works:
                work.wake()

    indexer = Indexer(locations, engine.path, engine.vocabulary, engine.crest_bytes, changed)
    indexer.start()
    return indexer


def _learner(
    engine: Engine, locations: Locations, notify: NotifyLearning, work: IdleWork
) -> Learner | None:
    """The started trainer of the engine's draft model and head; None if it has neither."""
    from app.config import load_config
    from app.engine.draft_model_versions import NewAnswers, new_answers
    from app.machine import OtherLoad
    from app.runtime.learning import HEAD_TOO, Learner, LearningConditions

    draft_model = engine.versioned_draft_model if engine.resources.draft_model is not None else None
    head, config, target = engine.versioned_head, load_config(locations.settings), engine.target
    if draft_model is None and head is None:
        return None

    def fewest_missing() -> NewAnswers:
        versioned = [(draft_model.versions, False)] if draft_model is not None else []
        versioned += [(head.versions, True)] if head is not None else []
        found = (
            new_answers(locations, target.fingerprint, versions, with_states=states)
            for versions, states in versioned
        )
        return min(found, key=lambda new: new.missing)

    foreground = Foreground(locations.foreground)
    conditions = LearningConditions(
        quiet_s=config.learn_after,
        is_busy=lambda: engine.busy.locked() or foreground.busy(),
        new_answers=fewest_missing,
        is_loaded=OtherLoad(),
    )
    folders = (locations.data, locations.cache, locations.config)
    trainees = draft_model.original if draft_model else "", HEAD_TOO if head else ""
    command = ("app.runtime.learning_process", target.fingerprint, engine.path, *trainees)
    note = locations.draft_models / target.fingerprint / PAUSED_FILE
    learner = Learner((*command, *folders), note, conditions, notify, work.wake)
    learner.enabled = engine.learns
    learner.start()
    return learner


def _report_errors(engine: Engine, notify: NotifyIdle, reported: frozenset[str]) -> frozenset[str]:
    """Report the engine's errors that are not in `reported`; returns all of them."""
    errors = {str(error): error for error in engine.errors}
    for message in errors.keys() - reported:
        notify(None, errors[message])
    return frozenset(errors)

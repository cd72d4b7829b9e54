"""Opens a model for the interface, with what goes on beside its answers: indexing and idle work.

Owns how these are tied together. What this imports would hold up the first frame, so it is imported
when a model is opened.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING

from app.config import Options
from app.indexing.corpus_index import Projecting
from app.locations import Locations
from app.runtime.model_thread import Model
from datastores.chats.history import History
from datastores.errors import SpecchatError

if TYPE_CHECKING:
    from app.engine.engine import Engine
    from app.indexing.indexer import Indexer
    from app.runtime.idle import IdleWork
    from app.runtime.idle_encoding import EncodingProgress

IndexerChanged = Callable[[Projecting | None, SpecchatError | None], object]
Idled = Callable[["EncodingProgress | None", SpecchatError | None], object]

EMBEDDED = (
    "The model built in is a small helper for the command line and knows little else."
    " Try: How do I extract a tar archive?"
)


def open_model(
    options: Options,
    locations: Locations,
    history: History,
    learnt: IndexerChanged,
    idled: Idled = lambda reading, trouble: None,
) -> Model:
    """Load the model the person chose.

    `learnt` is told, on a thread of its own, how far its view of texts and chats has come; `idled`,
    on the model's, what it does while nobody asks.
    """
    from app.conversation.assistant import Assistant
    from app.engine.engine import load
    from app.models.known_folders import embedded

    engine = load(options, locations)
    work = _idle_work(engine, locations, history, idled)
    indexer = _indexer(engine, locations, learnt, work)

    def close() -> None:
        indexer.close()
        engine.close()

    hint = EMBEDDED if engine.path == embedded() else ""
    answers = Assistant(engine, history)
    return Model(engine.name, hint, answers, close, engine, engine.path, work)


def _idle_work(engine: Engine, locations: Locations, history: History, idled: Idled) -> IdleWork:
    """What the model does while nobody asks.

    What is wrong with the engine is told here, and what goes wrong later when it is idle.
    """
    from app.runtime.idle import IdleWork
    from app.runtime.idle_encoding import read_when_idle

    told = _tell(engine, idled, frozenset())

    def idle(texts: bool) -> Generator[EncodingProgress | None]:
        nonlocal told
        told = _tell(engine, idled, told)
        engine.keep()
        yield from read_when_idle(engine, locations, history, texts=texts)

    return IdleWork(idle, idled)


def _indexer(
    engine: Engine, locations: Locations, learnt: IndexerChanged, work: IdleWork
) -> Indexer:
    """The indexer, at work; where it has brought something to an end, the idle model wakes."""
    from app.indexing.indexer import Indexer

    def told(progress: Projecting | None, trouble: SpecchatError | None) -> None:
        learnt(progress, trouble)
        if progress is None:
            work.rouse()

    indexer = Indexer(locations, engine.path, engine.vocabulary, engine.crest_bytes, told)
    indexer.start()
    return indexer


def _tell(engine: Engine, idled: Idled, told: frozenset[str]) -> frozenset[str]:
    """Tell what is wrong with the engine, unless it was `told`; all that is."""
    troubles = {str(trouble): trouble for trouble in engine.troubles}
    for line in troubles.keys() - told:
        idled(None, troubles[line])
    return frozenset(troubles)

"""The background: what is imported, said or forgotten while specchat runs reaches the stores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from app.cli.output import StatusLine
from app.cli.stores import update_index
from app.config import Options
from app.indexing.corpus_index import CorpusIndex, crest_path, open_index
from app.indexing.indexer import EXIT_YIELDED, Indexer, catch_up, worker_command
from app.indexing.passage_index import open_passages
from app.indexing.refresh import refresh
from app.locations import Locations
from app.runtime.deletion import forget_import
from datastores.chats.history import History
from datastores.corpus import Corpus
from datastores.crest.reader import CrestReader
from datastores.crest.store import CrestStore
from datastores.errors import SpecchatError
from datastores.library.documents import NOTES, Document, Part, StoreDocument
from datastores.library.library import Library
from datastores.pauses import pause_with
from engines.child_process import ChildProcess
from engines.llama.vocabulary import LlamaVocabulary, load_vocabulary
from tests.waiting import TIMEOUT_S, until

MODEL = Path(__file__).parents[3] / "assets" / "target-f16.gguf"
BUDGET = 2**22
HALTING = "tests.app.indexing.halting_child"
pytestmark = pytest.mark.usefixtures("indexed_at_normal_priority")


@pytest.fixture(scope="module")
def vocabulary() -> LlamaVocabulary:
    return load_vocabulary(MODEL)


@pytest.fixture
def indexer(
    locations: Locations, vocabulary: LlamaVocabulary, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Indexer]:
    monkeypatch.setattr("app.indexing.indexer.POLL_INTERVAL_S", 0.05)
    monkeypatch.setattr("app.indexing.indexer.RETRY_INTERVAL_S", 0.05)
    started = Indexer(locations, MODEL, vocabulary, BUDGET)
    yield started
    started.close()


def _import(library: Library, text: str, import_path: str = "/s") -> None:
    library.write([StoreDocument(import_path, "f", 0, Document("t", (Part(NOTES, text),)))])


def _knows(locations: Locations, vocabulary: LlamaVocabulary, text: str) -> bool:
    with (
        open_index(locations, vocabulary, BUDGET),
        closing(CrestReader(crest_path(locations, vocabulary.fingerprint))) as reader,
    ):
        return bool(reader.lookup(vocabulary.encode(text)))


def _is_due(locations: Locations, vocabulary: LlamaVocabulary) -> bool:
    with open_index(locations, vocabulary, BUDGET) as index:
        return index.is_due()


def test_changes_while_it_runs_are_indexed(
    locations: Locations,
    vocabulary: LlamaVocabulary,
    library: Library,
    history: History,
    indexer: Indexer,
) -> None:
    _import(library, " walrus telescopes" * 20)
    indexer.start()
    until(lambda: _knows(locations, vocabulary, " walrus"))
    _import(library, " penguin umbrellas" * 20, import_path="/later")
    until(lambda: _knows(locations, vocabulary, " penguin"))
    history.add_message(history.create_chat().id, None, "user", " badger lantern" * 20)
    until(lambda: _knows(locations, vocabulary, " badger"))
    library.forget("/s")
    until(lambda: not _is_due(locations, vocabulary))
    assert indexer.error is None


def test_what_was_added_is_merged_when_nothing_more_comes(
    locations: Locations,
    vocabulary: LlamaVocabulary,
    library: Library,
    indexer: Indexer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def pending() -> bool:
        with closing(CrestStore.open(crest_path(locations, vocabulary.fingerprint), BUDGET)) as it:
            return it.has_pending()

    monkeypatch.setattr("app.indexing.indexer.QUIET_S", 0.0)
    monkeypatch.setattr("app.indexing.indexer.on_battery", lambda: False)
    monkeypatch.setattr("datastores.crest.store.MIN_MERGED_TOKENS", 10)
    _import(library, " walrus telescopes" * 20)
    indexer.start()
    until(lambda: _knows(locations, vocabulary, " walrus"))
    until(lambda: not pending())
    assert _knows(locations, vocabulary, " walrus")
    assert indexer.error is None


def test_closing_stops_the_worker(
    library: Library, indexer: Indexer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.indexing.indexer.WORKER", HALTING)
    _import(library, " walrus telescopes" * 20)
    indexer.start()
    until(lambda: indexer.progress is not None)
    indexer.close()
    assert indexer._worker is None


def test_a_worker_spawned_during_closing_is_stopped(
    library: Library, indexer: Indexer, monkeypatch: pytest.MonkeyPatch
) -> None:
    class SpawnedLate(ChildProcess):
        """Spawned after `close` looked for a worker; never ends by itself."""

        def __init__(self, module: str, *arguments: object) -> None:
            super().__init__("tests.app.indexing.endless")
            indexer._closing.set()

    monkeypatch.setattr("app.indexing.indexer.ChildProcess", SpawnedLate)
    _import(library, " walrus telescopes" * 20)
    indexer.start()
    indexer._thread.join(TIMEOUT_S)
    assert not indexer._thread.is_alive()
    assert indexer.error is None


def test_a_failed_worker_is_reported(
    locations: Locations, vocabulary: LlamaVocabulary, library: Library, tmp_path: Path
) -> None:
    _import(library, "walrus")
    failing = Indexer(locations, tmp_path / "no.gguf", vocabulary, BUDGET)
    reported: list[SpecchatError | None] = []
    failing._notify = lambda _, error: reported.append(error)
    failing.start()
    until(lambda: any(reported))
    failing.close()
    assert "indexing failed: " in str(reported[0])
    assert "no.gguf" in str(reported[0])
    assert "\n" not in str(reported[0])


def test_an_import_is_indexed_when_the_library_is_stable(
    indexer: Indexer, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = iter([0, 1, 2, 3])
    seen: list[int] = []
    asked: list[int] = []

    def imports(_: Corpus) -> tuple[int, int]:
        seen.append(next(looks, 3))
        return seen[-1], 0

    def is_due(_: CorpusIndex) -> bool:
        asked.append(seen[-1])
        return False

    monkeypatch.setattr(Corpus, "library_version", imports)
    monkeypatch.setattr(CorpusIndex, "is_due", is_due)
    indexer.start()
    until(lambda: len(seen) > 8)
    assert asked == [3]


def test_the_worker_yields_to_a_deletion(
    locations: Locations, library: Library, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.indexing.indexer.WORKER", HALTING)
    for number in range(12):
        words = "".join(f"word{number}x{place} " for place in range(90))
        _import(library, words, import_path=f"/{number}")
    with ChildProcess(*worker_command(locations, MODEL, BUDGET)) as child:
        assert next(child)
        forget_import(library, history, locations, "/0")
        assert child.code() == EXIT_YIELDED
    for file in locations.data.rglob("*.db*"):
        assert b"word0x1 " not in file.read_bytes()
    assert len(library.imports()) == 11


def test_an_import_takes_the_work_from_the_worker(
    locations: Locations, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.indexing.indexer.WORKER", HALTING)
    _import(library, " walrus telescopes" * 20)
    _import(library, " penguin umbrellas" * 20, "/other")
    with ChildProcess(*worker_command(locations, MODEL, BUDGET)) as child:
        assert next(child)
        assert next(child)
        options = Options(model=str(MODEL))
        assert update_index(options, locations, StatusLine()), "it did the rest"
        assert child.code() == EXIT_YIELDED


def test_no_text_is_begun_while_somebody_waits(
    locations: Locations, vocabulary: LlamaVocabulary, library: Library
) -> None:
    class WaitedError(Exception):
        pass

    def wait() -> None:
        if asked:
            raise WaitedError

    asked = False
    for number in range(6):
        _import(library, f" walrus {number}" * 20, f"/{number}")
    pause_with(wait)
    try:
        with open_index(locations, vocabulary, BUDGET) as index:
            assert index.lock.acquire()
            next(refresh(index, locations))
            asked = True
            with pytest.raises(WaitedError):
                list(refresh(index, locations))
        with closing(open_passages(locations)) as passages:
            assert passages.text_count <= 2, "the ones before it was asked"
    finally:
        pause_with(lambda: None)


def test_a_command_indexes_messages_and_leaves_the_rest_to_a_worker(
    locations: Locations, vocabulary: LlamaVocabulary, library: Library, history: History
) -> None:
    history.add_message(history.create_chat().id, None, "user", " badger lantern" * 20)
    assert catch_up(locations, MODEL, vocabulary, BUDGET, 0) is None
    assert _knows(locations, vocabulary, " badger")
    _import(library, " walrus telescopes" * 20)
    child = catch_up(locations, MODEL, vocabulary, BUDGET, 99)
    assert child is not None
    with child:
        assert child.wait() == 0
    assert _knows(locations, vocabulary, " walrus")


def test_two_workers_do_not_run_at_once(
    locations: Locations, vocabulary: LlamaVocabulary, library: Library
) -> None:
    _import(library, " walrus telescopes" * 20)
    with open_index(locations, vocabulary, BUDGET) as index:
        assert index.lock.acquire()
        with ChildProcess(*worker_command(locations, MODEL, BUDGET)) as child:
            assert (list(child), child.code()) == ([], 0)
        assert index.is_due()
        index.lock.release()


def test_the_worker_tells_of_passages_before_tokens(locations: Locations) -> None:
    with closing(Library.open(locations.library)) as library:
        _import(library, "One text about walruses.")
        _import(library, "Another text about walruses.", "/other")
    with ChildProcess(*worker_command(locations, MODEL, BUDGET)) as worker:
        first, *_, last = worker
        assert worker.code() == 0
    assert (first["done"], first["total"], first["tokens"]) == (0, 2, 0)
    assert last["building"]

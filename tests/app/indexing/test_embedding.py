"""Passages are embedded and searched with a model where there is one, else by their words alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from app.indexing.embedding import PassageEmbedding
from app.indexing.embedding_process import EmbeddingProcess, EmbeddingProgress
from app.indexing.embedding_process import embed as embed_all
from app.indexing.passage_index import find
from app.locations import Locations
from datastores.errors import ModelError, SpecchatError
from datastores.library.documents import NOTES, Document, Part, StoreDocument
from datastores.library.library import Library
from datastores.passages.chunks import split
from datastores.passages.embeddings import StoredVectors
from datastores.passages.store import PassageStore
from datastores.pauses import pause_with
from engines.llama.embedding import EmbeddingModel
from tests.engines.tiny import TinyVocabulary, write_bert

TEXTS = {
    "walrus.md": "The walrus keeps telescopes in its attic.",
    "baker.md": "A baker bakes bread at night.",
    "long.md": "harvest " * 120,
}
Open = Callable[[Path | None], PassageEmbedding]
pytestmark = pytest.mark.usefixtures("indexed_at_normal_priority")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pieces = [f"▁{word}" for text in TEXTS.values() for word in dict.fromkeys(text.split())]
    return write_bert(tmp_path_factory.mktemp("m") / "a.gguf", TinyVocabulary(pieces=pieces))


@pytest.fixture
def passages(locations: Locations, library: Library) -> Iterator[PassageStore]:
    locations.projections.mkdir(parents=True)
    with closing(PassageStore.open(locations.passages)) as store:
        for name, text in TEXTS.items():
            put(library, store, name, text)
        yield store


def put(library: Library, passages: PassageStore, name: str, text: str) -> None:
    library.write([StoreDocument("/notes", name, 0, Document(name, (Part(NOTES, text),)))])
    for digest in set(library.digests()) - passages.keys():
        passages.add(digest, [(0, chunk) for chunk in split(text)])


@pytest.fixture
def errors() -> list[SpecchatError]:
    return []


@pytest.fixture
def embedding(
    passages: PassageStore, locations: Locations, errors: list[SpecchatError]
) -> Iterator[Open]:
    opened: list[PassageEmbedding] = []

    def begin(model: Path | None) -> PassageEmbedding:
        own = PassageStore(passages.store.new_connection())
        found = PassageEmbedding(own, locations, lambda: model, errors.append)
        opened.append(found)
        return found

    yield begin
    for one in opened:
        one.close()


def embed(embedding: PassageEmbedding) -> list[tuple[int, int]]:
    """Embed everything; the progress that was reported."""
    reported = (progress for progress in embedding.embed() if progress is not None)
    return [(progress.done, progress.total) for progress in reported]


def test_a_model_of_the_settings_that_is_missing_is_reported_by_the_first_search(
    passages: PassageStore, locations: Locations, errors: list[SpecchatError]
) -> None:
    def missing() -> Path:
        raise ModelError("no model is called 'gone'")

    for configured in (False, True):
        own = PassageStore(passages.store.new_connection())
        with closing(
            PassageEmbedding(own, locations, missing, errors.append, configured=configured)
        ) as embedding:
            assert embedding.retriever() is None
            assert embedding.retriever() is None
    assert [str(one) for one in errors] == [
        "imports are searched by words only: no model is called 'gone'"
    ]


def test_it_is_embedded_once_and_searched_by_every_later_session(
    library: Library, passages: PassageStore, embedding: Open, file: Path
) -> None:
    first = embedding(file)
    assert first.retriever() is None
    assert embed(first)[-1] == (3, 3), "one of them is longer than the model's context"
    retriever = first.retriever()
    assert retriever is not None
    assert first.retriever() is retriever
    for name in ("walrus.md", "baker.md"):
        ((found,),) = retriever.search([TEXTS[name]], 1)
        assert found.passage.chunk.content == TEXTS[name]
    assert embed(first) == [], "nothing is left"
    put(library, passages, "new.md", "night attic")
    later = embedding(file)
    assert later.retriever() is not None
    assert embed(later) == [(3, 4), (4, 4)]
    assert len(later.retriever() or ()) == 4


def test_without_a_model_words_are_all(
    library: Library, passages: PassageStore, embedding: Open, file: Path
) -> None:
    embed(embedding(file))
    assert embed(embedding(None)) == []
    assert StoredVectors(passages).counts() == (0, 3), "no model is chosen any more"
    without = embedding(None)
    assert without.retriever() is None
    found = find(library, passages, "telescopes", 3, dense=without.retriever())
    assert [one.file for one in found] == ["walrus.md"]


def test_a_model_that_is_gone_is_named_once(
    embedding: Open, file: Path, tmp_path: Path, errors: list[SpecchatError]
) -> None:
    moved = tmp_path / "moved.gguf"
    moved.write_bytes(file.read_bytes())
    embed(embedding(moved))
    moved.unlink()
    later = embedding(moved)
    assert [later.retriever(), later.retriever()] == [None, None]
    assert embed(later) == []
    assert [str(error) for error in errors] == [
        f"imports are searched by words only: the embedding model {moved} is missing:"
        " put it back, or choose another in the settings"
    ]


def test_a_model_that_moved_is_found_where_it_is_now(
    embedding: Open, file: Path, tmp_path: Path, errors: list[SpecchatError]
) -> None:
    before, now = tmp_path / "before.gguf", tmp_path / "now.gguf"
    before.write_bytes(file.read_bytes())
    embed(embedding(before))
    before.rename(now)
    assert embedding(now).retriever() is not None
    assert not errors


def test_another_model_at_the_same_path_begins_anew(
    passages: PassageStore,
    embedding: Open,
    file: Path,
    tmp_path: Path,
    errors: list[SpecchatError],
) -> None:
    replaced = tmp_path / "replaced.gguf"
    replaced.write_bytes(file.read_bytes())
    embed(embedding(replaced))
    write_bert(replaced, TinyVocabulary(), width=32)
    later = embedding(replaced)
    assert later.retriever() is None
    assert f"{replaced} changed; specchat indexes your imports again" in str(errors)
    assert embed(later)[-1] == (3, 3)
    embedder = StoredVectors(passages).embedder
    assert embedder is not None
    assert embedder.width == 32
    assert later.retriever() is not None
    assert len(errors) == 1


def test_a_file_that_is_no_model_keeps_nothing_from_being_found(
    library: Library, passages: PassageStore, embedding: Open, errors: list[SpecchatError]
) -> None:
    damaged = passages.store.path.with_name("damaged.gguf")
    damaged.write_bytes(b"GGUF" + bytes(40))
    broken = embedding(damaged)
    assert embed(broken) == []
    assert len(errors) == 1
    assert broken.retriever() is None
    assert find(library, passages, "bread", 1, dense=None)


def test_killed_in_the_middle_it_goes_on_where_it_was(
    library: Library, passages: PassageStore, locations: Locations, file: Path
) -> None:
    for number in range(20):
        put(library, passages, f"{number}.md", f"night {number} " * 60)
    process = EmbeddingProcess(file, locations)
    begun, first = process.more(), process.more()
    process._child.stop()
    with pytest.raises(ModelError, match="failed"):
        list(iter(process.more, None))
    process.close()
    assert begun == EmbeddingProgress(0, 23)
    assert first is not None
    stored = StoredVectors(passages).counts()[0]
    assert 0 < first.done <= stored
    beside = embed_all(passages, file, locations)
    again, *_, last = embed_all(passages, file, locations)
    assert again == EmbeddingProgress(stored, 23)
    assert last == EmbeddingProgress(23, 23)
    assert list(beside)[-1].done == 23, "another process did the same meanwhile"
    assert StoredVectors(passages).counts() == (23, 23)


def test_one_process_embeds_when_idle(passages: PassageStore, embedding: Open, file: Path) -> None:
    first, second = embedding(file), embedding(file)
    running = first.embed()
    while next(running) is None:
        pass
    assert embed(second) == []
    running.close()
    assert embed(second)[-1] == (3, 3)


def test_closing_ends_the_process_that_embeds(embedding: Open, file: Path) -> None:
    one = embedding(file)
    running = one.embed()
    while next(running) is None:
        pass
    one.close()
    assert one._process is not None
    assert not one._process._child.is_running()
    running.close()


def test_a_pass_pauses_while_somebody_waits(file: Path) -> None:
    pauses: list[int] = []
    pause_with(lambda: pauses.append(1))
    try:
        texts = ["walrus keeps telescopes"]
        plain = EmbeddingModel(file, threads=1).encode(texts)
        assert not pauses
        pausable = EmbeddingModel(file, threads=1, pausable=True).encode(texts)
    finally:
        pause_with(lambda: None)
    assert len(pauses) > 10, "several times within one pass"
    assert np.array_equal(plain, pausable)


def test_a_model_loaded_ahead_is_the_one_that_searches(
    embedding: Open, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    embed(embedding(file))
    later = embedding(file)
    later.warm_up()
    monkeypatch.setattr("app.indexing.embedding.load_model", None)
    assert later.retriever() is not None

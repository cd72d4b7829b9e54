"""Passages are embedded and searched with a model where there is one, else by their words alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from app.indexing.embedding import PassageEmbedding
from app.indexing.passage_index import find
from app.locations import Locations
from datastores.errors import ModelError, SpecchatError
from datastores.library.documents import NOTES, Document, Part, StoreDocument
from datastores.library.library import Library
from datastores.passages.chunks import split
from datastores.passages.embeddings import StoredVectors
from datastores.passages.store import PassageStore
from engines.llama.embedding import EmbeddingModel
from engines.target import Floats
from tests.engines.tiny import TinyVocabulary, write_bert

TEXTS = {
    "walrus.md": "The walrus keeps telescopes in its attic.",
    "baker.md": "A baker bakes bread at night.",
    "long.md": "harvest " * 120,
}
Open = Callable[[Path | None], PassageEmbedding]


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
def embedding(passages: PassageStore, file: Path, errors: list[SpecchatError]) -> Iterator[Open]:
    opened: list[PassageEmbedding] = []

    def begin(model: Path | None) -> PassageEmbedding:
        own = PassageStore(passages.store.new_connection())
        found = PassageEmbedding(own, file.with_name("probed.json"), lambda: model, errors.append)
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
    passages: PassageStore, file: Path, errors: list[SpecchatError]
) -> None:
    def missing() -> Path:
        raise ModelError("no model is called 'gone'")

    for configured in (False, True):
        own = PassageStore(passages.store.new_connection())
        probed = file.with_name("probed.json")
        with closing(
            PassageEmbedding(own, probed, missing, errors.append, configured=configured)
        ) as embedding:
            assert embedding.retriever() is None
            assert embedding.retriever() is None
    assert [str(one) for one in errors] == [
        "imports are searched by words only: no model is called 'gone'"
    ]


def test_it_is_embedded_once_and_searched_by_every_later_session(
    library: Library,
    passages: PassageStore,
    embedding: Open,
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
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
    encoded: list[str] = []
    encode = EmbeddingModel.encode_passages

    def spied(model: EmbeddingModel, texts: Sequence[str]) -> Floats:
        encoded.extend(texts)
        return encode(model, texts)

    monkeypatch.setattr(EmbeddingModel, "encode_passages", spied)
    put(library, passages, "new.md", "night attic")
    later = embedding(file)
    assert later.retriever() is not None
    assert embed(later)[-1] == (4, 4)
    assert encoded == ["night attic"]
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

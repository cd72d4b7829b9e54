"""Opening a model: what it reports later reaches whoever asked."""

from __future__ import annotations

import shutil
from collections.abc import Generator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from app.chat_settings import DOCS_OFF
from app.config import Options
from app.conversation.imported_texts import ImportedTexts
from app.engine.answerability import Answerability
from app.indexing.passage_index import update
from app.locations import Locations
from app.models.discovery import embedded
from app.runtime.open_model import open_for_one_answer, open_model
from datastores.chats.history import History
from datastores.library.documents import NOTES, Document, Part, StoreDocument
from engines.answerability import write_classifier
from tests.app.scripted_states import classifier


@pytest.mark.parametrize("imported", [False, True])
def test_what_prevents_the_check_is_among_the_errors_of_one_answer(
    locations: Locations, history: History, tmp_path: Path, imported: bool
) -> None:
    if imported:
        ImportedTexts.open(locations).close()
    copy = shutil.copy(embedded(), tmp_path / "other.gguf")
    options = Options(model=str(copy), drafters=())
    with closing(open_for_one_answer(options, locations, history, DOCS_OFF)) as model:
        engine = model.engine
        assert engine is not None
        assert engine.answerability is not None
        reported = list(engine.errors)
        locations.answerability.mkdir()
        known = classifier(layer=0)
        write_classifier(engine.answerability.path, replace(known, weights=known.weights[:-1]))
        assert engine.answerability.check is None
        (error,) = engine.errors[len(reported) :]
        assert "passages are used unchecked" in str(error)


@pytest.mark.usefixtures("unhurried_close", "indexed_at_normal_priority")
def test_learning_to_check_is_the_last_idle_work_and_switched_with_it(
    locations: Locations, history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = list[Answerability]()

    def learn(answerability: Answerability, _: Locations) -> Generator[None]:
        begun.append(answerability)
        yield

    monkeypatch.setattr("app.runtime.idle_answerability.learn_when_idle", learn)
    monkeypatch.setattr("app.runtime.idle_work.on_battery", lambda: False)
    locations.settings.write_text('embedding = "off"')
    with closing(ImportedTexts.open(locations)) as imports:
        document = Document("a.md", (Part(NOTES, "The walrus sings."),))
        imports._library.write([StoreDocument("/notes", "a.md", 0, document)])
        list(update(imports._library, imports._passages))
    copy = shutil.copy(embedded(), tmp_path / "other.gguf")
    options = Options(model=str(copy), drafters=())
    with closing(open_model(options, locations, history, lambda *_: None)) as model:
        *_, learning = model.idle
        model.switch_idle(False)
        assert not any(work.slice() for work in model.idle)
        assert begun == []
        model.switch_idle(True)
        assert learning.slice()
        assert model.engine is not None
        assert begun == [model.engine.answerability]

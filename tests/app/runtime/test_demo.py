"""The demonstration's stage is temporary and real, and its conclusion is what was measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.chat_settings import DOCS_OFF
from app.config import Options, load_config
from app.conversation.assistant import Assistant
from app.conversation.events import Finished, Wrote
from app.engine.loading import load
from app.locations import locate
from app.models.discovery import BUILT_IN
from app.runtime import demo
from app.runtime.demo import AFTER, BEFORE, MeasuredAnswer, conclusion, demo_stage, speedup
from datastores.chats.history import History
from datastores.errors import ModelError, StoreError
from engines.llama.enlarge import Enlargement


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "LARGER", Enlargement(deeper=1))


def _answer(options: Options, data: Path, question: str) -> str:
    locations = locate(data)
    locations.create()
    engine = load(options, locations)
    history = History.open(locations.history)
    try:
        events = list(Assistant(engine, history).answer_unsaved(None, question))
    finally:
        engine.close()
        history.close()
    assert isinstance(events[-1], Finished)
    return "".join(
        piece.text for event in events if isinstance(event, Wrote) for piece in event.pieces
    )


def test_the_stage_is_removed_and_leaves_everything_else_alone() -> None:
    with demo_stage() as stage:
        assert stage.file.parent == stage.folder
        assert stage.options.data_dir is not None
        assert stage.options.data_dir.parent == stage.folder
        assert Path(str(stage.options.model)).parent == stage.folder
    assert not stage.folder.exists()
    with demo_stage() as stage:
        stage.remove()
        assert not stage.folder.exists()


def test_the_file_holds_the_later_answers_of_the_embedded_model_and_not_the_earlier_ones(
    tmp_path: Path,
) -> None:
    plain = Options(model=BUILT_IN, drafters=(), temperature=0.0)
    with demo_stage() as stage:
        text = stage.file.read_text()
        assert all(_answer(plain, tmp_path, question) in text for question in AFTER)
        assert not any(_answer(plain, tmp_path, question) in text for question in BEFORE)
        stage.make_model()
        assert _answer(stage.options, tmp_path, AFTER[0]) in text


def test_imports_are_not_searched_so_that_the_answers_stay_the_model_s_own() -> None:
    with demo_stage() as stage:
        assert load_config(locate(stage.options.data_dir).settings).docs == DOCS_OFF


def test_a_full_disk_is_an_error_with_a_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(demo, "enlarge", full)
    with demo_stage() as stage, pytest.raises(StoreError, match=r"needs 500 MB .*set TMPDIR"):
        stage.make_model()

    def odd(*_: object) -> None:
        raise ModelError("it cannot be enlarged")

    monkeypatch.setattr(demo, "enlarge", odd)
    with demo_stage() as stage, pytest.raises(ModelError):
        stage.make_model()


def test_the_conclusion_is_what_was_measured_and_explains_a_small_speedup() -> None:
    before = [MeasuredAnswer(40, 36, 2.0, 2.2)]
    after = [MeasuredAnswer(60, 20, 1.5, 3.0), MeasuredAnswer(60, 28, 1.5, 3.0)]
    assert speedup(after) == 2.0
    assert conclusion(before, after) == (
        "Before the import, answers came about as fast with drafts as without; after it, 2.0× as"
        " fast, with 2.5 tokens per step."
    )
    slow = [MeasuredAnswer(60, 24, 2.5, 3.0)]
    assert "took 2.1 times as long as one without" in conclusion(before, slow)
    assert speedup([]) == 0.0
    undrafted = [MeasuredAnswer(60, 59, 3.0, 3.0)]
    assert "Few drafts were worth checking" in conclusion(before, undrafted)

"""The recipe of answerability classifiers writes one that specchat finds and uses."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from app.engine.answerability import Answerability
from app.engine.asked_notes import read_notes
from app.runtime.idle_answerability import every
from assets.recipe import answerability as recipe
from tests.app.scripted_states import LAYER, ScriptedModel, letters, unexpected

NOTES = 12


def test_a_classifier_is_written_to_a_folder_that_need_not_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "any.gguf"
    path.touch()
    answered = tuple(
        letters(f"{question}\nAnswer:")
        for note in every(read_notes(), NOTES)
        for question in note.answered
    )
    model = ScriptedModel(lambda text: text.endswith(answered))
    monkeypatch.setattr(recipe, "load", lambda _: model)
    arguments = [str(path), "--notes", str(NOTES), "--folder", str(tmp_path / "new" / "folder")]
    result = CliRunner().invoke(recipe.main, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    answerability = Answerability(model, tmp_path / "new" / "folder", unexpected)
    assert f"{answerability.path.name}: layer {LAYER}" in result.output
    assert answerability.check is not None
    assert len(model.texts) == sum(
        len(note.answered) + len(note.unanswered) for note in every(read_notes(), NOTES)
    )

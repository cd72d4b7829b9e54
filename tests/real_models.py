"""Where tests find real models, and what a test does without one.

`SPECCHAT_TEST_MODELS` names a folder of GGUF files; SmolLM2 also comes with the `test` extra.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from app.locations import PACKAGED_MODELS_VARIABLE, model_folders

FOLDER_VARIABLE = "SPECCHAT_TEST_MODELS"


def real_model(pattern: str) -> Path:
    """The first GGUF file whose name matches `pattern`; skips the test if there is none."""
    with pytest.MonkeyPatch.context() as patched:
        patched.delenv(PACKAGED_MODELS_VARIABLE, raising=False)
        packaged = model_folders().packaged
    chosen = os.environ.get(FOLDER_VARIABLE)
    for folder in ([Path(chosen)] if chosen else []) + list(packaged):
        if found := sorted(folder.glob(f"{pattern}.gguf")):
            return found[0]
    pytest.skip(f"no {pattern}.gguf in {FOLDER_VARIABLE}, nor in the package of the extra `test`")

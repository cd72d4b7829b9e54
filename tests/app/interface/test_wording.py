"""Words that several screens share: the name of a model, as far as it fits."""

from __future__ import annotations

import pytest

from app.interface.wording import short_name


@pytest.mark.parametrize(
    ("name", "columns", "shown"),
    [
        ("built-in", 40, "built-in"),
        ("org/repo-GGUF:Q4_K_M", 20, "org/repo-GGUF:Q4_K_M"),
        ("org/repo-GGUF:Q4_K_M", 19, "repo-GGUF:Q4_K_M"),
        ("org/repo-GGUF:Q4_K_M", 12, "…GGUF:Q4_K_M"),
        ("built-in", 1, "…"),
        ("built-in", 0, ""),
        ("/models/of/mine/a-Q8_0.gguf", 15, "a-Q8_0.gguf"),
        ("/models/of/mine/a-Q8_0.gguf", 10, "…Q8_0.gguf"),
        ("org/e\x1b[2Jvil\n:Q8_0", 40, "org/e␛[2Jvil :Q8_0"),
    ],
)
def test_a_long_name_keeps_its_end(name: str, columns: int, shown: str) -> None:
    assert short_name(name, columns) == shown

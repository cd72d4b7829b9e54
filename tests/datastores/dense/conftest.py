"""Every test of the dense index fits its projection to few states."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _few_states_are_enough(small_sample: None) -> None:
    pass

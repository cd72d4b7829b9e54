"""What holds for every test."""

from __future__ import annotations

from hypothesis import settings

# A deadline for each example would be a timing assertion, and fail on a busy machine.
settings.register_profile("specchat", deadline=None)
settings.load_profile("specchat")

"""Benchmarks: what drafting, retrieval and learning bring, measured on this machine."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from datastores.errors import InputError


def extra(name: str) -> Any:
    """A library of the extra `bench`.

    Raises:
        InputError: it is not installed.
    """
    try:
        return import_module(name)
    except ImportError as error:
        raise InputError(f"{name} is not installed: pip install -e '.[bench]'") from error

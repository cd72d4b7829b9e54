"""Every failure specchat names: one root, few leaves, each worded once for the person.

A message is one line that names the thing and the way out. The edge (the command line, a
notification) prints it; nothing below the edge swallows it. This stands in the lowest package so
that all three can raise it.
"""

from __future__ import annotations


class SpecchatError(Exception):
    """The root. `str(error)` is one line for a person; exit code 1 on the command line."""


class ModelError(SpecchatError):
    """A model file that is missing, damaged, hostile, or will not run here."""


class ContextOverflowError(SpecchatError):
    """A prompt that does not fit into the model's context window."""


class StoreError(SpecchatError):
    """A database or index that cannot be read, written, or is from a newer version."""


class InputError(SpecchatError):
    """Something the person gave that cannot be used as it is."""

"""Every error that specchat raises on purpose: one root, few leaves.

A message is one line for the user, with the offending value and how to fix it. The command line and
the interface print it; nothing below them swallows it.
"""

from __future__ import annotations


class SpecchatError(Exception):
    """The root. `str(error)` is one line for the user; exit code 1 on the command line."""


class ModelError(SpecchatError):
    """A model file that is missing, damaged, hostile, or will not run here."""


class ContextOverflowError(SpecchatError):
    """A prompt that does not fit into the model's context window."""


class StoreError(SpecchatError):
    """A database or index that cannot be read, written, or is from a newer version."""


class InputError(SpecchatError):
    """Input from the user that cannot be used as it is."""

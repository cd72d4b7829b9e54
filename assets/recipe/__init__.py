"""The recipe that makes the embedded pair; see README.md beside this file."""

from __future__ import annotations

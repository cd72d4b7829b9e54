"""A seal on bytes that mean something to one owner alone: it tells whose they are, and that none
differs.

SQLite checks the form of its pages, not what stands in them. Refuses to know what is sealed.
"""

from __future__ import annotations

import hashlib

LENGTH = 32
"""Bytes of a seal."""


def sealed(owner: str, body: bytes) -> bytes:
    """`body` behind the seal of `owner`."""
    return _seal(owner, body) + body


def unsealed(owner: str, blob: bytes) -> bytes:
    """What `sealed` was given.

    Raises:
        ValueError: it is damaged, or another owner's.
    """
    body = blob[LENGTH:]
    if _seal(owner, body) != blob[:LENGTH]:
        raise ValueError(f"not sealed by {owner}")
    return body


def _seal(owner: str, body: bytes) -> bytes:
    return hashlib.sha256(owner.encode() + b"\n" + body).digest()

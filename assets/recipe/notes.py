"""How notes stand in a chat: the one place that fixes the form the model is trained on.

A program that gives the model documents uses the same form (see the model card): a system message
of ``HEADER`` and the documents' own text, a blank line between two. Knows nothing of pages.
"""

from collections.abc import Sequence

HEADER = "Notes:"

NOT_COVERED = "The notes do not cover this."
"""How an answer begins when notes are given and none of them fits."""


def notes_message(documents: Sequence[str]) -> str:
    """The content of the system message that carries ``documents``, in whatever order."""
    return "\n\n".join((HEADER, *(document.strip() for document in documents)))

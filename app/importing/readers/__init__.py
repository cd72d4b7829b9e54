"""The formats, one small file each. A new one is a file with a `Reader` and a line here."""

from __future__ import annotations

from app.importing.material import Reader
from app.importing.readers import (
    chatgpt,
    claude,
    data,
    html,
    messages,
    notebook,
    own,
    pdf,
    sharegpt,
    shell,
    text,
)
from app.importing.readers.worker import Worker


def make_readers(worker: Worker) -> tuple[Reader, ...]:
    """All readers; the first that claims a material reads it, and the last claims everything."""
    return (
        pdf.make_reader(worker),
        notebook.READER,
        own.READER,
        chatgpt.READER,
        claude.READER,
        sharegpt.READER,
        messages.READER,
        shell.BASH,
        shell.ZSH,
        shell.FISH,
        html.make_reader(worker),
        data.READER,
        text.READER,
    )

"""The question of `specchat ask`, from words, files and standard input."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import TextIO

import click

from app.conversation.attachments import STANDARD_INPUT, Attachment, read_attachment, read_stream
from datastores.errors import InputError

PATIENCE_S = 2.0
"""Seconds of reading standard input before `WAITING` is printed."""
WAITING = "Reading standard input until it ends. To ask without it: Ctrl-C, and add -n."


def read_question(
    words: Sequence[str], files: Sequence[Path], stdin: TextIO | None
) -> tuple[str, list[Attachment]]:
    """The question in `words`, and its attachments: `files`, then piped text.

    Without words, or with `-`, the piped text is the question.

    Args:
        stdin: None if it must not be read.

    Raises:
        InputError: there is no question, or an attachment is not text.
    """
    question = " ".join(words)
    piped = None
    if stdin is not None and (question == "-" or _is_ours(stdin)):
        with _hinting_that_it_waits():
            piped = read_stream(stdin.buffer, STANDARD_INPUT)
    elif not words:
        raise InputError("no question: write it after `specchat ask`, or pipe it in")
    if question in ("", "-") and piped is not None:
        question, piped = piped.text, None
    if not question.strip():
        raise InputError("no question: write it after `specchat ask`, or pipe it in")
    attachments = [read_attachment(path) for path in files]
    return question, [*attachments, piped] if piped is not None and piped.text else attachments


def _is_ours(stdin: TextIO) -> bool:
    """Whether standard input was meant for this command.

    A terminal is not, nor is a file that was read in part, by a loop (`while read … done < FILE`).
    """
    if stdin.isatty():
        return False
    try:
        return os.lseek(stdin.fileno(), 0, os.SEEK_CUR) == 0
    except OSError:
        return True  # a pipe has no position


@contextmanager
def _hinting_that_it_waits() -> Iterator[None]:
    """Print `WAITING` if standard input does not end soon, since it may never end."""
    timer = Timer(PATIENCE_S, click.echo, [WAITING], {"err": True})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()

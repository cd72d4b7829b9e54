"""Reading workloads: one chat a line, as JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datastores.errors import InputError


@dataclass(frozen=True, slots=True)
class Workload:
    """One chat of a workload: its id and the person's messages, in order."""

    id: str
    questions: tuple[str, ...]


def read_workload(path: Path) -> list[Workload]:
    """The chats in `path`: lines of {"id", "messages": [{"role": "user", "content"}, …]}.

    Messages of other roles are left out: the assistant's turns are generated.

    Raises:
        InputError: the file cannot be read, holds no chat, or a line is not of this form.
    """
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the workload {path}: {error}") from error
    chats = [_chat(line, path, number) for number, line in enumerate(lines, 1) if line.strip()]
    if not chats:
        raise InputError(f"the workload {path} holds no chats")
    return chats


def _chat(line: str, path: Path, number: int) -> Workload:
    try:
        record: Any = json.loads(line)
        questions = tuple(
            str(message["content"]) for message in record["messages"] if message["role"] == "user"
        )
        chat = Workload(str(record.get("id", number)), questions)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(
            f'{path}, line {number}: expected {{"id", "messages": [{{"role", "content"}}, …]}}'
        ) from error
    if not chat.questions:
        raise InputError(f"{path}, line {number}: no message of role user")
    return chat

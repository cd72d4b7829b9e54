"""`python -m tests.recorded_workloads code|passages FILE`: workloads for `bench decode --recorded`.

From Python's standard library, so that nothing large is kept here: source code to be completed, and
prose from docstrings to be copied with a word changed now and then, as an editor does.
"""

from __future__ import annotations

import ast
import json
import random
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

CHATS = 40
SEED = 19
LINES_BEFORE, LINES_AFTER = 40, 25
MIN_WORDS, MAX_WORDS = 60, 120
CHANGED = 0.03
"""Share of the words that a copy changes."""


def sources() -> list[Path]:
    """The modules of the standard library, in an order that does not depend on the machine."""
    return sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))


def code(rng: random.Random) -> Iterator[tuple[str, str]]:
    """A part of a module to be completed, and how it goes on."""
    for path in rng.sample(sources(), len(sources())):
        lines = path.read_text("utf-8").splitlines(keepends=True)
        if len(lines) > 2 * (LINES_BEFORE + LINES_AFTER):
            at = rng.randrange(LINES_BEFORE, len(lines) - LINES_AFTER)
            before, after = lines[at - LINES_BEFORE : at], lines[at : at + LINES_AFTER]
            yield "Complete this Python code:\n" + "".join(before), "".join(after)


def passages(rng: random.Random) -> Iterator[tuple[str, str]]:
    """A text to be corrected, and a copy of it with a few words changed."""
    for path in rng.sample(sources(), len(sources())):
        text = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
        words = text.split()[:MAX_WORDS]
        if len(words) >= MIN_WORDS:
            copy = [word.upper() if rng.random() < CHANGED else word for word in words]
            yield "Correct this text:\n" + " ".join(words), " ".join(copy)


def main(kind: str, file: str) -> None:
    """Write the workload `kind` to `file`."""
    pairs = {"code": code, "passages": passages}[kind](random.Random(SEED))
    lines = []
    for number, (question, answer) in zip(range(CHATS), pairs, strict=False):
        messages = [("user", question), ("assistant", answer)]
        said = [{"role": role, "content": text} for role, text in messages]
        lines.append(json.dumps({"id": f"{kind}-{number}", "messages": said}) + "\n")
    Path(file).write_text("".join(lines), "utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])

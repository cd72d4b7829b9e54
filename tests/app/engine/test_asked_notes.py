"""The notes with questions that classifiers are learned from."""

from __future__ import annotations

import pytest

from app.engine.asked_notes import parse, read_notes
from datastores.errors import InputError

BLOCKS = """# A comment.
---
@ notes/dad.md
# Dad

He sings in the choir.
+ does my father sing?
- does my mother sing?
---

@ Chat: bread
bake at 220
+ how hot?
+ which temperature
- how long?
"""


def test_blocks_are_notes() -> None:
    dad, bread = parse(BLOCKS)
    assert dad.text == "# Dad\n\nHe sings in the choir."
    assert (dad.answered, dad.unanswered) == (("does my father sing?",), ("does my mother sing?",))
    assert bread.excerpt == "Chat: bread\nbake at 220"
    assert bread.answered == ("how hot?", "which temperature")


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ("dad.md\ntext\n+ a\n- b", "line 3: not '@ name': dad.md"),
        ("@ dad.md\ntext\n+ a", "line 3: a note needs"),
        ("@ dad.md\ntext\n- a", "line 3: a note needs"),
        ("@ dad.md\n+ a\n- b", "line 3: a note needs"),
        ("@ dad.md\ntext\n+ a\nmore\n- b", "line 6: text after questions: more"),
    ],
)
def test_a_malformed_block_is_named(block: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        list(parse(f"# A comment.\n---\n{block}\n---\n"))


def test_what_ships_is_whole() -> None:
    notes = read_notes()
    assert len(notes) == 2_289
    assert sum(len(one.answered) + len(one.unanswered) for one in notes) == 25_695
    assert all(one.answered and one.unanswered for one in notes)
    assert not any(set(one.answered) & set(one.unanswered) for one in notes)
    assert all(one.name and one.text for one in notes)

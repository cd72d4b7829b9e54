"""Which tokens of an answer are copied from its notes, and from where."""

from pathlib import Path
from random import Random

import numpy as np
import pytest
from tokenizers import Tokenizer

from assets.recipe import from_memory, with_notes
from assets.recipe.pages import read_pages, split
from assets.recipe.prepare import make_pool
from assets.recipe.tokens import (
    COPIED_WEIGHT,
    NO_SOURCE,
    WEIGHT_SCALE,
    Encoded,
    encode_chats,
)
from assets.recipe.turns import ChatTurn, Kind, Pool, answer_how, notes_message
from assets.recipe.wording import Style

PAGE = "# ls\n\n- List files:\n\n`ls -l`\n\n- List all, even hidden:\n\n`ls -a {{x}}`\n"


@pytest.fixture(scope="module")
def pool(checkout: Path) -> Pool:
    return make_pool(split(read_pages(checkout)))


def _encode(tokenizer: Tokenizer, *turns: ChatTurn) -> Encoded:
    return encode_chats(tokenizer, [turns])[0]


def _texts(tokenizer: Tokenizer, chat: Encoded, indices: list[int]) -> str:
    return tokenizer.decode(chat.ids[indices].tolist())


def test_a_task_and_its_command_are_copied_from_their_place(tokenizer: Tokenizer) -> None:
    notes, question = ChatTurn("system", notes_message([PAGE])), ChatTurn("user", "all files?")
    answer = ChatTurn("assistant", answer_how("ls", "List all, even hidden", "ls -a {{x}}"), 1.0)
    chat = _encode(tokenizer, notes, question, answer)
    taken = np.flatnonzero(chat.copied >= 0)
    assert _texts(tokenizer, chat, taken.tolist()).endswith(" List all, even hiddenls -a {{x}}")
    sources = chat.copied[taken].tolist()
    assert chat.ids[sources].tolist() == chat.ids[taken].tolist()
    before = _texts(tokenizer, chat, list(range(sources[-1] + 1)))
    assert before.endswith("even hidden:\n\n`ls -a {{x}}")


def test_an_answer_refers_to_the_end_of_the_requested_task(tokenizer: Tokenizer) -> None:
    notes, question = ChatTurn("system", notes_message([PAGE])), ChatTurn("user", "all files?")
    answer = ChatTurn("assistant", answer_how("ls", "List all, even hidden", "ls -a {{x}}"), 1.0)
    chat = _encode(tokenizer, notes, question, answer)
    place = int(chat.chosen.max())
    assert _texts(tokenizer, chat, list(range(place))).endswith("- List all, even hidden")
    led = _texts(tokenizer, chat, np.flatnonzero(chat.chosen == place).tolist())
    assert led == "ls -a {{x}}`" + answer.text.removeprefix("Use")


@pytest.mark.parametrize(
    "answer",
    [
        answer_how("ls", "List files", "ls -a {{x}}"),
        answer_how("ls", "List links", "ls -l"),
        "The notes do not cover this. " + answer_how("ls", "List files", "ls -l"),
    ],
)
def test_what_is_not_in_the_notes_has_no_source(tokenizer: Tokenizer, answer: str) -> None:
    notes = ChatTurn("system", notes_message([PAGE]))
    chat = _encode(tokenizer, notes, ChatTurn("user", "?"), ChatTurn("assistant", answer, 1.0))
    assert (chat.copied == NO_SOURCE).all()
    assert (
        _texts(tokenizer, chat, np.flatnonzero(chat.chosen >= 0).tolist()) == "ls -l`ls -a {{x}}`"
    )


@pytest.mark.parametrize(
    "kind",
    [
        with_notes.one_page,
        with_notes.several_pages,
        with_notes.drill,
        with_notes.drill_own_words,
        with_notes.pasted,
    ],
)
def test_every_source_is_the_same_token_before(
    kind: Kind, pool: Pool, tokenizer: Tokenizer
) -> None:
    rng = Random(4)
    chats = encode_chats(tokenizer, [kind(pool, rng, Style()) for _ in range(60)])
    assert sum(int((chat.copied >= 0).sum()) for chat in chats) > 200
    for chat in chats:
        taken = np.flatnonzero(chat.copied >= 0)
        assert (chat.copied[taken] < taken).all()
        assert (chat.ids[chat.copied[taken]] == chat.ids[taken]).all()
        assert (chat.chosen < np.arange(len(chat.ids))).all()


def test_what_a_question_names_is_copied_from_it(tokenizer: Tokenizer) -> None:
    first = (
        ChatTurn("user", "show the last 35 lines of kernel.log"),
        ChatTurn("assistant", "Use?", 1.0),
    )
    question = ChatTurn("user", "no, of boot.log")
    answer = ChatTurn("assistant", answer_how("tail", "Show lines", "tail -n 35 boot.log"), 1.0)
    chat = _encode(tokenizer, *first, question, answer)
    taken = np.flatnonzero(chat.copied >= 0)
    assert _texts(tokenizer, chat, taken.tolist()) == " 35 boot.log"
    sources = chat.copied[taken]
    assert (chat.ids[sources] == chat.ids[taken]).all()
    asked = _texts(tokenizer, chat, list(range(int(sources.max()) + 1)))
    assert asked.endswith("no, of boot.log")
    assert (chat.weights[taken] == COPIED_WEIGHT * WEIGHT_SCALE).all()


@pytest.mark.parametrize(
    ("question", "copied"), [("make a git branch", " gustav"), ("gustav wants a git branch", "")]
)
def test_a_word_that_only_a_follow_up_names_is_copied_from_it(
    tokenizer: Tokenizer, question: str, copied: str
) -> None:
    first = answer_how("git branch", "Make a branch", "git branch <branch>")
    second = answer_how("git branch", "Make a branch", "git branch gustav")
    chat = _encode(
        tokenizer,
        ChatTurn("user", question),
        ChatTurn("assistant", first, 1.0),
        ChatTurn("user", "call it gustav"),
        ChatTurn("assistant", second, 1.0),
    )
    assert _texts(tokenizer, chat, np.flatnonzero(chat.copied >= 0).tolist()) == copied


def test_a_value_in_another_unit_is_copied_up_to_its_number(tokenizer: Tokenizer) -> None:
    answer = answer_how("find", "Find large files", "find . -size +3G")
    question = ChatTurn("user", "files larger than 3 GB")
    chat = _encode(tokenizer, question, ChatTurn("assistant", answer, 1.0))
    assert _texts(tokenizer, chat, np.flatnonzero(chat.copied >= 0).tolist()) == "3"


def test_without_notes_only_values_are_copied(pool: Pool, tokenizer: Tokenizer) -> None:
    rng, style = Random(5), Style(values=0.0, concrete=0.0)
    chats = encode_chats(tokenizer, [from_memory.glance(pool, rng, style) for _ in range(40)])
    assert all((chat.copied == NO_SOURCE).all() for chat in chats)

"""The first step, which trains the tokenizer, and the kinds of chat with their shares."""

from __future__ import annotations

import logging
from pathlib import Path
from random import Random

from assets.recipe import from_memory, with_notes
from assets.recipe.follow_ups import follow_up
from assets.recipe.material_files import read_small_talk, read_tasks
from assets.recipe.outside import read_outside
from assets.recipe.pages import Split, read_pages, split
from assets.recipe.tokens import train_tokenizer
from assets.recipe.turns import Chat, Kind, Pool
from assets.recipe.wording import Style

_LOG = logging.getLogger(__name__)


def make_pool(parts: Split) -> Pool:
    """The material of chats: known and familiar pages, and the hand-written files."""
    known = parts.known or parts.familiar
    seen = parts.known + parts.familiar
    tasks = read_tasks(seen)
    own_words = read_tasks(seen, "own_words.txt")
    everyday = {task.name for task in tasks}
    core = tuple(page for page in known if page.name in everyday) or known
    harmless = read_tasks(seen, "harmless.txt")
    return Pool(core, known, seen, tasks, read_small_talk(), read_outside(), own_words, harmless)


def prepare(source: Path, path: Path, vocabulary: int, chats: int, seed: int) -> None:
    """Train a tokenizer of ``vocabulary`` ids on ``chats`` and write it, unless ``path`` exists."""
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    pool, rng = make_pool(split(read_pages(source))), Random(seed)
    drawn = (make_chat(pool, rng, Style()) for _ in range(chats))
    texts = ("\n".join(turn.text for turn in chat) for chat in drawn)
    train_tokenizer(texts, vocabulary).save(str(path))
    _LOG.info("wrote %s", path)


KINDS: dict[Kind, float] = {
    from_memory.recall: 150,
    from_memory.recall_more: 16,
    from_memory.wander: 20,
    from_memory.everyday: 360,
    from_memory.harmless: 330,
    from_memory.glance: 1,
    from_memory.what_is: 3,
    from_memory.explain: 1,
    from_memory.show_examples: 0.5,
    from_memory.small_talk: 5,
    from_memory.outside: 170,
    follow_up: 52,
    from_memory.unknown_name: 4,
    with_notes.one_page: 19,
    with_notes.several_pages: 5,
    with_notes.drill: 10,
    with_notes.drill_own_words: 8,
    with_notes.pasted: 1,
    with_notes.retrieved: 85,
}
"""The relative number of chats of each kind.

By tokens, 15 % are questions with what retrieval shows, 19 % other chats with notes, 22 % everyday
tasks, 14 % tasks that look destructive and are not, 9 % other tasks of known pages, 6 % follow-ups,
11 % questions outside the subject, and 4 % everything else."""


def make_chat(pool: Pool, rng: Random, style: Style) -> Chat:
    """Draw a kind by its share, and a chat of that kind."""
    kind = rng.choices(list(KINDS), weights=list(KINDS.values()))[0]
    return kind(pool, rng, style)

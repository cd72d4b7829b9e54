"""The first step: makes a tokenizer and encoded chats from the pages.

Owns the kinds of chat and their shares, and the layout of the prepared folder: ``tokenizer.json``
and the arrays of the corpus. Evaluation draws the same kinds of chat in fresh wording.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from random import Random

from tokenizers import Tokenizer

from assets.recipe import from_memory, with_notes
from assets.recipe.batches import Corpus
from assets.recipe.follow_ups import follow_up
from assets.recipe.material_files import read_small_talk, read_tasks
from assets.recipe.outside import read_outside
from assets.recipe.pages import Split, read_pages, split
from assets.recipe.settings import Setting
from assets.recipe.tokens import Encoded, encode_chats, load_tokenizer, train_tokenizer
from assets.recipe.turns import Chat, Kind, Pool
from assets.recipe.wording import Style

_LOG = logging.getLogger(__name__)
_TOKENIZER_CHATS = 30_000
_BLOCK = 2_000


def make_pool(parts: Split) -> Pool:
    """The material of chats: the known and the familiar pages, and the hand-written files."""
    known = parts.known or parts.familiar
    seen = parts.known + parts.familiar
    tasks = read_tasks(seen)
    own_words = read_tasks(seen, "own_words.txt")
    everyday = {task.name for task in tasks}
    core = tuple(page for page in known if page.name in everyday) or known
    return Pool(core, known, seen, tasks, read_small_talk(), read_outside(), own_words)


def prepare(source: Path, folder: Path, setting: Setting, seed: int) -> None:
    """Write the tokenizer (an existing one is kept) and the training chats into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    pool = make_pool(split(read_pages(source)))
    path = folder / "tokenizer.json"
    if not path.exists():
        chats = islice(_chats(pool, seed), min(setting.chats, _TOKENIZER_CHATS))
        texts = ("\n".join(turn.text for turn in chat) for chat in chats)
        train_tokenizer(texts, setting.target.vocabulary).save(str(path))
    corpus = _encode(load_tokenizer(path), pool, setting, seed)
    corpus.save(folder)
    _LOG.info("%d chats, %d tokens, in %s", len(corpus.starts) - 1, len(corpus.ids), folder)


def _chats(pool: Pool, seed: int) -> Iterator[Chat]:
    rng = Random(seed)
    while True:
        yield make_chat(pool, rng, Style())


def _encode(tokenizer: Tokenizer, pool: Pool, setting: Setting, seed: int) -> Corpus:
    source = _chats(pool, seed)
    kept: list[Encoded] = []
    for _ in range(0, setting.chats, _BLOCK):
        block = islice(source, min(_BLOCK, setting.chats))
        kept += (c for c in encode_chats(tokenizer, block) if len(c.ids) <= setting.longest)
    return Corpus.join(kept)


KINDS: dict[Kind, float] = {
    from_memory.recall: 36,
    from_memory.recall_more: 6,
    from_memory.wander: 10,
    from_memory.everyday: 28,
    from_memory.glance: 1,
    from_memory.what_is: 2,
    from_memory.explain: 1,
    from_memory.show_examples: 0.5,
    from_memory.small_talk: 4,
    from_memory.outside: 9,
    follow_up: 8,
    from_memory.unknown_name: 1.5,
    with_notes.one_page: 8,
    with_notes.several_pages: 7,
    with_notes.drill: 8,
    with_notes.pasted: 2,
    with_notes.retrieved: 12,
}
"""The share of each kind, by number of chats; by tokens, about 60 % are chats with notes."""


def make_chat(pool: Pool, rng: Random, style: Style) -> Chat:
    """One chat, of a kind drawn by its share."""
    kind = rng.choices(list(KINDS), weights=list(KINDS.values()))[0]
    return kind(pool, rng, style)

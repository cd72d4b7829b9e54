"""The first step: pages to a tokenizer and encoded chats.

Owns the layout of the prepared folder: ``tokenizer.json`` and one folder of arrays per corpus.
"""

import logging
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from random import Random

from tokenizers import Tokenizer

from assets.recipe.batches import Corpus
from assets.recipe.chats import make_chat
from assets.recipe.material_files import read_outside, read_small_talk, read_tasks
from assets.recipe.pages import Split, read_pages, split
from assets.recipe.settings import Setting
from assets.recipe.tokens import Encoded, encode_chats, load_tokenizer, train_tokenizer
from assets.recipe.turns import Chat, Pool
from assets.recipe.wording import Style

_LOG = logging.getLogger(__name__)
_TOKENIZER_CHATS = 30_000
_BLOCK = 2_000


def make_pool(parts: Split) -> Pool:
    """What chats are made from: the known and the familiar pages, and the material."""
    known = parts.known or parts.familiar
    seen = parts.known + parts.familiar
    tasks = read_tasks(seen)
    everyday = {task.name for task in tasks}
    core = tuple(page for page in known if page.name in everyday) or known
    return Pool(core, known, seen, tasks, read_small_talk(), read_outside())


def prepare(source: Path, folder: Path, setting: Setting, seed: int) -> None:
    """Write the tokenizer (kept where there is one) and the training chats into ``folder``."""
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

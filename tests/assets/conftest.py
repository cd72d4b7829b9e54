"""A small tldr checkout, so that no test needs the real pages."""

from pathlib import Path
from random import Random

import pytest
import torch
from tokenizers import Tokenizer

from assets.recipe.pages import read_pages, split
from assets.recipe.prepare import make_chat, make_pool
from assets.recipe.tokens import train_tokenizer
from assets.recipe.wording import Style

_VERBS = ("List", "Create", "Delete", "Copy", "Rename", "Compress")
_THINGS = ("files", "users", "archives", "processes", "images", "branches")
_NAMES = (
    "tar", "ls", "git commit", "zip", "grep", "find", "wibble", "wobble", "frobnicate", "quux",
    "corge", "grault", "garply", "waldo", "plugh", "xyzzy",
)  # fmt: skip


def page_text(number: int, name: str) -> str:
    """A page in the form of the tldr pages, different for every number."""
    blocks = [f"# {name}", f"> Works on {_THINGS[number % 6]}.\n> More information: <https://x.y>."]
    for offset in range(3):
        verb, thing = _VERBS[(number + offset) % 6], _THINGS[(number * 2 + offset) % 6]
        blocks.append(f"- {verb} all {thing} in a directory:")
        blocks.append(f"`{name} {{{{[-{verb[0]}|--{verb.lower()}]}}}} {{{{path/to/{thing}}}}}`")
    return "\n\n".join(blocks) + "\n"


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of the small checkout."""
    root = tmp_path_factory.mktemp("tldr")
    folder = root / "pages" / "common"
    folder.mkdir(parents=True)
    for number, name in enumerate(_NAMES):
        path = folder / f"{name.replace(' ', '-')}.md"
        path.write_text(page_text(number, name), encoding="utf-8")
    return root


@pytest.fixture(scope="session")
def tokenizer(checkout: Path) -> Tokenizer:
    """400 tokens, trained on chats about the small checkout."""
    pool = make_pool(split(read_pages(checkout)))
    rng = Random(0)
    chats = [make_chat(pool, rng, Style()) for _ in range(100)]
    return train_tokenizer((turn.text for chat in chats for turn in chat), 400)


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """Small products are fastest on one thread, and do not stall where cores are shared."""
    torch.set_num_threads(1)

"""`python -m app.bench import`: the cost of one note, by the number of notes stored already.

One more note is imported, changed and forgotten, each by a `specchat` command in a process of its
own: the CPU seconds are those of the whole command, start of the interpreter and opening of stores
included, and of the processes it waited for. Afterwards every file is searched for the note.

Measured with the embedded model on two busy cores, the least of three: with 7,226 pages of tldr
stored (1.55 M tokens), 1.16 s to import a note and 1.34 s to forget it; in an empty store 0.96 and
0.91 s. Listing all keys (some 10 µs a document) and rewriting the files of texts and passages after
a deletion still grow with the store.
"""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from app.indexing.corpus_index import open_index, token_counts
from app.indexing.refresh import refresh
from app.locations import Locations, locate
from datastores.errors import StoreError
from datastores.library.documents import NOTES, Document, FinishFile, Part, StoreDocument
from datastores.library.library import Library
from engines.target import Vocabulary

WORDS = 20_000
"""Different words in the notes; the rarest is about one word in 200,000."""
MEAN_SENTENCE_WORDS, SENTENCES = 8, 4
NEW_TEXTS = (
    "The walrus keeps seventeen brass telescopes.",
    "The badger polishes nine lanterns.",
)
"""The note, before and after it is changed; no other note has these words."""
TRACES = (b"walrus", b"telescopes", b"badger", b"lanterns")
IMPORT_PATH = "/notes"
BATCH = 1_000
"""Notes stored in one transaction."""


@dataclass(frozen=True, slots=True)
class ImportCost:
    """The cost of one note where `documents` others of `tokens` tokens are stored.

    Attributes:
        store_bytes: size of all files before the note.
        added_s, changed_s, forgotten_s: CPU seconds of each command.
        traces: files that hold a word of the note after it was forgotten.
    """

    documents: int
    tokens: int
    store_bytes: int
    added_s: float
    changed_s: float
    forgotten_s: float
    traces: int


def notes(number: int) -> Iterator[str]:
    """Different notes of some 50 tokens, with word frequencies like those of real texts."""
    draw = random.Random(0)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(draw.choices(letters, k=draw.randint(2, 9))) for _ in range(WORDS)]
    weights = list(accumulate(1 / rank for rank in range(1, WORDS + 1)))
    for index in range(number):
        lengths = [draw.randint(4, 2 * MEAN_SENTENCE_WORDS - 4) for _ in range(SENTENCES)]
        lines = (" ".join(draw.choices(words, cum_weights=weights, k=length)) for length in lengths)
        yield f"# Note {index}\n\n" + ".\n".join(lines) + ".\n"


def fill(locations: Locations, vocabulary: Vocabulary, budget: int, number: int) -> Iterator[int]:
    """Store and index `number` notes; yields how many are stored.

    Raises:
        StoreError: a store cannot be written.
    """
    locations.create()
    with closing(Library.open(locations.library)) as library:
        group: list[StoreDocument | FinishFile] = []
        for index, text in enumerate(notes(number), start=1):
            document = Document(f"Note {index}", (Part(NOTES, text),))
            digest = hashlib.sha256(text.encode()).hexdigest()
            group.append(StoreDocument(IMPORT_PATH, f"{index}.md", 0, document))
            group.append(FinishFile(IMPORT_PATH, f"{index}.md", digest, 1))
            if index % BATCH == 0 or index == number:
                library.write(group)
                group = []
                yield index
    with open_index(locations, vocabulary, budget) as index_of_notes:
        for _ in refresh(index_of_notes, locations, settle=True):
            pass


def measure(folder: Path, model: Path, tokenizer: str, documents: int) -> ImportCost:
    """Add, change and forget a note in the stores that `fill` made in `folder`.

    Raises:
        StoreError: a command failed.
    """
    locations = locate(folder)
    tokens = sum(token_counts(locations, tokenizer).values())
    size = sum(len(content) for content in _contents(folder))
    note = folder.with_name(f"{folder.name}-note.md")
    note.write_text(NEW_TEXTS[0])
    added = _cpu_seconds(folder, model, "import", note)
    note.write_text(NEW_TEXTS[1])
    changed = _cpu_seconds(folder, model, "import", note)
    forgotten = _cpu_seconds(folder, model, "forget", note)
    traces = sum(any(word in content for word in TRACES) for content in _contents(folder))
    return ImportCost(documents, tokens, size, added, changed, forgotten, traces)


def _cpu_seconds(folder: Path, model: Path, command: str, note: Path) -> float:
    """CPU time of one command and of the processes it waits for."""
    options = ("--data-dir", folder, "--model", model)
    line = [sys.executable, "-m", "app", *map(str, options), command, str(note)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    before = os.times()
    done = subprocess.run(line, capture_output=True, text=True, env=environment, check=False)
    after = os.times()
    if done.returncode:
        raise StoreError(f"{command} failed: {done.stderr.strip() or done.returncode}")
    user = after.children_user - before.children_user
    return user + after.children_system - before.children_system


def _contents(folder: Path) -> Iterator[bytes]:
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            yield file.read_bytes()

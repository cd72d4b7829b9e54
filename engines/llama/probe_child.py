"""The child process of `engines.llama.probe`: loads a file, runs one token, and says how it went.

Dies of what llama.cpp dies of. Keeps a hostile file from taking all memory; dumps no core.
"""

from __future__ import annotations

import sys
from pathlib import Path

from datastores.errors import SpecchatError

ROOM = 4 << 30
"""Address space beyond three times the file: its mapping, its repacked copy, its context."""
CELLS = 256


def main() -> None:
    """Probe the file named by the first argument; exit code 0, or REFUSED after one line."""
    from engines.llama.probe import REFUSED

    path = Path(sys.argv[1])
    try:
        _limit(path.stat().st_size)
        _try(path)
    except SpecchatError as error:
        print(error)
        sys.exit(REFUSED)
    except (OSError, MemoryError) as error:
        print(f"{path} cannot be loaded ({type(error).__name__}): choose another file")
        sys.exit(REFUSED)


def _limit(size: int) -> None:
    if sys.platform == "win32":
        return
    import resource

    from llama_cpp import llama_cpp as lib

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Drivers of graphics cards reserve address space far beyond what they use.
    if not lib.llama_supports_gpu_offload():
        limit = 3 * size + ROOM
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _try(path: Path) -> None:
    from engines.llama.abilities import usable_rows
    from engines.llama.template import ChatTemplate
    from engines.llama.vocabulary import LlamaVocabulary
    from engines.llama.weights import Context, Weights

    weights = Weights(path, gpu_layers=0)
    vocabulary = LlamaVocabulary(weights.vocabulary, weights)
    ChatTemplate(weights.metadata("tokenizer.chat_template"), vocabulary)
    usable_rows(Context(weights, CELLS, rows=2, threads=1), rows=2)

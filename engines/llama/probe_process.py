"""The child process of `engines.llama.probe`: loads a file and runs it for two tokens.

It limits its memory and writes no core dump.
"""

from __future__ import annotations

import sys
from pathlib import Path

from datastores.errors import ModelError, SpecchatError
from engines.child_process import limit_memory
from engines.llama.probe import EMBEDDING, HEADS, REFUSED

ADDRESS_SPACE = 4 << 30
"""Bytes allowed beyond three times the file's size (its mapping, repacked copy and context)."""
CELLS = 256


def main() -> None:
    """Probe the file in the first argument; exit with 0, or `REFUSED` and a reason."""
    path = Path(sys.argv[1])
    try:
        _limit_resources(path.stat().st_size)
        _run(path, sys.argv[2])
    except SpecchatError as error:
        print(error)
        sys.exit(REFUSED)
    except (OSError, MemoryError) as error:
        print(f"{path} cannot be loaded ({type(error).__name__}): choose another file")
        sys.exit(REFUSED)


def _limit_resources(file_size: int) -> None:
    if sys.platform == "win32":
        return
    import resource

    from engines.llama.devices import offloads

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Drivers of graphics cards reserve far more address space than they use.
    if not offloads():
        limit_memory(3 * file_size + ADDRESS_SPACE)


def _run(path: Path, kind: str) -> None:
    if kind == HEADS:
        _run_heads(path)
        return
    if kind == EMBEDDING:
        from engines.llama.embedding import EmbeddingModel

        EmbeddingModel(path, threads=1).encode_queries(["one", "two words"])
        return
    from engines.llama.context import LlamaContext, Weights, measure_limits
    from engines.llama.vocabulary import LlamaVocabulary

    weights = Weights(path)
    LlamaVocabulary(weights).encode("one, two")
    measure_limits(LlamaContext(weights, CELLS, rows=2, threads=1), CELLS, rows=2)


def _run_heads(path: Path) -> None:
    from engines.llama.batch import Batch, evaluate
    from engines.llama.context import LlamaContext
    from engines.llama.heads_loading import open_heads, open_weights

    context = LlamaContext(open_weights(path, 0, heads=True), CELLS, rows=2, threads=1)
    heads, problem = open_heads(context, CELLS, CELLS)
    if heads is None:
        raise ModelError(problem)
    batch = Batch(1)
    batch.struct.n_tokens = 1
    evaluate(context.handle, batch, path)
    heads.take(0, [0])
    heads.begin([0, 0])
    heads.next_rows([0, 0], heads.max_depth)


if __name__ == "__main__":
    main()

"""How fast a model would write on this machine, estimated before it is downloaded.

Writing a token reads all weights that take part in it once, so a model is as fast as its weights
are read. A plain estimate on the low side, and shown as one; a model that runs is measured.
"""

from __future__ import annotations

from engines.llama.gguf import Metadata
from engines.llama.threads import default_threads

CORE_BYTES_PER_S = 5e9
"""Bytes of weights that a slow core computes with: half of what two took with Q4_K_M (see
engines/README.md)."""
MEMORY_BYTES_PER_S = 40e9
"""What a common computer's memory delivers to all cores together."""
CARD_BYTES_PER_S = 200e9
"""What a modest graphics card's own memory delivers."""
MIN_TOKENS_PER_S = 3.0
"""About half as fast as people read; slower models are not suggested."""


def estimated_speed(active: int, needed: int, cards: int) -> float:
    """Tokens per second of a model that takes `needed` bytes of memory.

    What fits onto graphics cards is read there.

    Args:
        active: bytes of the weights that take part in a token (`active_bytes`).
        cards: free bytes on graphics cards.
    """
    on_cards = min(1.0, cards / needed)
    cores = min(default_threads() * CORE_BYTES_PER_S, MEMORY_BYTES_PER_S)
    return 1 / (active * (on_cards / CARD_BYTES_PER_S + (1 - on_cards) / cores))


def active_bytes(header: Metadata, size: int) -> int:
    """How many of the `size` bytes of a model take part in a token: of experts only those in use.

    Experts are counted exactly, attention and embeddings by the usual widths.
    """
    experts, used = header.number("expert_count"), header.number("expert_used_count")
    if not experts or not used:
        return size
    width, layers = header.number("embedding_length"), header.number("block_count")
    inner = header.number("expert_feed_forward_length") or header.number("feed_forward_length")
    expert = 3 * width * inner * layers
    others = 4 * width * width * layers + 2 * width * header.number("vocab_size")
    return round(size * (others + used * expert) / (others + experts * expert))

"""Estimates how fast a model would decode on this machine, before it is downloaded.

Decoding a token reads all active weights once, so the speed is that of reading them. The estimate
is on the low side.
"""

from __future__ import annotations

from engines.llama.gguf import Metadata
from engines.llama.threads import default_threads

CORE_BYTES_PER_S = 5e9
"""Weights that a slow core processes: half the rate of two with Q4_K_M (see engines/README.md)."""
MEMORY_BYTES_PER_S = 40e9
"""Memory bandwidth of a common computer, for all cores together."""
CARD_BYTES_PER_S = 200e9
"""Memory bandwidth of a modest graphics card."""
MIN_TOKENS_PER_S = 3.0
"""Slower models are not suggested; people read about twice as fast."""


def estimated_speed(active: int, needed: int, cards: int) -> float:
    """Tokens per second of a model, of which as much as fits is on graphics cards.

    Args:
        active: size of the active weights in bytes (`active_bytes`).
        needed: memory of the model in bytes.
        cards: free memory of graphics cards in bytes.
    """
    on_cards = min(1.0, cards / needed)
    cores = min(default_threads() * CORE_BYTES_PER_S, MEMORY_BYTES_PER_S)
    return 1 / (active * (on_cards / CARD_BYTES_PER_S + (1 - on_cards) / cores))


def active_bytes(header: Metadata, size: int) -> int:
    """Bytes, of the `size` of a model, that a token uses: of experts only the selected ones.

    Experts are counted exactly; attention and embeddings are assumed to have the usual widths.
    """
    experts, used = header.number("expert_count"), header.number("expert_used_count")
    if not experts or not used:
        return size
    width, layers = header.number("embedding_length"), header.number("block_count")
    inner = header.number("expert_feed_forward_length") or header.number("feed_forward_length")
    expert = 3 * width * inner * layers
    others = 4 * width * width * layers + 2 * width * header.number("vocab_size")
    return round(size * (others + used * expert) / (others + experts * expert))

"""The cost of a pass over several rows on a CPU, by quantisation.

These figures (see engines/README.md) serve for models that this machine has not measured yet.
"""

from __future__ import annotations

ROWS = (1, 2, 4, 6, 8, 12, 16)
MEASURED = {
    "F16": (1.0, 1.01, 1.09, 1.23, 1.65, 2.13, 2.52),
    "Q8_0": (1.0, 1.24, 1.52, 2.56, 2.69, 4.20, 4.48),
    "Q4_0": (1.0, 1.59, 1.51, 2.71, 2.98, 4.11, 4.82),
    "Q4_K_M": (1.0, 1.55, 1.71, 2.84, 3.55, 4.57, 4.72),
}
"""V(n) ÷ V(1) for each of `ROWS` after 250 tokens: medians of 14 interleaved rounds on two threads
of an idle AVX-512 processor, 394 M weights of width 2,048."""
MIN_WIDTH = 1024
"""Narrower models spend their time on overhead, not on weights, so their rows cost more."""


def measured_like(quantisation: str) -> str:
    """The key of `MEASURED` whose kernels are most like those of `quantisation`.

    Small blocks (`Q4_0`, `IQ4_NL`) have kernels for batches of 4; K and I quantisations are costly
    to unpack for each row.
    """
    name = quantisation.upper()
    if name in ("F16", "BF16", "F32"):
        return "F16"
    if name.startswith("Q8"):
        return "Q8_0"
    return "Q4_0" if name in ("Q4_0", "Q4_1", "IQ4_NL") else "Q4_K_M"

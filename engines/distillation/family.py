"""How architectures differ from a Llama, and how their files are laid out.

These are the architectures that a draft model can be pruned out of.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Family:
    """An architecture of plain attention and gated feed-forward layers.

    Attributes:
        name: the architecture's name in a GGUF file.
        adjacent_pairs: whether a file rotates adjacent elements of a head instead of its halves.
        head_norms: whether each head of q and k is normed before it is rotated.
        output_norms: whether the outputs of attention and of the feed-forward layer are normed.
        gelu: whether the gate is a GELU instead of a SiLU.
        scaled_embeddings: whether embeddings are multiplied by √width.
        whole_every: every n-th layer attends to the whole text and the others to a window; 0 if
            all attend to the whole text.
    """

    name: str
    adjacent_pairs: bool = False
    head_norms: bool = False
    output_norms: bool = False
    gelu: bool = False
    scaled_embeddings: bool = False
    whole_every: int = 0

    def is_local(self, layer: int) -> bool:
        """Whether this layer, counted from 0, attends to a window."""
        return bool(self.whole_every) and (layer + 1) % self.whole_every != 0


LLAMA = Family("llama", adjacent_pairs=True)
GEMMA = Family(
    "gemma3",
    head_norms=True,
    output_norms=True,
    gelu=True,
    scaled_embeddings=True,
    whole_every=6,
)
FAMILIES = {
    family.name: family
    for family in (LLAMA, Family("qwen2"), Family("qwen3", head_norms=True), GEMMA)
}
"""By name. Mistral's files are of the Llama architecture."""

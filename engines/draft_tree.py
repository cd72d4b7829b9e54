"""The draft tree: what drafters propose, the budget prunes and the target verifies.

A drafted token carries a bit set of origins. A drafter has one origin or several (CREST
distinguishes past chats, notes, code and answers to programs). An accepted token is credited to the
first origin, in this order, whose draft proposed it, so that the counts of a report add up.

Columns are plain lists: a tree has at most a few dozen rows, and at that size Python lists cost a
tenth of what NumPy's small-array calls do.
"""

from __future__ import annotations

from dataclasses import dataclass, field

PROMPT = 1 << 0
"""This chat: prompt lookup in the tokens of the context itself."""
CHATS = 1 << 1
"""Past chats, through CREST."""
NOTES = 1 << 2
"""Imported notes and documents, through CREST."""
CODE = 1 << 3
"""Imported source code, through CREST."""
PROGRAMS = 1 << 4
"""Answers to programs, through CREST."""
DENSE = 1 << 5
"""Past states of the model, through the dense index."""
DRAFT_MODEL = 1 << 6
"""The distilled draft model."""
RECYCLE = 1 << 7
"""Successors recycled from logits the target has already computed."""
MTP = 1 << 8
"""The target's own multi-token-prediction heads."""

HEAD = 1 << 9
"""The draft head on the model's last state."""

MODELS = DRAFT_MODEL | MTP | HEAD
"""Origins that run a model: each token costs them a pass; their drafts are short and accurate."""

ORIGIN_NAMES: dict[int, str] = {
    PROMPT: "prompt",
    CHATS: "chats",
    NOTES: "notes",
    CODE: "code",
    PROGRAMS: "programs",
    DENSE: "dense",
    DRAFT_MODEL: "draft-model",
    RECYCLE: "recycle",
    MTP: "mtp",
    HEAD: "head",
}
"""Stable names, in the order of credit; stored with answers, and keys of every report."""
FORMER_NAMES = {"student": "draft-model"}
"""Names of origins and drafters in earlier versions → present names."""


def credited(origins: int) -> int:
    """The origin credited for an accepted token: the lowest bit; 0 if none drafted it."""
    return origins & -origins


@dataclass(slots=True)
class DraftTree:
    """Flat columns, parents before children; row 0 is the root.

    The root is the token sampled last, which is not yet in the KV cache. Siblings carry different
    tokens.

    Attributes:
        parents: row of each row's parent; -1 for the root.
        origins: bit set of the origins that proposed the row; 0 for the root.
        probabilities: estimated P(token is drawn | its parent was emitted), in [0, 1]; 1 for the
            root.
        supports: the drafter's evidence behind the estimate, in its own unit (match length in
            tokens, ln(1 + count), similarity); a feature for calibration. 0 for the root.
    """

    tokens: list[int]
    parents: list[int] = field(default_factory=lambda: [-1])
    origins: list[int] = field(default_factory=lambda: [0])
    probabilities: list[float] = field(default_factory=lambda: [1.0])
    supports: list[float] = field(default_factory=lambda: [0.0])

    def __len__(self) -> int:
        """Rows, the root included: the width of the forward pass that verifies the tree."""
        return len(self.tokens)

    @property
    def drafted(self) -> int:
        """Number of rows without the root."""
        return len(self.tokens) - 1

    def add(
        self, parent: int, token: int, origin: int, probability: float, support: float = 0.0
    ) -> int:
        """Append a row under `parent` and return its index."""
        self.tokens.append(token)
        self.parents.append(parent)
        self.origins.append(origin)
        self.probabilities.append(probability)
        self.supports.append(support)
        return len(self.tokens) - 1

    def depths(self) -> list[int]:
        """Edges from the root to each row."""
        depths = [0] * len(self.tokens)
        for row in range(1, len(self.tokens)):
            depths[row] = depths[self.parents[row]] + 1
        return depths

    def children(self) -> list[dict[int, int]]:
        """For each row, its children: token id → row."""
        children: list[dict[int, int]] = [{} for _ in self.tokens]
        for row in range(1, len(self.tokens)):
            children[self.parents[row]][self.tokens[row]] = row
        return children

    def is_chain(self) -> bool:
        """Whether every row is a child of the previous one."""
        return all(parent == row - 1 for row, parent in enumerate(self.parents))


def root_only(token: int) -> DraftTree:
    """The empty draft: nothing but the root. Verifying it is plain decoding."""
    return DraftTree([token])


def chain(root: int, tokens: list[int], origin: int, probability: float = 0.5) -> DraftTree:
    """A single path of `tokens` under `root`."""
    tree = root_only(root)
    for row, token in enumerate(tokens):
        tree.add(row, token, origin, probability)
    return tree

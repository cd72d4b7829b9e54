"""The queries that a draft tells before the target has verified it.

A stride's query is the last words before it. So a draft that reaches the end of a stride tells the
query of the next one a pass early, and it can be searched for beside that pass. Where the target
accepts the draft, the passage is known when the stride is written, with nothing to guess or to
take back. (RaLMSpec speculates on passages alone; to join it with speculative decoding is its
future work.)

Owns which drafted tokens are believed. Refuses to know how queries are made and searched for
(`verification`), and whether that pays (`scheduler`).
"""

from __future__ import annotations

from engines.draft_tree import DraftTree

MIN_PROBABILITY = 0.5
"""Of the drafted tokens, all together. A search beside a pass slows it by up to half of what it
takes itself, and saves all of that if its query comes."""


def foreseen_ends(tree: DraftTree, written: int, stride: int) -> list[list[int]]:
    """The drafted tokens up to each end of a stride that the likeliest path of `tree` reaches.

    Args:
        written: tokens of the answer so far, of which the root is the last.
        stride: tokens; the first stride begins with the answer.
    """
    children, ends, path = tree.children(), list[list[int]](), list[int]()
    row, probability = 0, 1.0
    while children[row]:
        row = max(children[row].values(), key=tree.probabilities.__getitem__)
        probability *= tree.probabilities[row]
        if probability < MIN_PROBABILITY:
            break
        path.append(tree.tokens[row])
        if (written + len(path)) % stride == 0:
            ends.append(path.copy())
    return ends

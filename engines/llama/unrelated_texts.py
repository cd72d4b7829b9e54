"""The similarity of unrelated texts, by an embedding model.

Inner products of unit vectors have no common scale: for unrelated texts they average .03 with one
model and .7 with another. Each question below is compared with all answers but its own.
"""

from __future__ import annotations

import numpy as np

from datastores.passages.embeddings import Encoding, UnrelatedTexts, signs_of
from engines.llama.embedding import EmbeddingModel
from engines.retrieval.late_interaction import AskedTokens, similarity
from engines.target import Floats

MIN_DEVIATION = 1e-3
"""Keeps the scale finite for a model that finds all texts equally similar."""
_TEXTS = """\
how do I bake bread without yeast?
Flat loaves rise with baking soda and sour milk instead.
when does the library close on Sundays?
The reading rooms are open until five in the afternoon on weekends.
list the files of a folder by size
Files are shown in order of size with the largest first.
what did the meeting decide about the budget?
The board agreed to cut spending on travel by a third.
why do leaves turn red in autumn?
As chlorophyll breaks down, other pigments of the foliage become visible.
which train goes to the airport?
Line 8 runs from the central station to the terminals every ten minutes.
how is a patent granted?
An examiner compares the claims with what was known before.
fix a leaking tap
Replace the worn washer under the handle and close the valve again.
who wrote the song about the lighthouse?
The ballad was composed by a fisherman's daughter in 1911.
how do I undo the last commit?
Reset the branch to the state before the most recent change.
symptoms of low blood sugar
Shaking, sweating and confusion are signs of hypoglycemia.
how many players are in a handball team?
Seven on each side, one of whom keeps the goal.
what is the notice period in my lease?
Tenants may end the contract three months ahead in writing.
connect a printer over the network
Enter the address of the device in the settings for printing.
why was the bridge closed?
Inspectors found cracks in two of the steel girders.
how does a transformer attend to tokens?
Each position weighs all others by the product of queries and keys.
what should I feed a hedgehog?
Wild animals in the garden take cat food and water, never milk.
how do I renew my passport?
Bring a photograph and the old document to the town office.
what causes inflation?
Prices climb when more money meets the same amount of goods.
convert a video to another format
The program reads one kind of media file and writes another.
""".splitlines()
QUESTIONS, ANSWERS = _TEXTS[::2], _TEXTS[1::2]


def compare_unrelated(model: EmbeddingModel) -> tuple[UnrelatedTexts, UnrelatedTexts]:
    """Compare the vectors and the tokens of the texts, which takes up to a second with a small
    model.

    Raises:
        ModelError: the model cannot evaluate them.
    """
    asked, said = model.encode_queries(QUESTIONS), model.encode_passages(ANSWERS)
    products = np.array([one.vector for one in asked]) @ np.array([one.vector for one in said]).T
    signs = [signs_of(one.states) for one in said]
    matches = [[similarity(tokens.matches(one)) for one in signs] for tokens in map(_tokens, asked)]
    return _unrelated(products), _unrelated(np.array(matches, np.float32))


def _tokens(question: Encoding) -> AskedTokens:
    return AskedTokens(question.states)


def _unrelated(similarities: Floats) -> UnrelatedTexts:
    """Of the similarities [questions, answers], those of a question and another's answer."""
    unrelated = similarities[~np.eye(len(similarities), dtype=bool)]
    deviation = max(float(unrelated.std()), MIN_DEVIATION)
    return UnrelatedTexts(float(unrelated.mean()), deviation)

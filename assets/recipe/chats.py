"""All kinds of chat and their shares.

Training draws from them without end; evaluation draws the same kinds in fresh wording. Knows
nothing of tokens.
"""

from random import Random

from assets.recipe import noted, recalled
from assets.recipe.turns import Chat, Kind, Pool
from assets.recipe.wording import Style

KINDS: dict[Kind, float] = {
    recalled.recall: 38,
    recalled.recall_more: 6,
    recalled.wander: 10,
    recalled.everyday: 28,
    recalled.glance: 1,
    recalled.what_is: 2,
    recalled.explain: 1,
    recalled.show_examples: 0.5,
    recalled.small_talk: 1.5,
    recalled.outside: 1,
    recalled.unknown_name: 1,
    noted.noted: 9,
    noted.several: 2,
    noted.drill: 8,
    noted.pasted: 2,
}
"""Shares of the kinds, by chats; by tokens some three in five stand with notes."""


def make_chat(pool: Pool, rng: Random, style: Style) -> Chat:
    """One chat of a kind drawn by its share."""
    kind = rng.choices(list(KINDS), weights=list(KINDS.values()))[0]
    return kind(pool, rng, style)

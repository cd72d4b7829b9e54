"""All kinds of chat and their shares.

Training draws from them without end; evaluation draws the same kinds in fresh wording. Knows
nothing of tokens.
"""

from random import Random

from assets.recipe import noted, recalled
from assets.recipe.turns import Chat, Kind, Pool
from assets.recipe.wording import Style

KINDS: dict[Kind, float] = {
    recalled.recall: 36,
    recalled.recall_more: 5,
    recalled.everyday: 24,
    recalled.glance: 2,
    recalled.what_is: 3,
    recalled.explain: 1.5,
    recalled.show_examples: 1,
    recalled.small_talk: 1.5,
    recalled.outside: 1,
    recalled.unknown_name: 1,
    noted.noted: 14,
    noted.several: 3,
    noted.drill: 12,
    noted.pasted: 3,
}
"""Shares of the kinds, by chats; by tokens some three in four stand with notes."""


def make_chat(pool: Pool, rng: Random, style: Style) -> Chat:
    """One chat of a kind drawn by its share."""
    kind = rng.choices(list(KINDS), weights=list(KINDS.values()))[0]
    return kind(pool, rng, style)

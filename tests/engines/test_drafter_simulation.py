"""Simulate: the accepted lengths are those the decode loop would reach."""

from __future__ import annotations

import numpy as np
import pytest

from engines.draft_tree import CHATS, DraftTree, root_only
from engines.drafter_simulation import CombinedDrafter, Recorded, simulate, simulate_steps
from engines.drafters.prompt_lookup import PromptLookup
from engines.drafters.token_recycling import TokenRecycling
from engines.step import Context, Step

LOOP = Recorded((1, 2, 3), tuple([4, 5, 6, 7] * 10))


class Oracle:
    """Drafts the answer for `right` tokens, with a wrong row beside each."""

    name = "crest"
    top_tokens_needed = 0

    def __init__(self, recorded: Recorded, right: int) -> None:
        self._tokens = recorded.prompt + recorded.answer
        self._right = right
        self.seen: list[int] = []

    def begin(self, context: Context) -> None:
        self.seen = []

    def propose(self, context: Context, limit: int) -> DraftTree:
        tree = root_only(context.root)
        parent = 0
        at = len(context.tokens)
        for token in self._tokens[at : at + self._right]:
            tree.add(parent, 10_000, CHATS, 0.1)
            parent = tree.add(parent, token, CHATS, 0.9)
        return tree

    def observe(self, step: Step) -> None:
        self.seen.extend(step.tokens)


def test_nothing_drafted_yields_one_token_a_call() -> None:
    tallies, seconds = simulate(Oracle(LOOP, 0), [LOOP], (1, 4))
    assert tallies[4].steps == tallies[4].tokens == len(seconds) == 39
    assert tallies[4].tokens_per_step == 1.0
    assert tallies[4].drafted_per_step == tallies[4].mean_acceptance_rate == 0.0


@pytest.mark.parametrize(("budget", "accepted"), [(1, 0), (2, 1), (3, 1), (4, 2), (6, 3), (64, 3)])
def test_a_budget_cuts_the_draft(budget: int, accepted: int) -> None:
    recorded = Recorded((1,), tuple(range(100, 100 + 1 + 12)))
    tallies, _ = simulate(Oracle(recorded, 3), [recorded], (budget,))
    tally = tallies[budget]
    assert tally.tokens == 12
    assert tally.steps == 12 // (accepted + 1)
    assert tally.tokens_per_step == accepted + 1
    assert tally.mean_acceptance_rate == (
        0.0 if not accepted else pytest.approx(accepted / (-(-min(budget, 6) // 2)))
    )


def test_a_drafter_sees_every_token_once() -> None:
    oracle = Oracle(LOOP, 2)
    simulate(oracle, [LOOP], (4,))
    assert oracle.seen == list(LOOP.answer)


def test_prompt_lookup_finds_a_loop() -> None:
    tallies, _ = simulate(PromptLookup(), [LOOP], (8,))
    assert tallies[8].tokens_per_step > 4


def test_recycling_learns_from_what_followed() -> None:
    tallies, _ = simulate(TokenRecycling(), [LOOP], (4,))
    assert tallies[4].tokens_per_step > 2.5


def test_the_combination_is_no_worse_than_its_parts() -> None:
    draw = np.random.default_rng(3)
    phrases = [draw.integers(5, 500, 6).tolist() for _ in range(12)]
    answers = [
        Recorded((1, 2), tuple(word for one in draw.integers(0, 12, 30) for word in phrases[one]))
        for _ in range(4)
    ]
    parts = [simulate(one, answers, (4,))[0][4] for one in (PromptLookup(), TokenRecycling())]
    both, _ = simulate(CombinedDrafter([PromptLookup(), TokenRecycling()]), answers, (4,))
    assert both[4].tokens_per_step >= max(part.tokens_per_step for part in parts)


@pytest.mark.parametrize("budget", [1, 2, 4, 64])
def test_consulting_at_steps_alone_gives_the_same_counts(budget: int) -> None:
    recorded = Recorded((1,), tuple(range(100, 114)))
    everywhere = simulate(Oracle(recorded, 3), [recorded], (budget,))[0][budget]
    at_steps = simulate_steps(Oracle(recorded, 3), recorded, budget)
    assert (at_steps.steps, at_steps.tokens) == (everywhere.steps, everywhere.tokens)
    assert at_steps.drafted == everywhere.drafted
    assert at_steps.mean_acceptance_rate == everywhere.mean_acceptance_rate


def test_a_simulation_says_which_tokens_no_draft_had() -> None:
    recorded = Recorded((1,), tuple(range(100, 112)))
    counts = simulate_steps(Oracle(recorded, 3), recorded, 8)
    places = set(range(len(recorded.answer)))
    assert counts.missed & places == {0, 4, 8}  # the first comes out of prefill

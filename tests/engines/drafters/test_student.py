"""The draft model proposes its own continuation, while it is probable enough."""

from __future__ import annotations

import numpy as np
import pytest

from engines.draft_tree import STUDENT, DraftTree
from engines.drafters.student import MIN_PATH_PROBABILITY, StudentDrafter
from engines.sampler import Sampling, make_sampler
from engines.step import Context
from tests.engines.scripted import ScriptedTarget, logits_after
from tests.engines.test_decode import fixed, run, tokens

NEVER = frozenset[int]()
PROMPT = [3, 9, 14, 3]


def proposed(drafter: StudentDrafter, tokens: list[int], limit: int = 8) -> DraftTree:
    context = Context(tokens, np.zeros(4, np.float32), 0.0)
    drafter.begin(context)
    return drafter.propose(context, limit)


def greedy(after: int, count: int) -> list[int]:
    """The scripted model's greedy continuation of a token."""
    found = [after]
    for _ in range(count):
        found.append(int(np.argmax(logits_after((found[-1],), 8.0))))
    return found[1:]


def probability(previous: int, token: int) -> float:
    odds = np.exp(np.array(logits_after((previous,), 8.0), np.float64))
    return float(odds[token] / odds.sum())


def test_it_drafts_the_model_s_continuation_with_its_probabilities() -> None:
    tree = proposed(StudentDrafter(ScriptedTarget(), NEVER), PROMPT, 3)
    assert tree.is_chain()
    assert tree.tokens[1:] == greedy(3, 3)
    assert set(tree.sources[1:]) == {STUDENT}
    expected = [probability(*pair) for pair in zip(tree.tokens, tree.tokens[1:], strict=False)]
    assert tree.probabilities[1:] == pytest.approx(expected)


def test_it_ends_where_its_own_path_is_improbable() -> None:
    flat = ScriptedTarget(sharpness=0.8)
    tree = proposed(StudentDrafter(flat, NEVER), PROMPT, 30)
    assert tree.drafted < 30
    assert np.prod(tree.probabilities) >= MIN_PATH_PROBABILITY


def test_it_drafts_nothing_after_the_end_of_an_answer() -> None:
    first, second, *_ = greedy(3, 3)
    tree = proposed(StudentDrafter(ScriptedTarget(), frozenset({second})), PROMPT)
    assert tree.tokens == [3, first, second]


@pytest.mark.parametrize(("room", "drafted"), [(0, 0), (1, 1), (2, 2), (-2, 0)])
def test_a_student_with_a_short_context_drafts_what_fits(room: int, drafted: int) -> None:
    student = ScriptedTarget(context_length=len(PROMPT) + room)
    assert proposed(StudentDrafter(student, NEVER), PROMPT, 3).drafted == drafted


@pytest.mark.parametrize("temperature", [0.0, 1.5])
def test_a_student_as_good_as_its_teacher_is_never_rejected(temperature: float) -> None:
    """At any temperature, as both draw with the same noise."""
    sampling = Sampling(temperature, top_k=0, top_p=1.0, min_p=0.0, seed=4)
    student = StudentDrafter(ScriptedTarget(), NEVER, make_sampler(sampling))
    steps = run(PROMPT, [student], fixed(5), sampling)
    assert tokens(steps) == tokens(run(PROMPT, [], fixed(0), sampling))
    drafted = sum(step.drafted for step in steps)
    assert drafted > 0
    # Only what lies behind the last token of the answer is not emitted.
    assert drafted - sum(step.accepted for step in steps) < 5

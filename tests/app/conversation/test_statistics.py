"""What is kept of who drafted what gives the pieces back, and never another text's."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.conversation.statistics import (
    Piece,
    Provenance,
    Statistics,
    attributed_pieces,
    compare_chain,
)
from engines.draft_tree import CHATS, DRAFT_MODEL, ORIGIN_NAMES, PROMPT, RECYCLE, root_only
from engines.step import Proposal
from tests.app.interface.scripted import Script, wrote

PIECES = st.lists(
    st.builds(Piece, st.text(min_size=1, max_size=5), st.sampled_from([0, *ORIGIN_NAMES])),
    max_size=20,
)


@given(PIECES)
def test_runs_give_back_each_character_with_its_origin(pieces: list[Piece]) -> None:
    provenance = Provenance()
    provenance.append(pieces)
    text = "".join(piece.text for piece in pieces)
    kept = attributed_pieces(text, json.loads(json.dumps(provenance.runs())))
    assert [(letter, piece.origin) for piece in kept for letter in piece.text] == [
        (letter, piece.origin) for piece in pieces for letter in piece.text
    ]
    assert all(one.origin != other.origin for one, other in pairwise(kept))


@pytest.mark.parametrize(
    "runs", [[[2, ""]], [[4, ""]], [[3, "nobody"]], [[3]], [["3", ""]], [[-1, ""], [4, ""]], [7]]
)
def test_runs_of_another_text_are_not_used(runs: list[object]) -> None:
    assert attributed_pieces("one", runs) == []


def test_neighbours_of_one_origin_are_joined() -> None:
    provenance = Provenance()
    provenance.append([Piece("a", CHATS), Piece("bc", CHATS)])
    provenance.append([Piece("d", 0)])
    assert provenance.runs() == [(3, "chats"), (1, "")]


def test_drafts_are_counted_by_the_longest_path_of_each_origin() -> None:
    statistics = Statistics()
    said = [("a", PROMPT), ("b", PROMPT | CHATS), ("c", RECYCLE), ("d", 0)]
    event = wrote(1, said, Script([], rejected=3))
    statistics.observe(event.step)
    assert event.step.drafted == 6, "three of them beside the path that was accepted"
    assert (statistics.longest_drafted, statistics.accepted) == (3, 3)
    assert statistics.acceptance_rate == 1.0, "beside a path that was accepted none can be"
    assert statistics.drafted_by_origin == {"prompt": 2, "recycle": 1}
    assert statistics.by_origin == {"prompt": 2, "recycle": 1}


def test_what_drafts_would_have_supplied_is_of_this_answer_alone() -> None:
    tree = root_only(0)
    first = tree.add(0, 11, PROMPT, 0.8)
    tree.add(0, 12, PROMPT, 0.1)
    tree.add(tree.add(first, 21, PROMPT, 0.7), 31, PROMPT, 0.6)
    other = root_only(0)
    other.add(0, 12, CHATS, 0.5)
    step = wrote(1, [("a", 0)], Script([])).step

    def counted(*tokens: int) -> dict[str, int]:
        """Of steps without a verified draft, for the first of which both trees were proposed."""
        statistics = Statistics()
        proposals = (Proposal("prompt", tree, 0.0), Proposal("crest", other, 0.0))
        for number, token in enumerate(tokens):
            drafts = proposals if number == 0 else (Proposal("prompt", other, 0.0),)
            statistics.observe(replace(step, tokens=(token,), proposals=drafts))
        return statistics.possible_by_origin

    assert counted(11, 21, 31) == {"prompt": 3}
    assert counted(11, 21, 7, 12) == {"prompt": 2, "chats": 1}, "behind a wrong one another begins"
    assert counted(12, 9) == {"prompt": 1}, "each word counts for one origin"
    assert counted(9, 9) == {}


def test_no_origin_would_have_supplied_less_than_it_did() -> None:
    tree = root_only(0)
    tree.add(0, 11, RECYCLE, 0.8)
    both = root_only(0)
    both.add(0, 11, PROMPT | RECYCLE, 0.8)
    step = wrote(1, [("a", PROMPT | RECYCLE)], Script([])).step
    statistics = Statistics()
    proposals = (Proposal("recycle", tree, 0.0), Proposal("prompt", both, 0.0))
    statistics.observe(replace(step, tokens=(11,), proposals=proposals))
    assert statistics.by_origin == statistics.possible_by_origin == {"prompt": 1}
    statistics = Statistics()
    statistics.observe(replace(step, tokens=(11,), origins=(0,), proposals=proposals))
    assert statistics.possible_by_origin == {"prompt": 1}, "credited in the same order"


def test_time_without_drafts_is_known_of_compared_steps() -> None:
    statistics, script = Statistics(), Script([], step_s=0.06)
    for number, said in enumerate([[("a", 0)], [("b", CHATS), ("c", 0)], [("d", 0)]]):
        event = wrote(number, said, script)
        statistics.observe(event.step)
        statistics.compare(event.step, event.budget_status)
    timings = event.step.timings
    own = timings.total - timings.draft
    assert statistics.plain_seconds == pytest.approx(2 * event.budget_status.plain_seconds + own)
    total = Statistics()
    total.add(statistics)
    total.add(statistics)
    assert total.drafted_by_origin == {"chats": 2}
    assert total.plain_seconds == pytest.approx(2 * statistics.plain_seconds)


def test_a_plain_time_learned_in_a_stall_makes_no_ratio_above_the_tokens_of_a_step() -> None:
    event = wrote(1, [("a", CHATS), ("b", CHATS), ("c", 0)], Script([], step_s=0.06))
    timings = event.step.timings
    stalled = replace(event.budget_status, plain_seconds=5.0)
    seconds = Statistics().compare(event.step, stalled)
    assert seconds == pytest.approx(3 * (timings.total - timings.draft))


def test_drafts_are_compared_with_a_machine_as_busy_as_it_is_now() -> None:
    calm = replace(Script([]).budget_status, plain_seconds=0.05)
    busy = Script([], step_s=0.2, budget_status=calm)  # another program was started
    statistics = Statistics()
    drafted = wrote(1, [("a", CHATS), ("b", 0)], busy)
    assert statistics.compare(drafted.step, calm) == pytest.approx(2 * 0.05), "nothing is known yet"
    plain = wrote(2, [("a", 0)], busy)
    own = plain.step.timings.total - plain.step.timings.draft
    for _ in range(3):
        assert statistics.compare(plain.step, calm) == pytest.approx(own)
    assert statistics.compare(drafted.step, calm) == pytest.approx(2 * own)
    figures = statistics.figures()
    assert json.loads(json.dumps(figures)) == figures, "they are stored"


def test_what_earlier_versions_stored_is_not_taken_for_more_accepted_than_drafted() -> None:
    resumed = Statistics(accepted=1, drafted=1, longest_drafted=1).after(
        {"accepted": 30, "drafted": 60}
    )
    assert resumed.acceptance_rate == 31 / 61


def test_the_draft_model_is_compared_with_the_text_that_came() -> None:
    tree = root_only(0)
    first = tree.add(0, 11, DRAFT_MODEL, 0.8)
    tree.add(0, 12, DRAFT_MODEL, 0.1)
    second = tree.add(first, 21, DRAFT_MODEL, 0.7)
    tree.add(first, 22, DRAFT_MODEL, 0.2)
    tree.add(second, 31, DRAFT_MODEL, 0.6)
    proposal = Proposal("draft-model", tree, 0.0)
    assert compare_chain(proposal, (11, 21, 31, 7)) == (3, 3)
    assert compare_chain(proposal, (11, 22, 31)) == (2, 1), "nothing behind a wrong token counts"
    assert compare_chain(proposal, (12, 7)) == (1, 0), "a branch is not the likeliest path"
    assert compare_chain(proposal, (11,)) == (1, 1)
    behind = replace(proposal, after=(5, 6))
    assert compare_chain(behind, (5, 6, 11, 9)) == (2, 1)
    assert compare_chain(behind, (5, 7, 11)) == (0, 0), "it was drafted for another text"
    assert compare_chain(behind, (5, 6)) == (0, 0)


def test_proposals_that_were_not_verified_are_compared_too() -> None:
    event = wrote(1, [("a", 0)], Script([]))
    tree = root_only(0)
    tree.add(0, event.step.tokens[0], DRAFT_MODEL, 0.9)
    statistics = Statistics()
    proposals = (Proposal("draft-model", tree, 0.0), Proposal("prompt", tree, 0.0))
    statistics.observe(replace(event.step, proposals=proposals))
    assert (statistics.draft_model_compared, statistics.draft_model_acceptance) == (1, 1.0)

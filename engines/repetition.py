"""Detects answers that repeat themselves: word for word, with small changes, or counting.

Small models fall into such loops, above all with greedy decoding, and continue up to the length
limit. An answer loops if nearly all of its last `WINDOW` tokens are in runs (n-grams) that occurred
several times before: sampling breaks the exact period of a loop, but not its runs. A few
repetitions are legitimate (a refrain, a file shown again), as are lists of similar lines that each
have something of their own, and copies: occurrences of a run in the prompt are subtracted from
those in the answer, as for code with long tables of zeros.

Some loops number their items or count. With all numbers treated as equal they are loops like
others, but so are lists, tables and code that the user asked for. So the numbers must increase by
equal steps, and a counting loop must last longer, above all where it is not prose. Text that
consists mostly of numbers is never taken for a loop.

All are pure functions of the tokens, so that drafted and plain answers end at the same token.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache

from engines.target import Vocabulary

WINDOW = 200
"""Length, in tokens, of the end of the answer that is tested."""
RUN = 8
"""Length of a run in tokens."""
MIN_EARLIER = 3
"""Earlier occurrences from which on a run counts as repeated. Of 700 source files and documents
taken as answers (2,000 tokens of SmolLM2 each) one ends early, a long list of equal entries."""
MAX_OTHER = 0.15
"""Largest share of the window outside repeated runs."""
MAX_ANSWER_TOKENS = 2048
"""Latest tokens of the answer in which runs are counted."""
CHECK_TOKENS = 16
"""Tokens between two checks; a check that finds no loop copies `MAX_ANSWER_TOKENS` tokens."""

COUNTED_RUN = 12
"""Length of a run in which all numbers are treated as equal."""
MIN_EARLIER_PROSE, MIN_EARLIER_ROWS = 24, 64
"""Earlier occurrences from which on such a run counts as repeated, in prose and elsewhere."""
MIN_WORDS = 0.5
"""Share of words in the window from which on it is prose."""
MAX_NUMBERS = 0.15
"""Largest share of numbers in the window; tables may have more."""
COUNTED_CHECK_TOKENS = 64
"""Tokens between two checks for a counting loop."""

MAX_PERIOD = 8
"""Most numbers in one item of a counting loop."""
MAX_DIGITS = 18
"""Leading digits of a number that are compared."""

NUMBER, OTHER = -1, -2
"""Stand for any number, and for any other token."""

Run = tuple[int, ...]
TextOf = Callable[[int], str]


def token_text(vocabulary: Vocabulary) -> TextOf:
    """A function that returns a token's text without surrounding white space."""
    return cache(lambda token: vocabulary.piece(token).decode("utf-8", "replace").strip())


def is_looping(tokens: Sequence[int], start: int) -> bool:
    """Whether the answer, `tokens[start:]`, ends in a loop.

    It may be called after each token; it checks once in `CHECK_TOKENS`.
    """
    length = len(tokens) - start
    if length < WINDOW or length % CHECK_TOKENS:
        return False
    answer = tokens[max(start, len(tokens) - MAX_ANSWER_TOKENS) :]
    return _is_repeated(answer, tokens[:start], RUN, MIN_EARLIER)


def is_counting(tokens: Sequence[int], start: int, text: TextOf) -> bool:
    """Whether the answer ends in a loop whose items differ only in numbers that count.

    It may be called after each token; it checks once in `COUNTED_CHECK_TOKENS`.
    """
    length = len(tokens) - start
    if length < WINDOW or length % COUNTED_CHECK_TOKENS:
        return False
    latest = tokens[max(start, len(tokens) - MAX_ANSWER_TOKENS) :]
    answer, numbers = _with_equal_numbers(latest, text)
    ended = answer[-WINDOW:]
    count = ended.count(NUMBER)
    if not 0 < count <= len(ended) * MAX_NUMBERS or not _is_even(numbers[-count:]):
        return False
    words = sum(token != NUMBER and text(token).isalpha() for token in ended)
    earlier = MIN_EARLIER_PROSE if words >= len(ended) * MIN_WORDS else MIN_EARLIER_ROWS
    return _is_repeated(answer, _with_equal_numbers(tokens[:start], text)[0], COUNTED_RUN, earlier)


def _with_equal_numbers(tokens: Sequence[int], text: TextOf) -> tuple[list[int], list[int]]:
    """`tokens` with one `NUMBER` in place of each number; and the numbers."""
    equal, numbers, last = list[int](), list[str](), OTHER
    for token in tokens:
        if not text(token).isdecimal():
            equal.append(last := token)
            continue
        if last != NUMBER:
            equal.append(last := NUMBER)
            numbers.append("")
        numbers[-1] += text(token)
    return equal, [int(digits[:MAX_DIGITS]) for digits in numbers]


def _is_even(numbers: Sequence[int]) -> bool:
    """Whether nearly all numbers increase by equal steps, each place of an item by its own."""
    for period in range(1, min(MAX_PERIOD, len(numbers) // 3) + 1):
        steps = [after - before for before, after in zip(numbers, numbers[period:], strict=False)]
        same = sum(one == other for one, other in zip(steps, steps[period:], strict=False))
        if same >= (len(steps) - period) * (1 - MAX_OTHER):
            return True
    return False


def _is_repeated(answer: Sequence[int], prompt: Sequence[int], size: int, earlier: int) -> bool:
    """Whether nearly all runs of `size` tokens at the end of `answer` occurred in it `earlier`
    times before, not counting those in `prompt`."""
    if len(answer) < WINDOW or not _may_end_in_repeated_run(answer, size, earlier):
        return False
    runs = _runs(answer, size)
    before, counts = list[int](), Counter[Run]()
    for run in runs:
        before.append(counts[run])
        counts[run] += 1
    copied = _count(prompt, set(runs[-WINDOW:]), size)
    ended = zip(runs[-WINDOW:], before[-WINDOW:], strict=True)
    repeated = sum(times >= earlier + copied[run] for run, times in ended)
    return repeated >= WINDOW * (1 - MAX_OTHER)


def _may_end_in_repeated_run(answer: Sequence[int], size: int, earlier: int) -> bool:
    """A cheap test for the last run; it compares bytes, so that some matches begin in a token."""
    raw = array("q", answer).tobytes()
    return raw.count(array("q", answer[-size:]).tobytes()) > earlier


def _runs(tokens: Sequence[int], size: int) -> list[Run]:
    return [tuple(tokens[end - size : end]) for end in range(size, len(tokens) + 1)]


def _count(tokens: Sequence[int], wanted: set[Run], size: int) -> Counter[Run]:
    return Counter(run for run in _runs(tokens, size) if run in wanted)

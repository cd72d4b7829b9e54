"""Finds an answer that repeats itself over and over, word for word, with small changes or counting.

Small models fall into such loops, greedy ones above all, and write on to the longest answer. A loop
is an answer whose last `WINDOW` tokens are nearly all in runs that stood there several times
before: sampling breaks the exact period of a loop, but not its runs. What repeats a few times is
left alone (a verse's refrain, a file shown again), as are lists of similar lines, in which each
line has something of its own, and what is copied: a run counts only as often as it stands in the
answer more than in the prompt, as in code with long tables of zeros.

Some loops number their items, or count in them. With all numbers taken for the same one they are
loops like others, but so are lists, tables and code that a person asked for. So the numbers have to
go on by equal steps, as those of data do not, and a counting loop has to go on for longer, above
all where it is not prose. What consists of numbers is none.

Pure functions of the tokens, so that drafted and plain answers end at the same one.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache

from engines.target import Vocabulary

WINDOW = 200
"""Tokens at the end of an answer that have to be a loop's."""
RUN = 8
"""Tokens of a run."""
MIN_EARLIER = 3
"""Times that a run stood in the answer before, to be a loop's."""
MAX_OTHER = 0.15
"""Share of the window that is in no such run. With 3 times, of 700 sources and documents read as
answers (2,000 tokens of SmolLM2 each) one ends early, a long list of identical entries."""
LOOKED_AT = 2048
"""Tokens of the answer in which runs are counted."""
CHECK_TOKENS = 16
"""Tokens from one look to the next: a look that finds no loop copies `LOOKED_AT` tokens."""

COUNTED_RUN = 12
"""Tokens of a run in which all numbers are the same."""
MIN_EARLIER_PROSE, MIN_EARLIER_ROWS = 24, 64
"""Times that such a run stood in the answer before, in prose and elsewhere."""
MIN_WORDS = 0.5
"""Share of the window that is words, in prose."""
MAX_NUMBERS = 0.15
"""Share of the window that is numbers; a table may have more."""
COUNTED_CHECK_TOKENS = 64
"""Tokens from one look for a counting loop to the next."""

MAX_PERIOD = 8
"""Numbers in an item, at most, of a loop that counts."""
MAX_DIGITS = 18
"""Of a number that are compared."""

NUMBER, OTHER = -1, -2
"""In place of all numbers, and of any other token."""

Run = tuple[int, ...]
TextOf = Callable[[int], str]


def token_text(vocabulary: Vocabulary) -> TextOf:
    """The text of a token without blanks, as `is_counting` needs it."""
    return cache(lambda token: vocabulary.piece(token).decode("utf-8", "replace").strip())


def is_looping(tokens: Sequence[int], start: int) -> bool:
    """Whether the answer, which is `tokens` from `start` on, ends in a loop.

    Asked after each token; it looks after every `CHECK_TOKENS` tokens of the answer.
    """
    length = len(tokens) - start
    if length < WINDOW or length % CHECK_TOKENS:
        return False
    answer = tokens[max(start, len(tokens) - LOOKED_AT) :]
    return _is_old(answer, tokens[:start], RUN, MIN_EARLIER)


def is_counting(tokens: Sequence[int], start: int, text: TextOf) -> bool:
    """Whether the answer ends in a loop whose items differ in numbers only, which count.

    Asked as `is_looping` is; it looks after every `COUNTED_CHECK_TOKENS` tokens.
    """
    length = len(tokens) - start
    if length < WINDOW or length % COUNTED_CHECK_TOKENS:
        return False
    answer, numbers = _with_equal_numbers(tokens[max(start, len(tokens) - LOOKED_AT) :], text)
    ended = answer[-WINDOW:]
    count = ended.count(NUMBER)
    if not 0 < count <= len(ended) * MAX_NUMBERS or not _is_even(numbers[-count:]):
        return False
    words = sum(token != NUMBER and text(token).isalpha() for token in ended)
    earlier = MIN_EARLIER_PROSE if words >= len(ended) * MIN_WORDS else MIN_EARLIER_ROWS
    return _is_old(answer, _with_equal_numbers(tokens[:start], text)[0], COUNTED_RUN, earlier)


def _with_equal_numbers(tokens: Sequence[int], text: TextOf) -> tuple[list[int], list[int]]:
    """`tokens` with one `NUMBER` for each number, however many tokens it has; and the numbers."""
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
    """Whether nearly all numbers go on by the same step as before, each of an item by its own."""
    for period in range(1, min(MAX_PERIOD, len(numbers) // 3) + 1):
        steps = [after - before for before, after in zip(numbers, numbers[period:], strict=False)]
        same = sum(one == other for one, other in zip(steps, steps[period:], strict=False))
        if same >= (len(steps) - period) * (1 - MAX_OTHER):
            return True
    return False


def _is_old(answer: Sequence[int], prompt: Sequence[int], size: int, earlier: int) -> bool:
    """Whether nearly all runs of `size` tokens at the end of `answer` stood in it `earlier` times
    before, those of `prompt` not counted."""
    if len(answer) < WINDOW or not _ends_in_old_run(answer, size, earlier):
        return False
    runs = _runs(answer, size)
    before, counts = list[int](), Counter[Run]()
    for run in runs:
        before.append(counts[run])
        counts[run] += 1
    copied = _count(prompt, set(runs[-WINDOW:]), size)
    ended = zip(runs[-WINDOW:], before[-WINDOW:], strict=True)
    old = sum(times >= earlier + copied[run] for run, times in ended)
    return old >= WINDOW * (1 - MAX_OTHER)


def _ends_in_old_run(answer: Sequence[int], size: int, earlier: int) -> bool:
    """Whether the last run may be old, as a cheap first look: at bytes, where one that begins
    within a token counts too."""
    raw = array("q", answer).tobytes()
    return raw.count(array("q", answer[-size:]).tobytes()) > earlier


def _runs(tokens: Sequence[int], size: int) -> list[Run]:
    """Every run of `size` tokens, by its end."""
    return [tuple(tokens[end - size : end]) for end in range(size, len(tokens) + 1)]


def _count(tokens: Sequence[int], wanted: set[Run], size: int) -> Counter[Run]:
    """How often each of the runs `wanted` stands in `tokens`."""
    return Counter(run for run in _runs(tokens, size) if run in wanted)

"""DFlash drafters draft a block in one pass, from the target's states alone.

That their drafts change no answer is tested with the other prediction heads.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engines.llama import dflash, native
from engines.llama.model import load
from engines.llama.prediction_heads import READ_ROWS, PredictionHeads
from engines.llama.target import LlamaTarget
from engines.target import Floats
from tests.engines.tiny import TinyVocabulary
from tests.engines.tiny_heads import write_dflash_drafter, write_four_blocks

WORDS = TinyVocabulary()
BLOCK = 6
TEXT = [5 + index * 7 % 240 for index in range(3 * READ_ROWS)]
Opened = tuple[LlamaTarget, PredictionHeads]
Open = Callable[..., Opened]


@pytest.fixture
def opened(tmp_path: Path) -> Open:
    def open_pair(*, block: int = BLOCK, markov: bool = False, dimensions: int = 1) -> Opened:
        model = write_four_blocks(tmp_path / "llama.gguf", WORDS)
        write_dflash_drafter(
            tmp_path / "llama-dflash.gguf",
            WORDS,
            block=block,
            markov=markov,
            dimensions=dimensions,
        )
        target = load(model, threads=1, context_length=1024, heads=True).target
        assert target.heads is not None, target.heads_problem
        return target, target.heads

    return open_pair


def drafted(pair: Opened, length: int, count: int = BLOCK) -> Floats:
    """The rows drafted after the first `length` tokens, which are read from the beginning."""
    target, heads = pair
    target.rewind(0)
    list(target.prefill(TEXT[: length - 1]))
    assert heads.begin(TEXT[:length]) == length
    return heads.next_rows(TEXT[:length], count).copy()


def test_one_pass_drafts_a_block(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = opened()
    assert pair[1].max_depth == BLOCK - 1
    decode, rows = native.decode, list[int]()

    def counted(handle: Any, batch: Any) -> Any:
        rows.append(batch.n_tokens)
        return decode(handle, batch)

    target, heads = pair
    list(target.prefill(TEXT[:9]))
    monkeypatch.setattr(native, "decode", counted)
    heads.begin(TEXT[:10])
    found = heads.next_rows(TEXT[:10], BLOCK)
    assert rows == [9, BLOCK], "the text's states, then the root and the masks"
    assert found.shape == (BLOCK - 1, len(WORDS.tokens))
    assert len(np.unique(found, axis=0)) == BLOCK - 1


def test_a_shorter_block_is_drafted_where_less_is_asked(opened: Open) -> None:
    assert len(drafted(opened(), 10, 2)) == 2


def test_no_block_is_wider_than_a_pass(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """llama.cpp would abort the process."""
    monkeypatch.setattr(dflash, "READ_ROWS", 16)
    pair = opened(block=40)
    assert pair[1].max_depth == len(drafted(pair, 60, 40)) == 15


def test_the_first_row_of_a_dspark_block_is_drafted_too(opened: Open) -> None:
    pair = opened(markov=True)
    assert pair[1].max_depth == len(drafted(pair, 10)) == BLOCK


def test_a_text_read_in_parts_is_drafted_as_one_read_at_once(opened: Open) -> None:
    target, heads = pair = opened()
    expected = drafted(pair, len(TEXT))
    target.rewind(0)
    list(target.prefill(TEXT[:-1]))
    assert heads.begin(TEXT) == len(TEXT)
    for count in (3, READ_ROWS + 5):
        heads.read(count)
    assert np.allclose(heads.next_rows(TEXT, BLOCK), expected, atol=1e-2)


@pytest.mark.parametrize("kept", [12, 11, 7])
def test_what_was_rejected_leaves_nothing(opened: Open, kept: int) -> None:
    """Neither the block's own cells nor the states of dropped tokens."""
    target, heads = pair = opened()
    expected = drafted(pair, kept + 1)
    drafted(pair, 12)
    target.rewind(kept - 1)
    list(target.prefill(TEXT[:kept]))
    assert heads.begin(TEXT[: kept + 1]) == 2
    assert np.allclose(heads.next_rows(TEXT[: kept + 1], BLOCK), expected, atol=1e-2)


def test_a_draft_can_be_made_again(opened: Open) -> None:
    """As after a rewind to where the text already ends."""
    target, heads = pair = opened()
    expected = drafted(pair, 12)
    target.rewind(11)
    assert heads.begin(TEXT[:12]) == 1
    assert np.allclose(heads.next_rows(TEXT[:12], BLOCK), expected, atol=1e-2)


def test_positions_of_several_dimensions_count_text_in_the_first(opened: Open) -> None:
    """As drafters of models that see pictures have them, such as Qwen3.5."""
    plain = drafted(opened(), 40)
    assert np.allclose(drafted(opened(dimensions=4), 40), plain, atol=1e-2)

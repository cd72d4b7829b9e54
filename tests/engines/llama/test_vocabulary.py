"""Tokenization: round trips, control tokens on request only, pieces of half a character."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datastores.errors import InputError
from engines.chat_template.prompt_builder import encode_continuation
from engines.llama.model import LlamaModel, load
from engines.llama.vocabulary import LlamaVocabulary
from tests.engines.conftest import EMBEDDED
from tests.engines.tiny import TinyVocabulary, write_llama

PIECES = ["▁", "h", "e", "l", "o", "▁h", "el", "lo", "▁hel", "▁hello", "\n"]
TINY = TinyVocabulary(pieces=PIECES)


@pytest.fixture(scope="module")
def sentencepiece(tmp_path_factory: pytest.TempPathFactory) -> LlamaVocabulary:
    path = write_llama(tmp_path_factory.mktemp("models") / "words.gguf", TINY)
    return load(path, threads=1, context_length=256).vocabulary


def text_of(vocabulary: LlamaVocabulary, ids: list[int]) -> str:
    return b"".join(map(vocabulary.piece, ids)).decode()


@pytest.mark.usefixtures("model")
@settings(max_examples=60, deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=200))
def test_text_survives_the_round_trip(text: str) -> None:
    vocabulary = LOADED[0]
    assert text_of(vocabulary, vocabulary.encode(text)) == text


LOADED: list[LlamaVocabulary] = []


@pytest.fixture(autouse=True, scope="module")
def _loaded(model: LlamaModel) -> None:
    LOADED[:] = [model.vocabulary]


def test_control_tokens_are_parsed_on_request_only(model: LlamaModel) -> None:
    vocabulary = model.vocabulary
    assert vocabulary.encode("<|im_end|>", special=True) == [2]
    plain = vocabulary.encode("<|im_end|>")
    assert 2 not in plain
    assert text_of(vocabulary, plain) == "<|im_end|>"


def test_stops_and_control_pieces(model: LlamaModel) -> None:
    assert model.vocabulary.stops == {0, 2}
    assert model.vocabulary.piece(1) == b""
    assert model.vocabulary.piece(2) == b""
    assert model.vocabulary.prompt_prefix == ()


def test_pieces_may_be_parts_of_characters(model: LlamaModel) -> None:
    vocabulary = model.vocabulary
    pieces = [vocabulary.piece(token) for token in vocabulary.encode("\U0001f9ea")]
    assert len(pieces) > 1
    assert b"".join(pieces).decode() == "\U0001f9ea"
    with pytest.raises(UnicodeDecodeError):
        pieces[0].decode()


def test_lone_surrogates_do_not_crash(model: LlamaModel) -> None:
    assert text_of(model.vocabulary, model.vocabulary.encode("a\ud800b")) == "a?b"


def test_an_unknown_token_is_named_in_the_error(model: LlamaModel) -> None:
    for token in (-1, model.vocabulary.size):
        with pytest.raises(InputError, match=f"token {token} is not in"):
            model.vocabulary.piece(token)


def test_fingerprint_is_the_tokenizers_own(
    model: LlamaModel, sentencepiece: LlamaVocabulary
) -> None:
    assert len(model.vocabulary.fingerprint) == 32
    assert model.vocabulary.fingerprint != sentencepiece.fingerprint
    draft_model = load(EMBEDDED.with_name("draft-model-f16.gguf"), threads=1, context_length=256)
    assert draft_model.vocabulary.fingerprint == model.vocabulary.fingerprint


def test_continued_text_gets_no_dummy_space(sentencepiece: LlamaVocabulary) -> None:
    def texts(ids: list[int]) -> list[str]:
        return [TINY.tokens[token] for token in ids]

    assert texts(sentencepiece.encode("hello")) == ["▁hello"]
    assert texts(encode_continuation(sentencepiece, "hello")) == ["h", "el", "lo"]
    assert texts(encode_continuation(sentencepiece, " hello")) == ["▁hello"]
    assert sentencepiece.prompt_prefix == (1,)

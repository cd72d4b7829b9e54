"""Names of files: quantisations, parts, and tags that distinguish models."""

from __future__ import annotations

from random import Random

import hypothesis.strategies as st
import pytest
from hypothesis import given

from app.models.gguf_files import group_parts, quantisation, tags


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Llama-3.2-3B-Instruct-Q4_K_M", "Q4_K_M"),
        ("qwen2.5-0.5b-instruct-q8_0", "Q8_0"),
        ("mistral-7b.Q5_K_S", "Q5_K_S"),
        ("gemma-3-IQ2_XXS", "IQ2_XXS"),
        ("Qwen3-8B-UD-Q4_K_XL", "UD-Q4_K_XL"),
        ("gpt-oss-20b-MXFP4", "MXFP4"),
        ("phi-bf16", "BF16"),
        ("3b-instruct-q4_K_M", "Q4_K_M"),
        ("Q8-of-Hearts-F16", "F16"),
        ("model", ""),
        ("faq4you", ""),
        ("Qwen3-8B", ""),
    ],
)
def test_the_quantisation_is_read_from_the_name(name: str, expected: str) -> None:
    assert quantisation(name) == expected


def test_parts_are_one_model_and_companions_are_none() -> None:
    names = [
        "b/big-Q8_0-00002-of-00003.gguf",
        "b/big-Q8_0-00001-of-00003.gguf",
        "small.GGUF",
        "mmproj-model-f16.gguf",
        "imatrix_unsloth.gguf",
        "mtp-model.gguf",
        "small-EAGLE3-F16.gguf",
        "small-DFlash-F16.gguf",
        "README.md",
        "odd-00004-of-00003.gguf",
    ]
    found = {bundle.stem: bundle for bundle in group_parts(names)}
    assert set(found) == {"b/big-Q8_0", "small", "odd-00004-of-00003"}
    assert found["b/big-Q8_0"].files == tuple(sorted(names[:2]))
    assert (found["b/big-Q8_0"].missing, found["small"].missing) == (1, 0)


def test_a_tag_is_the_shortest_that_is_no_other_s() -> None:
    names = ["a-Q4_0.gguf", "b-Q4_0.gguf", "a-Q8_0.gguf", "x/c.gguf", "y/c.gguf", "d.gguf"]
    found = group_parts(names)
    by_stem = dict(zip((bundle.stem for bundle in found), tags(found), strict=True))
    assert by_stem == {
        "a-Q4_0": "a-Q4_0",
        "b-Q4_0": "b-Q4_0",
        "a-Q8_0": "Q8_0",
        "x/c": "x/c",
        "y/c": "y/c",
        "d": "d",
    }


_STEM = st.text("abQ48_K-./", min_size=1, max_size=8).filter(lambda stem: stem[-1] not in "./")
_NAMES = st.lists(_STEM, unique=True, max_size=6).map(lambda stems: [f"{s}.gguf" for s in stems])


@given(_NAMES, st.integers(1, 9), st.randoms(use_true_random=False))
def test_no_file_is_lost_and_no_tag_given_twice(
    names: list[str], parts: int, random: Random
) -> None:
    names = [*names, *(f"parted-{part:05}-of-{parts:05}.gguf" for part in range(1, parts + 1))]
    random.shuffle(names)
    found = group_parts(names)
    assert sorted(file for bundle in found for file in bundle.files) == sorted(names)
    assert not any(bundle.missing for bundle in found)
    assert len(set(tags(found))) == len(found)

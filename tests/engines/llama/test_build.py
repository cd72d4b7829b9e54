"""Recognises a build of llama.cpp that does not use the processor's instructions."""

from __future__ import annotations

from pathlib import Path

import pytest

from engines.llama import build
from engines.llama.build import missing_features, unused_features
from engines.llama.devices import rebuild_line

X86 = "processor\t: 0\nflags\t\t: fpu sse2 avx2 fma f16c avx512f avx512_vnni\n"
ARM = "processor\t: 0\nFeatures\t: fp asimd asimddp i8mm\n"
FULL = "CPU : AVX2 = 1 | F16C = 1 | FMA = 1 | AVX512 = 1 | AVX512_VNNI = 1 | LLAMAFILE = 1 | "


@pytest.mark.parametrize(
    ("system_info", "cpu_info", "unused"),
    [
        (FULL + "REPACK = 1 | ", X86, []),
        (FULL, X86, ["REPACK"]),
        (
            "CPU : AVX2 = 1 | F16C = 1 | FMA = 1 | LLAMAFILE = 1 | REPACK = 1 | ",
            X86,
            ["AVX512", "AVX512_VNNI"],
        ),
        ("CPU : NEON = 1 | LLAMAFILE = 1 | REPACK = 1 | ", ARM, ["DOTPROD", "MATMUL_INT8"]),
        ("CPU : AVX2 = 1 | ", "", []),
    ],
)
def test_what_a_build_leaves_unused(system_info: str, cpu_info: str, unused: list[str]) -> None:
    assert unused_features(system_info, cpu_info) == unused


def test_this_build_is_compared_with_this_processor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text("flags : none_of_them\n")
    monkeypatch.setattr(build, "CPU_INFO", info)
    assert set(missing_features()) <= set(build.PARTS)
    monkeypatch.setattr(build, "CPU_INFO", tmp_path / "missing")
    assert missing_features() == []
    assert "GGML_NATIVE=on" in rebuild_line()

"""Whether this build of llama.cpp uses what the processor has.

A package made on another machine may lack instructions that this one has. The build that pip makes
here has all of them, and no other option of llama.cpp made it faster: its newest release, built
with its defaults, takes the same time for 1 to 32 rows (Qwen2.5 1.5B in F16 and Q4_K_M), and the
second copy of the weights for wide passes (REPACK) is on already.

Reads /proc/cpuinfo and asks llama.cpp about its build.
"""

from __future__ import annotations

from engines.llama.threads import CPU_INFO

FEATURES = {
    "AVX2": "avx2",
    "FMA": "fma",
    "F16C": "f16c",
    "AVX512": "avx512f",
    "AVX512_VNNI": "avx512_vnni",
    "AVX512_BF16": "avx512_bf16",
    "AMX_INT8": "amx_int8",
    "DOTPROD": "asimddp",
    "MATMUL_INT8": "i8mm",
    "SVE": "sve",
}
"""Instructions as llama.cpp names them, and as the kernel does."""
PARTS = ("REPACK", "LLAMAFILE")
"""Parts of llama.cpp without which passes of several rows take longer."""


def missing_features() -> list[str]:
    """What this build does not use although it could; empty where that is unknown."""
    from llama_cpp import llama_cpp as lib

    info = CPU_INFO.read_text(errors="replace") if CPU_INFO.exists() else ""
    return unused_features(lib.llama_print_system_info().decode(), info)


def unused_features(system_info: str, cpu_info: str) -> list[str]:
    """The features of the processor, and parts of llama.cpp, that are off in `system_info`.

    Args:
        system_info: llama.cpp's own line, such as "CPU : AVX2 = 1 | FMA = 1 | ".
        cpu_info: /proc/cpuinfo's text.
    """
    flags = {
        flag
        for line in cpu_info.splitlines()
        if line.startswith(("flags", "Features"))
        for flag in line.partition(":")[2].split()
    }
    if not flags:
        return []
    entries = system_info.replace("CPU :", "|").split("|")
    used = {entry.split("=")[0].strip() for entry in entries if entry.strip().endswith("= 1")}
    wanted = [name for name, flag in FEATURES.items() if flag in flags] + list(PARTS)
    return [name for name in wanted if name not in used]

"""Whether this build of llama.cpp uses all instructions of the processor, and whether it has RPC.

A package built on another machine may lack some. The build that pip makes here has all of them, and
no other option of llama.cpp made it faster: its newest release with default options takes the same
time for 1 to 32 rows (Qwen2.5 1.5B in F16 and Q4_K_M), and REPACK, the second copy of the weights
for wide passes, is already on.
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
"""Instruction sets: llama.cpp's names → the kernel's."""
PARTS = ("REPACK", "LLAMAFILE")
"""Parts of llama.cpp that speed up passes of several rows."""


def has_rpc() -> bool:
    """Whether this build can put layers on workers."""
    from llama_cpp import llama_cpp as lib

    return bool(lib.llama_supports_rpc())


def missing_features() -> list[str]:
    """Features that this build lacks; empty if unknown."""
    from llama_cpp import llama_cpp as lib

    info = CPU_INFO.read_text(errors="replace") if CPU_INFO.exists() else ""
    return unused_features(lib.llama_print_system_info().decode(), info)


def unused_features(system_info: str, cpu_info: str) -> list[str]:
    """Features of the processor and parts of llama.cpp that are off in `system_info`.

    Args:
        system_info: llama.cpp's line, such as "CPU : AVX2 = 1 | FMA = 1 | ".
        cpu_info: the text of /proc/cpuinfo.
    """
    flags = {
        flag
        for line in cpu_info.splitlines()
        if line.startswith(("flags", "Features"))
        for flag in line.partition(":")[2].split()
    }
    if not flags:
        return []
    used = used_features(system_info)
    wanted = [name for name, flag in FEATURES.items() if flag in flags] + list(PARTS)
    return [name for name in wanted if name not in used]


def used_features(system_info: str) -> set[str]:
    """Features of the processor and parts of llama.cpp that are on in its line `system_info`."""
    entries = system_info.replace("CPU :", "|").split("|")
    return {entry.split("=")[0].strip() for entry in entries if entry.strip().endswith("= 1")}

"""Finding graphics cards, the command that installs a build for them, and default sizes."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest
from llama_cpp import llama_cpp as lib

from engines.llama import devices, threads
from engines.llama.forward import MAX_CHUNK, MIN_CHUNK, PrefillChunkSize


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without any card, driver or tool; tests put its files under the returned path."""
    monkeypatch.setattr(devices, "NVIDIA", tmp_path / "nvidia")
    monkeypatch.setattr(devices, "DRM", tmp_path / "drm")
    monkeypatch.setattr(devices, "_output", lambda *command: "")
    return tmp_path


def test_no_card(bare: Path) -> None:
    assert devices.find_gpus() == []


def test_nvidia_by_its_driver(bare: Path) -> None:
    card = bare / "nvidia" / "0000:01:00.0"
    card.mkdir(parents=True)
    (card / "information").write_text("Model: \t\t NVIDIA RTX 4090\nIRQ: 1\n")
    assert devices.find_gpus() == ["NVIDIA RTX 4090"]


def test_nvidia_by_its_tool(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "_output", lambda *command: "Tesla T4\nNVIDIA L4")
    assert devices.find_gpus() == ["NVIDIA Tesla T4", "NVIDIA L4"]


def test_other_vendors_by_the_kernels_list(bare: Path) -> None:
    for card, vendor in (("card0", "0x1002"), ("card1", "0x1234"), ("card2", "0x8086")):
        (bare / "drm" / card / "device").mkdir(parents=True)
        (bare / "drm" / card / "device" / "vendor").write_text(f"{vendor}\n")
    assert devices.find_gpus() == ["AMD GPU", "Intel GPU"]


@pytest.mark.parametrize(
    ("gpu", "flag"),
    [
        ("NVIDIA L4", "GGML_CUDA"),
        ("Apple M3 GPU", "GGML_METAL"),
        ("AMD GPU", "GGML_VULKAN"),
        ("Intel GPU", "GGML_VULKAN"),
    ],
)
def test_install_line_names_the_backend(gpu: str, flag: str) -> None:
    line = devices.install_line(gpu)
    assert f'CMAKE_ARGS="-D{flag}=on"' in line
    assert "--force-reinstall" in line
    assert "--no-binary llama-cpp-python" in line
    assert line.endswith(f"llama-cpp-python=={version('llama-cpp-python')}")


@pytest.mark.parametrize(("offload", "unused"), [(False, "NVIDIA L4"), (True, "")])
def test_a_card_is_unused_if_the_build_runs_on_the_cpu_alone(
    bare: Path, monkeypatch: pytest.MonkeyPatch, offload: bool, unused: str
) -> None:
    monkeypatch.setattr(lib, "llama_supports_gpu_offload", lambda: offload)
    assert devices.unused_gpu() == ""
    monkeypatch.setattr(devices, "_output", lambda *command: "NVIDIA L4")
    assert devices.unused_gpu() == unused


def test_threads_are_cores_within_the_quota(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text(
        "".join(
            f"processor\t: {number}\nphysical id\t: 0\ncore id\t\t: {number // 2}\n\n"
            for number in range(8)
        )
    )
    quota = tmp_path / "cpu.max"
    monkeypatch.setattr(threads, "CPU_INFO", info)
    monkeypatch.setattr(threads, "CPU_QUOTA", quota)
    monkeypatch.setattr("os.sched_getaffinity", lambda _process: set(range(6)), raising=False)
    assert threads.default_threads() == 3
    quota.write_text("150000 100000\n")
    assert threads.default_threads() == 2
    quota.write_text("max 100000\n")
    assert threads.default_threads() == 3


def test_chunks_shrink_on_slow_machines_and_grow_back() -> None:
    chunk_size = PrefillChunkSize(parameters=7_000_000_000, threads=4, on_device=False)
    assert chunk_size.tokens == MIN_CHUNK
    for _ in range(9):
        chunk_size.observe(chunk_size.tokens, 0.01)
    assert chunk_size.tokens == MAX_CHUNK
    chunk_size.observe(3, 9.0)
    assert chunk_size.tokens == MAX_CHUNK, "a short last chunk is ignored"
    chunk_size.observe(MAX_CHUNK, 0.1)
    assert chunk_size.tokens == MAX_CHUNK
    for _ in range(9):
        chunk_size.observe(chunk_size.tokens, 1.0)
    assert chunk_size.tokens == MIN_CHUNK

"""Graphics cards: those in this machine, their free memory, and whether this build of llama.cpp can
use them; if not, the command that installs a build that can.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

NVIDIA = Path("/proc/driver/nvidia/gpus")
DRM = Path("/sys/class/drm")
VENDORS = {"0x1002": "AMD", "0x10de": "NVIDIA", "0x8086": "Intel"}
INSTALL = (
    'CMAKE_ARGS="{flags}" pip install --force-reinstall --no-deps'
    " --no-cache-dir --no-binary llama-cpp-python llama-cpp-python=={version}"
)
FLAGS = {"NVIDIA": "GGML_CUDA", "Apple": "GGML_METAL"}
DEFAULT_FLAG = "GGML_VULKAN"

_GPU = 1
"""GGML_BACKEND_DEVICE_TYPE_GPU: a device with memory of its own."""
_CPU, _CARDS = 0, (_GPU, 2)
"""The types of the processor, and of all graphics cards (2: in the processor's memory)."""


def unused_gpu() -> str:
    """The first graphics card that this build of llama.cpp cannot use; empty if there is none."""
    gpus = find_gpus()
    return gpus[0] if gpus and not offloads() else ""


def offloads() -> bool:
    """Whether this build of llama.cpp can put layers on a graphics card."""
    from llama_cpp import llama_cpp as lib

    # A build with RPC can also put them on workers, and says the same.
    other = lib.llama_supports_rpc() and not any(_typed_devices(lib._lib, _CARDS))
    return bool(lib.llama_supports_gpu_offload()) and not other


def install_line(gpu: str) -> str:
    """The command that installs llama.cpp with the backend for `gpu`, one of `find_gpus`."""
    return _install(_flag(gpu))


def rebuild_line() -> str:
    """The command that builds llama.cpp for this machine's processor, and for its graphics card if
    the current build supports one."""
    gpus = find_gpus()[:1] if offloads() else []
    return _install("GGML_NATIVE", *map(_flag, gpus))


def rpc_line() -> str:
    """The command that installs llama.cpp with RPC, and for the graphics card if there is one."""
    return _install("GGML_RPC", *map(_flag, find_gpus()[:1]))


def _flag(gpu: str) -> str:
    return next((flag for vendor, flag in FLAGS.items() if vendor in gpu), DEFAULT_FLAG)


def _install(*flags: str) -> str:
    options = " ".join(f"-D{flag}=on" for flag in flags)
    return INSTALL.format(flags=options, version=version("llama-cpp-python"))


def find_gpus() -> list[str]:
    """Names of the graphics cards in this machine that a build of llama.cpp could use."""
    return _nvidia() or _apple() or _drm()


def _nvidia() -> list[str]:
    """Cards that the driver has claimed, from /proc or, where that is missing, nvidia-smi."""
    if NVIDIA.is_dir():
        return [_nvidia_model(card / "information") for card in sorted(NVIDIA.iterdir())]
    names = _output("nvidia-smi", "--query-gpu=name", "--format=csv,noheader").splitlines()
    return [name if "NVIDIA" in name else f"NVIDIA {name}" for name in names]


def _nvidia_model(information: Path) -> str:
    for line in information.read_text(errors="replace").splitlines():
        name, _, value = line.partition(":")
        if name == "Model":
            return value.strip() if "NVIDIA" in value else f"NVIDIA {value.strip()}"
    return "NVIDIA"


def _apple() -> list[str]:
    """The GPU of an Apple processor, which Metal supports."""
    if sys.platform != "darwin":
        return []
    chip = _output("sysctl", "-n", "machdep.cpu.brand_string")
    return [f"{chip} GPU"] if chip.startswith("Apple") else []


def _drm() -> list[str]:
    """Linux's display devices of known vendors, which a virtual machine's display lacks."""
    found = []
    for vendor in sorted(DRM.glob("card[0-9]*/device/vendor")):
        code = vendor.read_text().strip()
        if code in VENDORS:
            found.append(f"{VENDORS[code]} GPU")
    return found


def _output(program: str, *arguments: str) -> str:
    """The output of a program; empty if it is missing or fails."""
    path = shutil.which(program)
    if path is None:
        return ""
    answer = subprocess.run([path, *arguments], capture_output=True, text=True, check=False)
    return answer.stdout.strip() if answer.returncode == 0 else ""


def free_gpu_memory() -> int:
    """Free bytes on all usable cards; 0 if they share the processor's memory."""
    from llama_cpp import llama_cpp as lib

    # Before the first call: it routes llama.cpp's log, to which drivers write on first use.
    from engines.llama import native

    if sys.platform == "darwin" or not offloads():
        return 0  # Metal reports the processor's own memory
    free = sum(_free_memory(lib._lib, device) for device in _typed_devices(lib._lib, (_GPU,)))
    native.LOGGER.info("%d bytes are free on graphics cards", free)
    return free


def compute_devices() -> list[ctypes.c_void_p]:
    """What this build of llama.cpp computes with: graphics cards, or else the processor."""
    from llama_cpp import llama_cpp as lib

    return _typed_devices(lib._lib, _CARDS) or _typed_devices(lib._lib, (_CPU,))


def _typed_devices(library: Any, types: Sequence[int]) -> list[ctypes.c_void_p]:
    library.ggml_backend_dev_count.restype = ctypes.c_size_t
    library.ggml_backend_dev_get.restype = ctypes.c_void_p
    devices = (
        ctypes.c_void_p(library.ggml_backend_dev_get(ctypes.c_size_t(index)))
        for index in range(library.ggml_backend_dev_count())
    )
    return [device for device in devices if library.ggml_backend_dev_type(device) in types]


def _free_memory(library: Any, device: ctypes.c_void_p) -> int:
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    library.ggml_backend_dev_memory(device, ctypes.byref(free), ctypes.byref(total))
    return free.value

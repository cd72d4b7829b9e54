"""What drafting brings on a machine with a card: one script, from what `tests.gpu.pack` packed.

    python3 -m tests.gpu.check build PACK [WORK]   llama.cpp for the card in this machine
    python3 -m tests.gpu.check run WORK [small]    everything, to the time limit
    python3 -m tests.gpu.check passes MODEL        V(n) of one model, as JSON

`build` may run in the background while the parts of the real model arrive in WORK. `run` waits for
it, makes random Llamas of 8 B, and measures V(n), plain and drafted speed on recorded answers, the
real model with every drafter, in its own quantisation and in F16, identity, the safetensors engine
and one round of training. `small` makes small random models, to rehearse it all on a CPU. Steps
that fail are said and skipped.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path
from shutil import copy2
from tempfile import mkdtemp
from time import monotonic, sleep
from typing import Any

WIDTHS = (1, 2, 3, 4, 6, 8, 9, 12, 16, 24, 32, 48, 64)
LIMIT_S = float(os.environ.get("GPU_CHECK_SECONDS", "480"))
"""For `run`, the wait for the build included."""
WORK = Path("/tmp/gpu-check")
REPOSITORY = Path(__file__).parents[2]
STARTED = monotonic()


def left() -> float:
    """Seconds until the time limit."""
    return LIMIT_S - (monotonic() - STARTED)


def cuda_options() -> list[str]:
    """Where CUDA's libraries are, if not beside its compiler: PyTorch brings its own."""
    options = ["-DGGML_CUDA=ON", "-DCMAKE_CUDA_ARCHITECTURES=native"]
    if list(Path("/usr/local/cuda/lib64").glob("libcublas.so")):
        return options
    found = sorted(path for path in map(Path, sys.path) if (path / "nvidia").is_dir())
    for library in (path for base in found for path in base.glob("nvidia/*/lib/libcublas.so.*")):
        include = library.parents[1] / "include"
        for name in ("cublas", "cublasLt"):
            (link := WORK / f"lib{name}.so").unlink(missing_ok=True)
            link.symlink_to(next(library.parent.glob(f"lib{name}.so.*")))
            options.append(f"-DCUDA_{name}_LIBRARY={link}")
        return [*options, f"-DCMAKE_CUDA_FLAGS=-I{include}"]
    return options


def build(pack: Path, work: Path) -> None:
    """Unpack source and wheels into `work`, and build the libraries beside the Python package."""
    work.mkdir(parents=True, exist_ok=True)
    with tarfile.open(pack / "llama.tar.xz") as tar:
        tar.extractall(work, filter="data")
    wheels = sorted(map(str, pack.glob("*.whl")))
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--no-compile"]
    subprocess.run([*pip, "--upgrade", f"--target={work / 'site'}", *wheels], check=True)
    card = cuda_options() if has_card() else []
    switched = ("COMMON", "TESTS", "TOOLS", "EXAMPLES", "SERVER", "APP")
    off = [f"-DLLAMA_BUILD_{name}=OFF" for name in switched]
    rest = ["-DCMAKE_BUILD_TYPE=Release", "-DBUILD_SHARED_LIBS=ON", "-DLLAMA_BUILD_NUMBER=0"]
    places = ["-S", str(work / "llama.cpp"), "-B", str(work / "build")]
    rest.append("-DLLAMA_BUILD_COMMIT=pinned")
    subprocess.run(["cmake", "-G", "Ninja", *places, *card, *off, *rest], check=True)
    parallel = ["--parallel", str(os.cpu_count())]
    subprocess.run(["cmake", "--build", str(work / "build"), *parallel], check=True)
    libraries = work / "site" / "llama_cpp" / "lib"
    libraries.mkdir(exist_ok=True)
    for library in (work / "build" / "bin").glob("*.so*"):
        copy2(library, libraries)
    (work / "built").touch()


def has_card() -> bool:
    """Whether nvidia-smi finds a card."""
    try:
        return not subprocess.run(["nvidia-smi", "-L"], capture_output=True, check=False).returncode
    except FileNotFoundError:
        return False


class Check:
    """Runs the steps, one process each, and keeps what they found."""

    def __init__(self, work: Path, size: str) -> None:
        self.work = work
        self.size = size
        self.found: dict[str, Any] = {}
        site = work / "site"
        lib = f"{site / 'llama_cpp' / 'lib'}:{os.environ.get('LD_LIBRARY_PATH', '')}"
        self.environment = dict(os.environ, PYTHONPATH=f"{REPOSITORY}:{site}", LD_LIBRARY_PATH=lib)

    def step(self, name: str, arguments: Sequence[str], seconds: float) -> Any:
        """Run `python` with `arguments`; what its last line says. None if that failed."""
        limit = min(seconds, left())
        if limit < 5:
            return print(f"{name}: no time left", flush=True)
        began = monotonic()
        command = [sys.executable, *arguments]
        try:
            run = subprocess.run(
                command,
                env=self.environment,
                cwd=REPOSITORY,
                timeout=limit,
                text=True,
                stdout=-1,
                stderr=-1,
            )
        except subprocess.TimeoutExpired:
            return print(f"{name}: stopped after {limit:.0f} s", flush=True)
        lines = run.stdout.strip().splitlines()
        print(f"{name}: {monotonic() - began:.0f} s", flush=True)
        try:
            self.found[name] = json.loads(lines[-1]) if lines else None
        except ValueError:
            self.found[name] = lines[-1]
        if run.returncode:
            print("\n".join(run.stderr.splitlines()[-4:]), flush=True)
        return self.found.get(name)

    def specchat(
        self, name: str, model: Path, *arguments: str, seconds: float, module: str = "app"
    ) -> Any:
        """A step that is a command of specchat, with a data directory of its own."""
        data = mkdtemp(prefix="specchat-gpu-")
        options = ["-m", module, "--data-dir", data, "--model", str(model)]
        return self.step(name, [*options, *arguments], seconds)

    def decode(
        self, name: str, model: Path, workload: str, sets: Sequence[str], *more: str, seconds: float
    ) -> None:
        """`bench decode`, and its rows as a table."""
        chosen = [part for one in sets for part in ("--drafters", one)]
        arguments = ["--temperature", "0", "bench", "decode", *chosen, "--json"]
        arguments += ["--workload", str(self.work / workload)]
        found = self.specchat(name, model, *arguments, *more, seconds=seconds)
        for row in found["rows"] if isinstance(found, dict) else ():
            keys = ("drafters", "fixed", "tokens_per_step", "speedup", "bound", "identical")
            rest = (
                f"overhead {row['overhead_ms_per_step']:.3f} ms, gap {row['largest_fork_gap']:.2g}"
            )
            speed = row["tokens"] / max(row["seconds"], 1e-9)
            print(
                "   ", {key: row[key] for key in keys}, f"{speed:.1f} tokens/s,", rest, flush=True
            )

    def workloads(self) -> None:
        """Recorded code and passages, and questions for the real model."""
        for kind in ("code", "passages"):
            self.step(
                kind, ["-m", "tests.recorded_workloads", kind, str(self.work / f"{kind}.jsonl")], 60
            )
        questions = [
            [
                "Write a Python function that counts words in a file.",
                "Make it ignore case; show all of it.",
            ],
            [
                "Write a bash script that backs up a folder.",
                "Keep the last 7 backups; show all of it.",
            ],
            ["How does a refrigerator work?", "Explain it to a child."],
        ]
        chats = [
            {"id": f"chat-{number}", "messages": [{"role": "user", "content": one} for one in chat]}
            for number, chat in enumerate(questions)
        ]
        lines = "".join(json.dumps(chat) + "\n" for chat in chats)
        (self.work / "chats.jsonl").write_text(lines)

    def run(self) -> None:
        """All steps, the most telling first."""
        parts = sorted(self.work.glob("model.[0-9][0-9]"))
        real = self.work / "real.gguf"
        with real.open("wb") as file:
            for part in parts:
                file.write(part.read_bytes())
        self.workloads()
        for kind in ("q4_0", "f16"):
            made = self.work / f"large-{kind}.gguf"
            if made.exists():
                continue
            maker = ["-m", "tests.gpu.random_model", str(real), str(made), kind, self.size]
            self.step(f"make {kind}", [one for one in maker if one], 90)
        exact = self.work / "real-f16.gguf"
        if not exact.exists():
            self.step("real in F16", ["-m", "tests.gpu.check", "f16", str(real), str(exact)], 60)
        folder = self.work / "folder"
        if not folder.exists():
            arguments = ["-m", "tests.gpu.check", "folder", str(real), str(folder)]
            self.step("safetensors", arguments, 60)
        while not (self.work / "built").exists() and left() > 30:
            sleep(1)
        for model in (real, exact):
            name = f"chats {model.name}"
            self.decode(name, model, "chats.jsonl", ["none", "prompt", "all"], seconds=60)
        self.decode("chats torch", folder, "chats.jsonl", ["none", "prompt"], seconds=60)
        training = ("--workload", str(self.work / "chats.jsonl"), "--every", "2", "--json")
        draft_model = ("--draft-model", "new")
        self.specchat(
            "distill", real, "distill", *draft_model, *training, seconds=60, module="app.bench"
        )
        print("   ", str(self.found.get("distill"))[:600], flush=True)
        models = [self.work / f"large-{name}.gguf" for name in ("q4_0", "f16")]
        for model in (*models, real, exact):
            name = f"V(n) {model.name}"
            self.step(name, ["-m", "tests.gpu.check", "passes", str(model)], 60)
            print("   ", self.found.get(name), flush=True)
        short = ("--limit", "6", "--recorded")
        for model in models:
            for kind, sets in (("code", ("none", "prompt", "all")), ("passages", ("none", "all"))):
                self.decode(
                    f"{kind} {model.name}", model, f"{kind}.jsonl", sets, *short, seconds=90
                )


def passes(model: Path) -> None:
    """V(n) of a model with all layers where the engine puts them, in milliseconds."""
    from app.bench.decode import verify_ms
    from app.config import Options
    from app.engine.loading import load

    engine = load(Options(model=str(model), data_dir=Path(mkdtemp()), drafters=()), rows=WIDTHS[-1])
    print(json.dumps(verify_ms(engine.target, WIDTHS)))


def to_f16(model: Path, made: Path) -> None:
    """A quantised GGUF model in F16: the same weights, without the rounding of activations."""
    from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter, dequantize

    reader = GGUFReader(model)
    writer = GGUFWriter(made, reader.fields["general.architecture"].contents())
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        inner = field.types[1] if field.types[0] == GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), field.types[0], inner)
    for tensor in reader.tensors:
        values = dequantize(tensor.data, tensor.tensor_type)
        if tensor.tensor_type != GGMLQuantizationType.F32:
            values = values.astype("float16")
        writer.add_tensor(tensor.name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    print(json.dumps(made.stat().st_size))


def to_folder(model: Path, folder: Path) -> None:
    """A GGUF model as a safetensors folder, for the torch engine."""
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    options = {"gguf_file": model.name}
    read = AutoModelForCausalLM.from_pretrained(model.parent, **options)
    plain = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(model.parent, **options))
    plain.load_state_dict(read.state_dict())
    plain.save_pretrained(folder)
    AutoTokenizer.from_pretrained(model.parent, **options).save_pretrained(folder)
    print(json.dumps(sorted(path.name for path in folder.iterdir())))


def main(command: str, *arguments: str) -> None:
    """See the module."""
    paths = [Path(one) for one in arguments]
    if command == "build":
        build(paths[0], paths[1] if len(paths) > 1 else WORK)
    elif command == "passes":
        passes(paths[0])
    elif command == "f16":
        to_f16(*paths)
    elif command == "folder":
        to_folder(*paths)
    else:
        check = Check(paths[0], arguments[1] if len(arguments) > 1 else "")
        check.run()
        out = Path(os.environ.get("OUT", paths[0]))
        (out / "gpu-check.json").write_text(json.dumps(check.found, indent=1))


if __name__ == "__main__":
    main(*sys.argv[1:])

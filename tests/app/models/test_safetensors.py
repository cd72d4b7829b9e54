"""Safetensors folders: found, described, refused in one line, and answering as their GGUF does."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from app.config import Options
from app.conversation.assistant import Assistant
from app.engine.draft_model_versions import replay_path
from app.engine.loading import load
from app.interface.models.switch import hint_about_pytorch
from app.locations import Locations, ModelFolders
from app.models import memory, safetensors
from app.models.description import describe
from app.models.discovery import embedded, find_model, find_models, resolve_model
from app.models.gguf_files import ModelCandidate
from app.models.memory import memory_shortage, require_memory
from app.models.safetensors import CPU, CUDA, MPS, read_safetensors
from app.models.selection import catalogue, choose, first_launch_offer
from datastores.chats.history import History
from datastores.errors import InputError, ModelError
from datastores.replay_buffer.store import ReplayBuffer

CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
}
PARTS = 2


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    safetensors.torch_device.cache_clear()
    for module in ("description", "memory"):
        monkeypatch.setattr(f"app.models.{module}.torch_device", lambda: CPU)


def write_folder(path: Path, **config: object) -> Path:
    """A model of zeros, in parts."""
    path.mkdir(parents=True)
    names = [f"model-{part:05}-of-{PARTS:05}.safetensors" for part in range(1, PARTS + 1)]
    for name in names:
        save_file({name: np.zeros((64, 64), np.float16)}, path / name)
    index = {"weight_map": {name: name for name in names}}
    (path / safetensors.INDEX_FILE).write_text(json.dumps(index))
    (path / safetensors.CONFIG_FILE).write_text(json.dumps({**CONFIG, **config}))
    (path / "tokenizer.json").write_text("{}")
    (path / "tokenizer_config.json").write_text('{"chat_template": "{{ messages }}"}')
    return path


@pytest.fixture
def cached(others: ModelFolders) -> Path:
    """A model in Hugging Face's cache."""
    return write_folder(others.hugging_face / "models--org--tiny" / "snapshots" / ("1" * 40))


def test_models_of_the_hub_s_cache_are_listed_and_chosen(
    locations: Locations, cached: Path
) -> None:
    candidate = find_model("org/tiny", locations)
    assert candidate.files == (cached,)
    model = describe(candidate)
    assert (model.architecture, model.parameters, model.quantisation) == ("llama", 8192, "F16")
    assert (model.context_length, model.problem) == (512, "")
    assert "slower than a GGUF" in model.remark
    assert [offered.name for offered in first_launch_offer(locations)] == ["org/tiny"]
    assert choose("org/tiny", locations).path == cached
    *_, listed = catalogue(locations, cached)
    first = listed.models[0]
    assert (first.model.name, first.in_use, first.needed > 8192 * 4) == ("org/tiny", True, True)


def test_a_folder_without_chat_template_is_called_a_base_model(locations: Locations) -> None:
    folder = write_folder(locations.models / "mine")

    def described() -> str:
        return describe(find_model("mine", locations)).remark

    assert "base model" not in described()
    (folder / "tokenizer_config.json").write_text("{}")
    assert "base model" in described()
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    assert "base model" not in described()


def test_folders_of_one_s_own_are_found_by_path_and_name(
    locations: Locations, tmp_path: Path
) -> None:
    folder = write_folder(tmp_path / "somewhere")
    assert resolve_model(str(folder), locations) == folder
    own = write_folder(locations.models / "mine")
    assert resolve_model("mine", locations) == own
    assert choose(str(folder), locations).path == folder
    assert {candidate.name for candidate in find_models(locations).candidates} == {
        "built-in",
        "mine",
    }


BAD = {
    "empty": ("holds no model: give a GGUF file, or a folder", ["*"], b""),
    "no weights": ("has no \\*.safetensors", ["*.index.json", "*.safetensors"], b""),
    "a part missing": ("lacks 1 of its 2 files", ["model-00002*"], b""),
    "config": ("config.json is damaged", [], b"{"),
    "settings": ("config.json is damaged", [], b'{"architectures": 5}'),
    "index": ("index.json is damaged", [], b"[]"),
    "long name": ("lacks 1 of its 1 files", [], b'{"weight_map": {"a": "%s"}}' % (b"x" * 5000)),
    "truncated": ("00001-of-00002.safetensors is damaged", [], b"\x20\0\0\0\0\0\0\0{}"),
    "huge header": ("00001-of-00002.safetensors is damaged", [], b"\xff" * 64),
}
DAMAGED_FILES = {
    "config": safetensors.CONFIG_FILE,
    "settings": safetensors.CONFIG_FILE,
    "index": safetensors.INDEX_FILE,
    "long name": safetensors.INDEX_FILE,
    "truncated": "model-00001-of-00002.safetensors",
    "huge header": "model-00001-of-00002.safetensors",
}


@pytest.mark.parametrize(
    "shape", [[2, -2], [2**62, 2**62], [10**400], ["9" * 5000], [1e999], [None], 5, [64, 63, 4]]
)
def test_tensors_larger_than_their_file_are_damage(tmp_path: Path, shape: object) -> None:
    folder = write_folder(tmp_path / "bad")
    tensor = {"dtype": "F16", "shape": shape, "data_offsets": [0, 64]}
    header = json.dumps({"a": tensor}).encode()
    content = len(header).to_bytes(8, "little") + header + bytes(64)
    (folder / DAMAGED_FILES["truncated"]).write_bytes(content)
    with pytest.raises(ModelError, match="is damaged: download it again"):
        read_safetensors(folder)


@pytest.mark.parametrize("name", [DAMAGED_FILES[case] for case in ("config", "index", "truncated")])
@given(
    place=st.integers(0, 600),
    removed=st.integers(0, 20),
    added=st.binary(max_size=8)
    | st.sampled_from([b"[", b"null", b"9" * 500, b"1e999", b"-", b"NaN"]),
)
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_changed_folder_is_read_or_refused(
    tmp_path: Path, name: str, place: int, removed: int, added: bytes
) -> None:
    path = tmp_path / "model" / name
    if not path.exists():
        write_folder(tmp_path / "model")
        path.with_suffix(".whole").write_bytes(path.read_bytes())
    whole = path.with_suffix(".whole").read_bytes()
    start = place % len(whole)
    path.write_bytes(whole[:start] + added + whole[start + removed :])
    with suppress(ModelError):
        read = read_safetensors(path.parent)
        assert 0 <= read.parameters < 2**20
        assert f"{read.cached_numbers:,}"


@pytest.mark.parametrize("number", [10**400, 1e308, 2**40, 10**5])
@pytest.mark.parametrize("name", safetensors.TIMES_WIDTH)
def test_sizes_that_the_weights_do_not_have_are_damage(
    tmp_path: Path, name: str, number: object
) -> None:
    with pytest.raises(ModelError, match=r"config\.json is damaged: download it again"):
        read_safetensors(write_folder(tmp_path / "odd", **{name: number}))


@pytest.mark.parametrize("number", [-1, "64", None, 0])
def test_absurd_settings_count_as_missing(tmp_path: Path, number: object) -> None:
    folder = write_folder(tmp_path / "odd", hidden_size=number, num_hidden_layers=number)
    read = read_safetensors(folder)
    assert (read.width, read.layers, read.cached_numbers) == (0, 0, 0)
    assert "does not give its size" in read.problem


@pytest.mark.parametrize("case", BAD)
def test_a_bad_folder_is_named_in_one_line(tmp_path: Path, locations: Locations, case: str) -> None:
    reason, removed, content = BAD[case]
    folder = write_folder(tmp_path / "bad")
    for pattern in removed:
        for path in folder.glob(pattern):
            path.unlink()
    if content:
        (folder / DAMAGED_FILES[case]).write_bytes(content)
    with pytest.raises(ModelError, match=reason) as caught:
        load(Options(model=str(folder)), locations)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert describe(ModelCandidate("bad", "", (folder,))).problem == str(caught.value)


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"architectures": ["BertModel"]}, "not a text-only model"),
        ({"architectures": None}, "not a text-only model"),
        ({"quantization_config": {"quant_method": "gptq"}}, "quantised"),
        ({"layer_types": ["linear_attention", "full_attention"]}, "cannot be rewound"),
        ({"max_position_embeddings": None}, "does not give its size"),
    ],
)
def test_what_cannot_be_run_says_why(
    tmp_path: Path, locations: Locations, config: dict[str, object], problem: str
) -> None:
    folder = write_folder(tmp_path / "folder", **config)
    assert problem in read_safetensors(folder).problem
    with pytest.raises(InputError, match=problem):
        choose(str(folder), locations)
    with pytest.raises(ModelError, match=problem):
        require_memory(folder, 512)


def test_a_folder_without_tokenizer_is_refused(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "folder")
    (folder / "tokenizer.json").unlink()
    assert read_safetensors(folder).problem == "it has no tokenizer"


def test_memory_counts_what_pytorch_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_folder(tmp_path / "folder", head_dim=32)
    assert read_safetensors(folder).cached_numbers == 2 * 2 * 2 * 32
    estimates = {}
    for device in (CPU, MPS, CUDA):
        monkeypatch.setattr("app.models.memory.torch_device", lambda device=device: device)
        estimates[device], context = memory.memory_estimate(folder, 8192)
        assert context == 512
    assert [estimates[device].weights for device in (CPU, MPS, CUDA)] == [8192 * 4, 8192 * 2, 0]
    assert "are free" in memory_shortage(folder, 512, 1000)


def test_the_first_launch_says_what_pytorch_can_use() -> None:
    assert "PyTorch can already use your NVIDIA X" in hint_about_pytorch("NVIDIA X", CUDA)
    assert hint_about_pytorch("NVIDIA X", CPU) == hint_about_pytorch("", CUDA) == ""


@pytest.mark.parametrize(
    ("version", "device"), [("cuda: str | None = '12.4'", CUDA), ("cuda: str | None = None", CPU)]
)
def test_pytorch_s_build_is_read_and_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, device: str
) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise AssertionError")
    (tmp_path / "torch" / "version.py").write_text(f"debug = False\n{version}\nhip = None\n")
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); sys.platform = 'linux'\n"
        "from app.models import safetensors\n"
        "from engines.llama import devices\n"
        "devices.find_gpus = lambda: ['NVIDIA X']\n"
        "print(safetensors.torch_device(), 'torch' in sys.modules)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert run.stdout.split() == [device, "False"]


def test_exact_mode_needs_a_gguf(tmp_path: Path, locations: Locations) -> None:
    folder = write_folder(tmp_path / "folder")
    with pytest.raises(ModelError, match="use a GGUF"):
        load(Options(model=str(folder), exact=True), locations)


def test_a_folder_answers_as_its_gguf_does_drafted(tmp_path: Path, locations: Locations) -> None:
    """The embedded model as safetensors, by the same path as `specchat ask --model FOLDER`."""
    from engines.hf.target import load_target
    from tests.engines.embedded_folder import write_embedded_folder

    locations.create()
    locations.settings.write_text("threads = 1\n")  # more are slower at this size
    folder = write_embedded_folder(tmp_path / "folder", load_target(embedded(), device="cpu"))
    answers = []
    for choice in (str(embedded()), str(folder)):
        drafters = ("prompt", "recycle", "head")
        options = Options(
            model=choice, drafters=drafters, draft_tokens=4, temperature=0.0, max_tokens=30
        )
        engine = load(options, locations)
        with closing(History.open(locations.history)) as history:
            chat = history.create_chat().id
            question = "Show me how to rename a file or directory. Show me how to rename a file."
            list(Assistant(engine, history).answer(chat, None, question))
            stored = history.path(history.chat(chat).active or 0)[-1]
        answers.append(stored.content)
        accepted = stored.statistics["accepted"]
        assert isinstance(accepted, int)
        assert accepted > 0
        engine.close()
        path = replay_path(locations, engine.target.fingerprint)
        with closing(ReplayBuffer.existing(path)) as replay:
            assert replay.count_after(0, with_states=True) == 1, "a draft head learns from it"
    assert answers[0] == answers[1]

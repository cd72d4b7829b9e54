"""Where files are kept, and that other users cannot read them."""

from __future__ import annotations

import stat
import sys
from pathlib import Path
from types import SimpleNamespace

import platformdirs
import pytest

from app.locations import DATA_DIR_VARIABLE, locate, make_folder
from datastores.errors import StoreError


def test_the_platform_s_directories_are_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(DATA_DIR_VARIABLE, raising=False)
    places = locate()
    assert places.data == platformdirs.user_data_path("specchat", appauthor=False)
    assert places.config == platformdirs.user_config_path("specchat", appauthor=False)
    assert places.cache == platformdirs.user_cache_path("specchat", appauthor=False)


def test_one_directory_holds_everything(tmp_path: Path) -> None:
    root = Path("/specchat")  # where its sockets have short paths
    for name, path in locate(root).named().items():
        assert path.is_relative_to(root), name
    deep = tmp_path / ("deep" * 20)
    assert not locate(deep).sockets.is_relative_to(deep)


def test_the_option_wins_over_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DATA_DIR_VARIABLE, str(tmp_path / "variable"))
    assert locate().data == tmp_path / "variable"
    assert locate(tmp_path / "option").data == tmp_path / "option"


def test_a_home_and_a_relative_path_are_made_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert locate(Path("~/x")).data == tmp_path / "x"
    assert locate(Path("y")).data == tmp_path / "y"


def test_asking_creates_nothing_and_creating_keeps_others_out(tmp_path: Path) -> None:
    places = locate(tmp_path / "all")
    places.named()
    assert not list(tmp_path.iterdir())
    places.create()
    for directory in (places.data, places.cache, places.config):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700


def test_a_directory_that_was_there_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    locate(tmp_path).create()
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"cannot use .*file/x: .*; choose another place with --d"):
        locate(tmp_path / "file" / "x").create()
    with pytest.raises(StoreError, match=r"file is not a folder: move it away, or"):
        locate(tmp_path / "file").create()


@pytest.mark.skipif(sys.platform == "win32", reason="has no statvfs")
@pytest.mark.parametrize(
    ("flags", "reason"), [(1, "Read-only file system"), (0, "Permission denied")]
)
def test_why_a_folder_cannot_be_written_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: int, reason: str
) -> None:
    monkeypatch.setattr("app.locations.os.access", lambda *_: False)
    monkeypatch.setattr("app.locations.os.statvfs", lambda _: SimpleNamespace(f_flag=flags))
    with pytest.raises(StoreError, match=f"cannot use .*: {reason}; choose another place"):
        make_folder(tmp_path)


def test_draft_models_are_found_in_their_former_folder_until_it_is_renamed(tmp_path: Path) -> None:
    locations = locate(tmp_path)
    weights = tmp_path / "students" / "target" / "new.gguf"
    weights.parent.mkdir(parents=True)
    weights.write_bytes(b"learned")
    assert locations.draft_models == tmp_path / "students"
    locations.create()
    assert locations.draft_models == tmp_path / "draft-models"
    assert (locations.draft_models / "target" / "new.gguf").read_bytes() == b"learned"
    (tmp_path / "students").mkdir()
    locations.create()
    assert locations.draft_models == tmp_path / "draft-models"
    assert (tmp_path / "students").exists(), "what is there under both names stays"

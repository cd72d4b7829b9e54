"""The settings file is read completely, or refused in one line."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from app.chat_settings import NEW_SEED
from app.config import Config, load_config, write_setting
from app.locations import locate
from datastores.errors import InputError
from engines.sampler import Sampling


def _loaded(directory: Path, text: str) -> Config:
    path = directory / "config.toml"
    path.write_text(text)
    return load_config(path)


def test_without_a_file_the_defaults_apply(tmp_path: Path) -> None:
    assert load_config(tmp_path / "config.toml") == Config()


def test_what_is_set_replaces_the_default(tmp_path: Path) -> None:
    text = 'max_tokens = 5\nmodel = "a.gguf"\n[sampling]\ntemperature = 1\ntop_k = 3'
    config = _loaded(tmp_path, text)
    assert (config.max_tokens, config.model, config.context) == (5, "a.gguf", Config().context)
    assert config.sampling == Sampling(temperature=1.0, top_k=3, seed=NEW_SEED)
    assert isinstance(config.sampling.temperature, float)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("max_token = 5", "unknown setting 'max_token'; choose from .*max_tokens"),
        ("[sampling]\ntop = 3", r"unknown setting 'sampling\.top'; choose from .*top_k"),
        ("max_tokens = '5'", "max_tokens must be a whole number, not '5'"),
        ("threads = -1", "threads must be from 0 to 2147483647, not -1"),
        ("context = 0", "context must be from 1 to 2147483647, not 0"),
        (f"max_tokens = {10**30}", "max_tokens must be from 1 to 2147483647, not 1000"),
        ("[crest]\nmax_bytes = -1", r"crest.max_bytes must be from 1 to \d+, not -1"),
        ("max_tokens = true", "max_tokens must be a whole number, not True"),
        ("sampling = 3", "sampling must be a table, not 3"),
        ("[model]\nx = 1", "model must be a string"),
        ("[sampling]\ntemperature = -1", "sampling: temperature must be from 0 to 100, not -1.0"),
        ("[sampling]\ntop_p = nan", "top_p must be from 0 to 1, not nan"),
        ("max_tokens =", "not valid TOML: .*; fix or remove it"),
    ],
)
def test_invalid_settings_are_refused(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint) as caught:
        _loaded(tmp_path, text)
    assert str(tmp_path / "config.toml") in str(caught.value)


def test_a_directory_in_its_place_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read"):
        load_config(tmp_path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary())
def test_any_file_is_read_or_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(content)
    with suppress(InputError):
        load_config(path)


def test_a_setting_is_read_under_its_former_name_and_written_under_its_present_one(
    tmp_path: Path,
) -> None:
    locations = locate(tmp_path)
    locations.settings.write_text('# mine\nstudent = "small"  # quick\n\n[keys]\nquit = "ctrl+l"\n')
    assert load_config(locations.settings).draft_model == "small"
    write_setting(locations, "model", "large")
    text = locations.settings.read_text()
    assert text.endswith('# mine\ndraft_model = "small"  # quick\n\n[keys]\nquit = "ctrl+l"\n')
    assert load_config(locations.settings) == Config(
        model="large", draft_model="small", keys={"quit": "ctrl+l"}
    )
    write_setting(locations, "draft_model", "")
    assert load_config(locations.settings).draft_model == ""


def test_a_setting_under_both_names_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="student is now called draft_model: remove student"):
        _loaded(tmp_path, 'student = "a"\ndraft_model = "b"')

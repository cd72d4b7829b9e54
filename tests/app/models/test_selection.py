"""A choice is kept in the settings, and nothing else in them changes."""

from __future__ import annotations

import stat
import tomllib
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from app.config import Config, load_config
from app.engine.draft_model import draft_model_file
from app.locations import PACKAGED_MODELS_VARIABLE, Locations, ModelFolders, locate
from app.models.discovery import (
    BUILT_IN,
    embedded,
    embedded_draft_model,
    embedded_embedding_model,
    resolve_model,
)
from app.models.selection import NO_EMBEDDER, choose, choose_embedder, first_launch_offer
from datastores.errors import InputError, ModelError
from tests.app.models.gguf_files import write_gguf

COMMENTED = """\
# Mine.
theme = "nord"  # dark

# How I like it.
[sampling]
# never more
top_k = 3
"""


@pytest.fixture
def model(locations: Locations) -> str:
    """The name of a model in specchat's own folder."""
    write_gguf(locations.models / "tuned" / "tuned-Q8_0.gguf")
    return "tuned:Q8_0"


def test_a_choice_is_kept_and_taken_back(locations: Locations, model: str) -> None:
    assert choose("TUNED", locations).name == model
    assert load_config(locations.settings) == Config(model=model)
    assert resolve_model(load_config(locations.settings).model, locations).name == "tuned-Q8_0.gguf"
    assert choose(BUILT_IN, locations).path == embedded()
    assert load_config(locations.settings) == Config()


def test_the_embedded_model_needs_no_settings(locations: Locations) -> None:
    choose(BUILT_IN, locations)
    assert not locations.settings.exists()


def test_a_file_is_kept_by_its_whole_path(
    locations: Locations, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_gguf(tmp_path / "a.gguf")
    monkeypatch.chdir(tmp_path)
    choose("a.gguf", locations)
    assert load_config(locations.settings).model == str(path)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_comments_and_other_settings_stay(locations: Locations, model: str, end: str) -> None:
    locations.create()
    before = COMMENTED.replace("\n", end)
    locations.settings.write_bytes(before.encode())
    choose(model, locations)
    chosen = locations.settings.read_bytes().decode()
    assert chosen == f'model = "{model}"\n{before}'
    choose(BUILT_IN, locations)
    assert locations.settings.read_bytes().decode() == f'model = ""\n{before}'


def test_a_choice_replaces_the_previous_one_in_place(locations: Locations, model: str) -> None:
    locations.create()
    locations.settings.write_text('max_tokens = 5\nmodel = "x"  # was good\n[sampling]\ntop_k = 3')
    choose(model, locations)
    assert locations.settings.read_text() == (
        f'max_tokens = 5\nmodel = "{model}"  # was good\n[sampling]\ntop_k = 3'
    )


_LINES = st.sampled_from(
    ["# a comment", "", "max_tokens = 9 # few", 'theme = "nord"', 'model = "before"', "context=512"]
)
_TABLES = st.sampled_from(["", "\n# drawn\n[sampling]\ntop_k = 1\n", "[sampling]\nseed = 2 # mine"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(_LINES, unique=True), _TABLES)
def test_all_that_changes_is_the_model(
    locations: Locations, model: str, lines: list[str], tables: str
) -> None:
    locations.create()
    locations.settings.write_text("\n".join([*lines, tables]))
    before = tomllib.loads(locations.settings.read_text())
    comments = locations.settings.read_text().count("#")
    choose(model, locations)
    after = locations.settings.read_text()
    assert tomllib.loads(after) == {**before, "model": model}
    assert after.count("#") == comments


def test_a_linked_file_stays_a_link_and_keeps_its_mode(
    locations: Locations, model: str, tmp_path: Path
) -> None:
    locations.create()
    kept = tmp_path / "dotfiles.toml"
    kept.write_text("context = 512\n")
    kept.chmod(0o640)
    locations.settings.symlink_to(kept)
    choose(model, locations)
    assert locations.settings.is_symlink()
    assert tomllib.loads(kept.read_text()) == {"model": model, "context": 512}
    assert stat.S_IMODE(kept.stat().st_mode) == 0o640
    assert sorted(tmp_path.glob("*.toml*")) == [kept]


def test_what_cannot_be_used_is_not_chosen(locations: Locations, model: str) -> None:
    write_gguf(locations.models / "projector.gguf", kind="mmproj")
    with pytest.raises(InputError, match="projector cannot be used: an image projector"):
        choose("projector", locations)
    with pytest.raises(ModelError, match=f"no model 'tuna'.*similar: {model}"):
        choose("tuna", locations)
    assert not locations.settings.exists()


def test_settings_that_are_not_understood_are_not_written_to(
    locations: Locations, model: str
) -> None:
    locations.create()
    locations.settings.write_text("nonsense = 1")
    with pytest.raises(InputError, match="unknown setting 'nonsense'"):
        choose(model, locations)
    assert locations.settings.read_text() == "nonsense = 1"


def test_the_first_launch_offers_what_is_here_and_fits(
    locations: Locations, others: ModelFolders
) -> None:
    assert first_launch_offer(locations) == []
    write_gguf(others.lm_studio[0] / "org" / "small" / "small.gguf", weights=1)
    write_gguf(others.lm_studio[0] / "org" / "large" / "large.gguf", weights=4)
    write_gguf(others.lm_studio[0] / "org" / "eye" / "eye.gguf", kind="mmproj")
    offer = first_launch_offer(locations, others)
    assert [model.name for model in offer] == ["org/large:large", "org/small:small"]
    assert first_launch_offer(locations, others, free=1000) == []
    choose("org/small", locations, others)
    assert first_launch_offer(locations, others) == []


def test_the_embedded_model_can_be_chosen_beside_an_installed_package_s(
    locations: Locations, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    general = write_gguf(tmp_path / "package" / "general.gguf")
    monkeypatch.setenv(PACKAGED_MODELS_VARIABLE, str(general.parent))
    assert first_launch_offer(locations) == [], "it is open already"
    choose(BUILT_IN, locations)
    assert resolve_model(load_config(locations.settings).model, locations) == embedded()
    choose("general", locations)
    assert resolve_model(load_config(locations.settings).model, locations) == general


def test_choices_of_one_data_directory_are_not_another_s(
    locations: Locations, model: str, tmp_path: Path
) -> None:
    choose(model, locations)
    assert load_config(locate(tmp_path / "second").settings) == Config()


def test_the_smallest_embedding_model_searches_unless_one_is_chosen(
    locations: Locations, others: ModelFolders, model: str
) -> None:
    assert choose_embedder(locations, "") == embedded_embedding_model()
    small = write_gguf(locations.models / "small.gguf", architecture="bert", tokens=20)
    large = write_gguf(others.lm_studio[0] / "a" / "b" / "large.gguf", pooling_type=3)
    write_gguf(locations.models / "rank.gguf", architecture="bert", pooling_type=4, tokens=10)
    assert choose_embedder(locations, "") == small
    assert choose_embedder(locations, "a/b") == large
    assert choose_embedder(locations, str(large)) == large
    for mistyped, similar in (("smol", "; similar: small;"), ("embeded", "ones; or change")):
        with pytest.raises(ModelError, match=similar):
            choose_embedder(locations, mistyped)
    assert choose_embedder(locations, NO_EMBEDDER) is None
    assert choose_embedder(locations, BUILT_IN) == embedded_embedding_model()
    small.unlink()
    large.unlink()
    with pytest.raises(ModelError, match="no model 'a/b'"):
        choose_embedder(locations, "a/b")
    with pytest.raises(ModelError, match=r"cannot be read|cannot embed texts"):
        choose_embedder(locations, str(large))
    with pytest.raises(ModelError, match="it writes text"):
        choose_embedder(locations, model)
    with pytest.raises(ModelError, match="a reranker"):
        choose_embedder(locations, "rank")


def test_the_earlier_name_of_the_built_in_model_is_still_understood(locations: Locations) -> None:
    locations.settings.parent.mkdir(parents=True, exist_ok=True)
    locations.settings.write_text('model = "embedded"\nstudent = "embedded"\n')
    config = load_config(locations.settings)
    assert resolve_model(config.model, locations) == embedded()
    assert (
        draft_model_file(config.draft_model, Path("any.gguf"), locations) == embedded_draft_model()
    )
    assert choose_embedder(locations, "embedded") == embedded_embedding_model()
    assert choose("embedded", locations).name == BUILT_IN == "built-in"

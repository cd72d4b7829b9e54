"""What is written for people is true: help, keys, settings, links, commands and the picture."""

from __future__ import annotations

import re
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest

from app.config import Config, load_config
from app.models.discovery import embedded
from tests.picture import PICTURE, QUESTIONS, record
from tests.readme import README, ROOT, generated, pages, settings_block, with_block

QUICK_START = "pip install -e . && specchat"
TEST_COMMAND = "pip install -e '.[test]' && pytest"


MAX_README_BYTES = 12 * 1024
"""A person in a hurry reads it whole."""


@pytest.mark.parametrize("page", generated(), ids=lambda page: str(page.relative_to(ROOT)))
def test_what_is_generated_is_current(page: Path) -> None:
    name, make = generated()[page]
    text = page.read_text()
    assert text == with_block(text, name, make()), "run: python -m tests.readme"


def test_a_page_without_its_block_is_noticed() -> None:
    with pytest.raises(ValueError, match="no <!-- keys -->"):
        with_block("# Keys", "keys", "| key |")


def test_the_readme_is_short() -> None:
    assert len(README.read_bytes()) <= MAX_README_BYTES


def test_the_readme_begins_with_a_picture_of_a_real_model() -> None:
    assert f"]({PICTURE.relative_to(ROOT)})" in README.read_text()
    assert "SmolLM2" in PICTURE.read_text()


def test_the_picture_can_be_recorded_again(tmp_path: Path) -> None:
    drawn = record(embedded(), tmp_path).replace("&#160;", " ")
    assert QUESTIONS[-1] in drawn
    assert "drafts  " in drawn  # a label of the panel's figures, whether drafts paid or not


def test_the_page_of_settings_is_a_valid_file_of_defaults(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(settings_block().strip("`").removeprefix("toml"))
    assert load_config(path) == Config()
    assert set(tomllib.loads(path.read_text())) == {field.name for field in fields(Config)}


def test_the_readme_begins_with_the_two_commands() -> None:
    lines = [line.strip() for line in README.read_text().splitlines()]
    assert QUICK_START in lines
    assert TEST_COMMAND in lines


def test_the_checks_call_the_readme_s_test_command() -> None:
    assert TEST_COMMAND in (ROOT / ".ci" / "run").read_text().splitlines()


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(page: Path) -> None:
    for path, anchor in re.findall(r"\]\(([^)#:\s]*)(?:#([^)]+))?\)", page.read_text()):
        target = page.parent / path if path else page
        assert target.exists(), f"{page} links to {path}"
        assert not anchor or anchor in headings(target), f"{page} links to #{anchor}"


def headings(page: Path) -> set[str]:
    """The anchors that a page's headings have on the web."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def test_the_gpu_commands_install_the_release_that_specchat_needs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pinned = next(line for line in project["dependencies"] if line.startswith("llama-cpp-python"))
    page = (ROOT / "engines" / "README.md").read_text()
    assert set(re.findall(r"llama-cpp-python==[\d.]+", page)) == {pinned}


def test_every_dependency_has_its_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = sum(project["optional-dependencies"].values(), project["dependencies"])
    names = {re.split(r"[<>=\[]", requirement)[0] for requirement in needed} - {project["name"]}
    reasons = re.findall(r"^- `([\w-]+)`: ", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)
    assert sorted(reasons) == sorted(names)
